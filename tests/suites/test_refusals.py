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
from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.reasons import delegation_reasons
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.instruments import assert_parity, outputs_of
from peft import IA3Config, LoraConfig, inject_adapter_in_model
from peft.tuners import lora
from peft.utils.other import ModulesToSaveWrapper
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

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


def outcome(model: nn.Module, x: Tensor) -> list[Tensor] | str:
    """What a block does with an input: its outputs, or the exception that it raises. Dropout draws the same."""
    torch.manual_seed(5)
    try:
        return list(outputs_of(model(x)))
    except Exception as error:
        return type(error).__name__


def same(got: list[Tensor] | str, want: list[Tensor] | str) -> bool:
    """Whether two outcomes are equal to the bit."""
    if isinstance(got, str) or isinstance(want, str):
        return isinstance(got, str) and isinstance(want, str) and got == want
    return len(got) == len(want) and all(map(torch.equal, got, want))


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
    ("lora_B is torch.bfloat16", lora_b_of_another_dtype, {}),
    ("weight is torch.bfloat16", base_of_another_dtype, {}),
]
GROUPS = [kernel for kernel in KERNELS if len(kernel.projections) > 1]


def table(cases: list[tuple[str, Change, Fields]], kernels: list[KernelInfo]) -> pytest.MarkDecorator:
    """Each case at each projection of each kernel."""
    return pytest.mark.parametrize(
        "kernel, projection, reason, change, fields",
        [
            pytest.param(
                kernel, projection, *case, id=f"{kernel.name}-{projection}-{case[1].__name__}{'-square' * len(case[2])}"
            )
            for kernel in kernels
            for projection in kernel.projections
            for case in cases
        ],
    )


UNTOLD = (other_tuner, own_lora_layer)  # alone, a layer that isn't PEFT's LoRA is not asked about
SILENT = (fan_in_fan_out, trainable_weight, trainable_bias)  # PEFT's output is then the kernel's


@table(STATES, list(KERNELS))
def test_a_state_that_peft_must_handle_hands_the_call_back(
    kernel: KernelInfo, projection: str, reason: str, change: Change, fields: Fields, nodes: Nodes
) -> None:
    """Patched first: the state is looked at in each call."""
    model, x = build(kernel, Sample(**fields))
    twin, _ = build(kernel, Sample(**fields))
    assert kernel.patch(model) == 1
    assert kernel.node in nodes(model(x))
    for one in (twin, model):
        before = outcome(one, x)
        torch.manual_seed(1)
        change(At(one, projection))
    want = outcome(twin, x)
    assert change in SILENT or not same(before, want)
    assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
    got = outcome(model, x)
    assert same(got, want)
    assert isinstance(got, str) or kernel.node not in nodes(tuple(got))


@table(BUILT, list(KERNELS))
def test_an_adapter_that_peft_must_handle_is_left_to_it(
    kernel: KernelInfo, projection: str, reason: str, change: Change, fields: Fields, nodes: Nodes
) -> None:
    """Patched afterwards: whether the patcher takes such a block or not, the call is PEFT's."""
    model, x = build(kernel, Sample(**fields))
    before = outcome(model, x)
    change(At(model, projection))
    want = outcome(model, x)
    assert not same(before, want)
    kernel.patch(model)
    assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
    got = outcome(model, x)
    assert same(got, want)
    assert kernel.node not in nodes(tuple(got))


@table(REFUSED, list(KERNELS))
def test_a_layer_that_no_kernel_computes_is_not_patched(
    kernel: KernelInfo, projection: str, reason: str, change: Change, fields: Fields, nodes: Nodes
) -> None:
    model, x = build(kernel, Sample(**fields))
    change(At(model, projection))
    want = outcome(model, x)
    assert kernel.patch(model) == 0
    if kernel in GROUPS or change not in UNTOLD:
        assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
    got = outcome(model, x)
    assert same(got, want)
    assert isinstance(got, str) or kernel.node not in nodes(tuple(got))


@table(REFUSED_SIBLINGS, GROUPS)
def test_a_sibling_that_no_kernel_computes_keeps_the_group_from_being_patched(
    kernel: KernelInfo, projection: str, reason: str, change: Change, fields: Fields, nodes: Nodes
) -> None:
    adapted = tuple(name for name in kernel.projections if name != projection)
    model, x = build(kernel, Sample(adapted=adapted, **fields))
    change(At(model, projection))
    want = outcome(model, x)
    assert kernel.patch(model) == 0
    assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
    got = outcome(model, x)
    assert same(got, want)
    assert isinstance(got, str) or kernel.node not in nodes(tuple(got))


@table([case for case in STATES if case[0] == "trainable base"], GROUPS)
def test_a_trainable_sibling_without_an_adapter_gets_pefts_gradient(
    kernel: KernelInfo, projection: str, reason: str, change: Change, fields: Fields, arms: Any
) -> None:
    adapted = tuple(name for name in kernel.projections if name != projection)
    model, x = build(kernel, Sample(adapted=adapted))
    change(At(model, projection))
    got, want = arms(kernel, model, x)
    assert told(model, BLOCKS[kernel.kind]).startswith(f"PEFT: {reason}")
    assert any("lora" not in name for name in want if name.startswith("d "))
    assert_parity(got, want, rtol=0, atol=0)


@table(CALLS, list(KERNELS))
def test_dtypes_that_do_not_meet_are_left_to_peft(
    kernel: KernelInfo, projection: str, reason: str, change: Change, fields: Fields, nodes: Nodes
) -> None:
    """PEFT raises there; a kernel that casts on its own would hide the mistake."""
    model, x = build(kernel, Sample(**fields))
    change(At(model, projection))
    want = outcome(model, x)
    assert isinstance(want, str)
    assert kernel.patch(model) == 1
    assert outcome(model, x) == want
    assert told(model, BLOCKS[kernel.kind]).startswith("PEFT: ")


@pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
def test_a_weight_repacked_for_cpu_inference_is_left_to_peft(kernel: KernelInfo) -> None:
    """In evaluation mode bitsandbytes changes the packed layout in place. Only told: its own product would crash."""
    for projection in kernel.projections:
        model, _ = build(kernel, Sample(base="nf4"))
        kernel.patch(model)
        At(model, projection).base.weight.quant_state.packing_format_for_cpu = True
        assert told(model, BLOCKS[kernel.kind]) == "PEFT: 4-bit weight repacked for CPU inference"


@pytest.mark.parametrize("kernel", GROUPS, ids=attrgetter("name"))
@pytest.mark.parametrize("odd", range(3))
def test_siblings_that_compute_in_different_dtypes_are_left_to_peft(kernel: KernelInfo, odd: int, nodes: Nodes) -> None:
    model, x = build(kernel, Sample(base="nf4"))
    at = At(model, kernel.projections[odd])
    at.base.compute_dtype = torch.bfloat16
    want = outcome(model, x)
    assert kernel.patch(model) == 1
    assert told(model, BLOCKS[kernel.kind]) == "PEFT: siblings with different compute dtypes: bfloat16, float32"
    got = outcome(model, x)
    assert same(got, want)
    assert kernel.node not in nodes(tuple(got))


@pytest.mark.parametrize("kernel", GROUPS, ids=attrgetter("name"))
@pytest.mark.parametrize("odd", range(3))
def test_siblings_with_adapters_of_different_dtypes_are_left_to_peft(
    kernel: KernelInfo, odd: int, nodes: Nodes
) -> None:
    model, x = build(kernel, Sample(dtype="mixed"))
    layer = At(model, kernel.projections[odd]).layer
    layer.lora_A.bfloat16()
    layer.lora_B.bfloat16()
    want = outcome(model, x)
    assert kernel.patch(model) == 1
    assert told(model, BLOCKS[kernel.kind]) == "PEFT: siblings with different adapter dtypes: bfloat16, float32"
    got = outcome(model, x)
    assert same(got, want)
    assert kernel.node not in nodes(tuple(got))


@pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
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
    assert kernel.node in nodes(model(x))
    assert told(model, BLOCKS[kernel.kind]) == "kernel"
    for ours, theirs in zip(outcome(model, x), want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)  # unmerging subtracts what merging added


@pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
def test_without_an_adapter_there_is_nothing_to_patch(kernel: KernelInfo) -> None:
    model, _ = build(kernel, Sample())
    for projection in kernel.projections:
        At(model, projection).put(At(model, projection).base)
    assert kernel.patch(model) == 0
    if len(kernel.projections) > 1:
        assert told(model, BLOCKS[kernel.kind]) == "PEFT: no adapter on any projection"


@pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
def test_an_active_adapter_that_no_projection_has_is_left_to_peft(kernel: KernelInfo, nodes: Nodes) -> None:
    model, x = build(kernel, Sample())
    assert kernel.patch(model) == 1
    for projection in kernel.projections:
        At(model, projection).layer._active_adapter = "another"
    assert told(model, BLOCKS[kernel.kind]) == "PEFT: no adapter on any projection"
    got = outcome(model, x)
    kernel.unpatch(model)
    assert same(got, outcome(model, x))


@pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
def test_an_unpatched_block_says_so(kernel: KernelInfo) -> None:
    model, x = build(kernel, Sample())
    assert set(delegation_reasons(model).values()) == {"PEFT: not patched"}
    kernel.patch(model)
    model(x)
    assert set(delegation_reasons(model).values()) == {"kernel"}
    assert BLOCKS[kernel.kind] in delegation_reasons(model)
