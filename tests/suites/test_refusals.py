"""What a kernel doesn't compute is PEFT's, and it says why.

Each condition stands at each projection in turn, the others as a kernel likes them. A refused block must give its
reason, do exactly what it did unpatched (an exception is that too), and not carry the kernel's node. Adapters are drawn
and scaled, so that a kernel that ran all the same would give other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import bitsandbytes as bnb
import pytest
import torch
from peft import IA3Config, LoraConfig, inject_adapter_in_model
from peft.tuners import lora
from peft.utils.other import ModulesToSaveWrapper
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.reasons import delegation_reasons
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.instruments import assert_parity, outputs_of

Outcome = list[Tensor] | str
BLOCKS = {"linear": "proj", "qkv": "attn", "swiglu-mlp": "mlp"}


@dataclass(frozen=True)
class At:
    """One projection of a built model."""

    model: nn.Module
    name: str

    @property
    def parent(self) -> nn.Module:
        """The module that has it as a child."""
        return next(module for module in self.model.modules() if self.name in dict(module.named_children()))

    @property
    def layer(self) -> Any:
        """The projection as it is now."""
        return getattr(self.parent, self.name)

    @property
    def base(self) -> Any:
        """The layer below PEFT's, or the projection itself."""
        return getattr(self.layer, "base_layer", self.layer)

    def put(self, layer: nn.Module) -> None:
        """Exchanges the projection."""
        setattr(self.parent, self.name, layer)


def wrapped(base: nn.Module, *, loaded_in_8bit: bool = False, config: Any = LoraConfig, **how: Any) -> nn.Module:
    """PEFT's layer around `base`, every parameter of its adapter drawn."""
    holder = nn.Module()
    holder.layer = base
    holder.is_loaded_in_8bit = loaded_in_8bit
    sizes = {"r": 3, "lora_alpha": 7} if config is LoraConfig else {"feedforward_modules": []}
    inject_adapter_in_model(config(target_modules=["layer"], **sizes, **how), holder)
    for name, parameter in holder.layer.named_parameters():
        if "base_layer" not in name:
            nn.init.normal_(parameter, std=0.4)
    layer: nn.Module = holder.layer
    return layer


def outcome(model: nn.Module, x: Tensor) -> Outcome:
    """What a block does with an input: its outputs, or the exception that it raises. Dropout draws the same."""
    torch.manual_seed(5)
    try:
        return list(outputs_of(model(x)))
    except Exception as error:
        return type(error).__name__


def unlike(got: Outcome, want: Outcome, within: float = 0.0) -> str:
    """How two outcomes differ, in words; empty if they don't by more than `within` times the largest value."""
    if isinstance(got, str) or isinstance(want, str):
        return "" if got == want else f"{raised(got)}, not {raised(want)}"
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        error = (ours - theirs).abs().max().item()
        if not error <= within * theirs.abs().max().item():
            return f"output {index} differs by {error:.3g}"
    return ""


def raised(one: Outcome) -> str:
    """An outcome in short."""
    return f"raised {one}" if isinstance(one, str) else f"{len(one)} outputs"


def told(model: nn.Module, path: str) -> str:
    """Why a block is PEFT's. Asking must not raise, whatever the state."""
    try:
        return delegation_reasons(model)[path]
    except Exception as error:
        return repr(error)


# States that a layer can get into after it was patched: (reason, what brings it about, fields of the sample).


def disabled(at: At) -> None:
    at.layer.enable_adapters(False)


def merged(at: At) -> None:
    at.layer.merge()


def second_adapter(at: At) -> None:
    inject_adapter_in_model(LoraConfig(r=2, lora_alpha=3, target_modules=[at.name]), at.model, adapter_name="b")
    nn.init.normal_(at.layer.lora_B["b"].weight)
    first_adapter(at)
    at.layer.set_adapter(["default", "b"])


def no_active_adapter(at: At) -> None:
    at.layer.set_adapter([])


def other_dropout(at: At) -> None:
    class Halved(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 2

    at.layer.lora_dropout["default"] = Halved()


def dropout(at: At) -> None:
    at.layer.lora_dropout["default"] = nn.Dropout(0.5)


def dora(at: At) -> None:
    at.put(wrapped(at.base, use_dora=True))


def lora_bias(at: At) -> None:
    at.put(wrapped(at.base, lora_bias=True))


def fan_in_fan_out(at: At) -> None:
    at.layer.fan_in_fan_out = True  # PEFT's forward of a plain Linear takes no notice: only the reason tells


def trainable_weight(at: At) -> None:
    at.base.weight.requires_grad_()


def trainable_bias(at: At) -> None:
    at.base.bias.requires_grad_()


def no_input_cast(at: At) -> None:
    at.layer.cast_input_dtype_enabled = False


def lora_b_of_another_dtype(at: At) -> None:
    at.layer.lora_B["default"].to(torch.bfloat16)


def base_of_another_dtype(at: At) -> None:
    at.base.to(torch.bfloat16)


def conv1d(at: At) -> None:
    """A base that multiplies by W instead of W transposed; square, so that nothing but the numbers would tell."""
    i, o = at.base.in_features, at.base.out_features
    base = Conv1D(o, i)
    nn.init.normal_(base.weight)
    at.put(wrapped(base.requires_grad_(False), fan_in_fan_out=True))


def integer_weight(at: At) -> None:
    """Numbers in 8 bits that no state explains, in a layer that is a plain Linear otherwise."""
    at.base.weight = nn.Parameter(torch.ones_like(at.base.weight, dtype=torch.int8), requires_grad=False)


def int8_layer(at: At) -> bnb.nn.Linear8bitLt:
    """The base quantised to 8 bits."""
    layer = bnb.nn.Linear8bitLt(at.base.in_features, at.base.out_features, has_fp16_weights=False)
    layer.load_state_dict({"weight": at.base.weight.data, "bias": at.base.bias.data})
    return layer.to("cpu").requires_grad_(False)


def int8_adapted(at: At) -> None:
    at.put(wrapped(int8_layer(at), loaded_in_8bit=True))


def int8_unadapted(at: At) -> None:
    at.put(int8_layer(at))


def other_tuner(at: At) -> None:
    at.put(wrapped(at.base, config=IA3Config))


def own_linear(at: At) -> None:
    """A layer with a forward of its own."""

    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    layer = Doubled(at.base.in_features, at.base.out_features)
    layer.load_state_dict(at.base.state_dict())
    at.put(wrapped(layer.requires_grad_(False)) if at.base is not at.layer else layer.requires_grad_(False))


def own_lora_layer(at: At) -> None:
    """PEFT's layer with a forward of its own."""

    class Tripled(lora.Linear):
        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            return 3 * super().forward(x, *args, **kwargs)

    at.layer.__class__ = Tripled


def module_to_save(at: At) -> None:
    """Its copy is what trains, and what PEFT's forward runs."""
    wrapper = ModulesToSaveWrapper(at.base, "default")
    nn.init.normal_(wrapper.modules_to_save["default"].weight)
    at.put(wrapper)


def enabled(at: At) -> None:
    at.layer.enable_adapters(True)


def unmerged(at: At) -> None:
    at.layer.unmerge()


def first_adapter(at: At) -> None:
    for module in at.model.modules():
        if isinstance(module, lora.LoraLayer):
            module.set_adapter("default")


Change = Callable[[At], None]
Fields = dict[str, Any]
Nodes = Callable[[object], list[str]]

# (the reason told, what brings it about, fields of the sample)
STATES: list[tuple[str, Change, Fields]] = [
    ("adapters disabled", disabled, {}),
    ("adapters merged", merged, {}),
    ("2 active adapters", second_adapter, {}),
    ("0 active adapters", no_active_adapter, {}),
    ("lora_dropout=0.5", dropout, {}),
    ("unsupported dropout", other_dropout, {}),
    ("fan_in_fan_out", fan_in_fan_out, {}),
    ("trainable base", trainable_weight, {}),
    ("trainable base", trainable_bias, {}),
]
BUILT: list[tuple[str, Change, Fields]] = [
    ("lora_variant=DoraLinearVariant", dora, {}),
    ("lora_bias", lora_bias, {}),
]
REFUSED: list[tuple[str, Change, Fields]] = [
    ("unsupported layer", conv1d, {}),
    ("unsupported layer", conv1d, {"square": True}),
    ("unsupported layer", own_linear, {}),
    ("torch.int8 weight", integer_weight, {}),
    ("unsupported adapter layer", int8_adapted, {}),
    ("unsupported adapter layer", other_tuner, {}),
    ("unsupported adapter layer", own_lora_layer, {}),
]
REFUSED_SIBLINGS: list[tuple[str, Change, Fields]] = [
    ("unsupported layer", int8_unadapted, {}),
    ("unsupported layer", own_linear, {}),
    ("unsupported layer", module_to_save, {}),
    ("torch.int8 weight", integer_weight, {}),
]
CALLS: list[tuple[str, Change, Fields]] = [
    ("input dtype casting disabled", no_input_cast, {"dtype": "mixed"}),
    ("lora_A is torch.float32, lora_B is torch.bfloat16", lora_b_of_another_dtype, {}),
    ("bfloat16", base_of_another_dtype, {}),
]
GROUPS = [kernel for kernel in KERNELS if len(kernel.projections) > 1]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
each_group = pytest.mark.parametrize("kernel", GROUPS, ids=attrgetter("name"))


def table(cases: list[tuple[str, Change, Fields]], kernels: list[KernelInfo]) -> pytest.MarkDecorator:
    """Each case for each kernel."""
    return pytest.mark.parametrize(
        "kernel, reason, change, fields",
        [
            pytest.param(kernel, *case, id=f"{kernel.name}-{case[1].__name__}{'-square' * len(case[2])}")
            for kernel in kernels
            for case in cases
        ],
    )


def handed_back(kernel: KernelInfo, model: nn.Module, x: Tensor, want: Outcome, reason: str) -> None:
    """The block tells why it is PEFT's, does what it did unpatched, and carries no node of the kernel's."""
    if reason:
        assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
    got = outcome(model, x)
    assert not unlike(got, want)
    assert isinstance(got, str) or kernel.node not in [type(out.grad_fn).__name__ for out in got]


UNTOLD = (other_tuner, own_lora_layer)  # alone, a layer that isn't PEFT's LoRA is not asked about
SILENT = (merged, fan_in_fan_out, trainable_weight, trainable_bias)  # PEFT's output doesn't move by these


@table(STATES, list(KERNELS))
def test_a_state_that_peft_must_handle_hands_the_call_back(
    kernel: KernelInfo, reason: str, change: Change, fields: Fields, nodes: Nodes
) -> None:
    """Patched first: the state is looked at in each call."""
    for projection in kernel.projections:
        model, x = build(kernel, Sample(**fields))
        assert kernel.patch(model) == 1
        before = outcome(model, x)
        assert kernel.node in nodes(tuple(before))
        change(At(model, projection))
        assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
        got = outcome(model, x)
        kernel.unpatch(model)
        want = outcome(model, x)
        assert kernel.node not in nodes(tuple(want))
        assert change in SILENT or unlike(before, want, 1e-3)
        assert not unlike(got, want)


@table(BUILT, list(KERNELS))
def test_an_adapter_that_peft_must_handle_is_left_to_it(
    kernel: KernelInfo, reason: str, change: Change, fields: Fields
) -> None:
    """Whether the patcher takes such a block or not, the call is PEFT's."""
    for projection in kernel.projections:
        model, x = build(kernel, Sample(**fields))
        before = outcome(model, x)
        change(At(model, projection))
        want = outcome(model, x)
        assert unlike(before, want, 1e-3)
        kernel.patch(model)
        handed_back(kernel, model, x, want, reason)


@table(REFUSED, list(KERNELS))
def test_a_layer_that_no_kernel_computes_is_not_patched(
    kernel: KernelInfo, reason: str, change: Change, fields: Fields
) -> None:
    for projection in kernel.projections:
        model, x = build(kernel, Sample(**fields))
        change(At(model, projection))
        want = outcome(model, x)
        assert kernel.patch(model) == 0
        handed_back(kernel, model, x, want, reason if kernel in GROUPS or change not in UNTOLD else "")


@table(REFUSED_SIBLINGS, GROUPS)
def test_a_sibling_that_no_kernel_computes_keeps_the_group_from_being_patched(
    kernel: KernelInfo, reason: str, change: Change, fields: Fields
) -> None:
    for projection in kernel.projections:
        adapted = tuple(name for name in kernel.projections if name != projection)
        model, x = build(kernel, Sample(adapted=adapted, **fields))
        change(At(model, projection))
        want = outcome(model, x)
        assert kernel.patch(model) == 0
        handed_back(kernel, model, x, want, reason)


@table([case for case in STATES if case[0] == "trainable base"], GROUPS)
def test_a_trainable_sibling_without_an_adapter_gets_pefts_gradient(
    kernel: KernelInfo, reason: str, change: Change, fields: Fields, arms: Any
) -> None:
    for projection in kernel.projections:
        adapted = tuple(name for name in kernel.projections if name != projection)
        model, x = build(kernel, Sample(adapted=adapted))
        change(At(model, projection))
        got, want = arms(kernel, model, x)
        assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
        assert any("lora" not in name for name in want if name.startswith("d "))
        assert_parity(got, want, rtol=0, atol=0)


@table(CALLS, list(KERNELS))
def test_dtypes_that_do_not_meet_are_left_to_peft(
    kernel: KernelInfo, reason: str, change: Change, fields: Fields
) -> None:
    """PEFT raises there; a kernel that casts on its own would hide the mistake."""
    for projection in kernel.projections:
        model, x = build(kernel, Sample(**fields))
        change(At(model, projection))
        want = outcome(model, x)
        assert isinstance(want, str)
        assert kernel.patch(model) == 1
        assert outcome(model, x) == want
        assert reason in told(model, BLOCKS[kernel.kind])


@each_kernel
def test_a_weight_repacked_for_cpu_inference_is_left_to_peft(kernel: KernelInfo) -> None:
    """In evaluation bitsandbytes changes the packed layout in place. Only told: its own product would crash."""
    for projection in kernel.projections:
        model, _ = build(kernel, Sample(base="nf4"))
        kernel.patch(model)
        At(model, projection).base.weight.quant_state.packing_format_for_cpu = True
        assert told(model, BLOCKS[kernel.kind]) == "PEFT: 4-bit weight repacked for CPU inference"


@each_group
def test_siblings_that_compute_in_different_dtypes_are_left_to_peft(kernel: KernelInfo) -> None:
    for projection in kernel.projections:
        model, x = build(kernel, Sample(base="nf4"))
        At(model, projection).base.compute_dtype = torch.bfloat16
        want = outcome(model, x)
        assert kernel.patch(model) == 1
        handed_back(kernel, model, x, want, "siblings with different compute dtypes: bfloat16, float32")


@each_group
def test_siblings_with_adapters_of_different_dtypes_are_left_to_peft(kernel: KernelInfo) -> None:
    for projection in kernel.projections:
        model, x = build(kernel, Sample(dtype="mixed"))
        layer = At(model, projection).layer
        layer.lora_A.bfloat16()
        layer.lora_B.bfloat16()
        want = outcome(model, x)
        assert kernel.patch(model) == 1
        handed_back(kernel, model, x, want, "siblings with different adapter dtypes: bfloat16, float32")


@each_kernel
@pytest.mark.parametrize("change, back", [(disabled, enabled), (merged, unmerged), (second_adapter, first_adapter)])
def test_the_kernel_runs_again_when_the_state_has_passed(
    kernel: KernelInfo, change: Change, back: Change, nodes: Nodes
) -> None:
    model, x = build(kernel, Sample())
    kernel.patch(model)
    at = At(model, kernel.projections[-1])
    want = outcome(model, x)
    change(at)
    assert kernel.node not in nodes(model(x))
    back(at)
    out = model(x)
    assert kernel.node in nodes(out)
    assert told(model, BLOCKS[kernel.kind]) == "kernel"
    assert not unlike(outcome(model, x), want, 1e-5)


@each_kernel
def test_without_an_adapter_there_is_nothing_to_patch(kernel: KernelInfo) -> None:
    model, _ = build(kernel, Sample())
    for projection in kernel.projections:
        At(model, projection).put(At(model, projection).base)
    assert kernel.patch(model) == 0
    if kernel in GROUPS:
        assert told(model, BLOCKS[kernel.kind]) == "PEFT: no adapter on any projection"


@each_kernel
def test_an_active_adapter_that_no_projection_has_is_left_to_peft(kernel: KernelInfo) -> None:
    model, x = build(kernel, Sample())
    for projection in kernel.projections:
        At(model, projection).layer._active_adapter = "another"
    want = outcome(model, x)
    assert kernel.patch(model) == 1
    handed_back(kernel, model, x, want, "no adapter on any projection")


@each_kernel
def test_a_block_says_whether_it_is_patched(kernel: KernelInfo) -> None:
    model, x = build(kernel, Sample(bias=False, ranks=(3,) * len(kernel.projections)))
    assert set(delegation_reasons(model).values()) == {"PEFT: not patched"}
    kernel.patch(model)
    model(x)
    assert set(delegation_reasons(model).values()) == {"kernel"}
    assert BLOCKS[kernel.kind] in delegation_reasons(model)
