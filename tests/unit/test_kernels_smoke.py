"""The reference kernels against unpatched PEFT, small; the full suites are `fastlora_verify.suites`."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear8bitLt
from peft import LoraConfig
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.linear import patch_linear, unpatch_linear
from fastlora_verify.kernels.patching import patch_of
from fastlora_verify.kernels.qkv import patch_qkv, unpatch_qkv
from fastlora_verify.kernels.reasons import delegation_reasons
from fastlora_verify.kernels.samples import BASES, DTYPES, KINDS, Sample, build, to_float64_twin
from fastlora_verify.kernels.swiglu import patch_swiglu

BY_NAME = {info.name: info for info in KERNELS}
LAYOUTS = [(dtype, base) for dtype, base in itertools.product(DTYPES, BASES) if base == "dense" or dtype != "float64"]
TOLERANCE = {"fp32": 1e-5, "bf16": 0.03, "fp16": 0.01, "float64": 1e-12, "mixed": 0.03}
every_kernel = pytest.mark.parametrize("info", KERNELS, ids=lambda info: info.name)

Results = dict[str, Tensor]


def outputs(out: Any) -> tuple[Tensor, ...]:
    return out if isinstance(out, tuple) else (out,)


def step(model: nn.Module, x: Tensor, call: Callable[[Tensor], Any] | None = None) -> tuple[Results, set[str]]:
    """Outputs and gradients of one step, and the nodes of the outputs."""
    x = x.detach().clone().requires_grad_()
    outs = outputs((call or model)(x))
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(out.shape, generator=generator) for out in outs]
    torch.stack([(out.double() * w).sum() for out, w in zip(outs, weights, strict=True)]).sum().backward()
    assert x.grad is not None
    results = {"dX": x.grad} | {f"Y{index}": out.detach() for index, out in enumerate(outs)}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            results[name] = parameter.grad
            parameter.grad = None
    return results, {type(out.grad_fn).__name__ for out in outs}


def assert_close(got: Results, want: Results, tolerance: float) -> None:
    assert got.keys() == want.keys()
    for name, exact in want.items():
        assert (got[name].dtype, got[name].shape) == (exact.dtype, exact.shape), name
        error = (got[name].double() - exact.double()).abs().max()
        assert error <= tolerance * exact.double().abs().max(), f"{name}: {error}"


def block(info: KernelInfo, model: nn.Module) -> nn.Module:
    return model.get_submodule(KINDS[info.kind].block)


def last_projection(info: KernelInfo, model: nn.Module) -> Any:
    owner = block(info, model)
    return owner if info.kind == "linear" else owner.get_submodule(info.projections[-1])


@every_kernel
@pytest.mark.parametrize("dtype, base", LAYOUTS)
@pytest.mark.parametrize("bias, shape", [(True, (2, 3)), (False, (6,)), (True, ())])
def test_kernel_runs_and_agrees_with_peft(
    info: KernelInfo, dtype: str, base: str, bias: bool, shape: tuple[int, ...]
) -> None:
    model, x = build(info, Sample(dtype=dtype, base=base, bias=bias, shape=shape))
    want, nodes = step(model, x)
    assert info.node not in nodes
    assert info.patch(model) == 1
    got, nodes = step(model, x)
    assert nodes == {info.node}
    assert_close(got, want, TOLERANCE[dtype])


@every_kernel
def test_gradients_are_those_of_the_forward(info: KernelInfo) -> None:
    for count in range(1, len(info.projections) + 1):
        for adapted in itertools.combinations(info.projections, count):
            model, x = build(info, Sample(dtype="float64", adapted=adapted, shape=(2,)))
            assert info.patch(model) == 1
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            assert torch.autograd.gradcheck(lambda x, *_, model=model: model(x), (x, *trained))


@every_kernel
@pytest.mark.parametrize("dtype, base", [("bf16", "dense"), ("mixed", "dense"), ("bf16", "nf4")])
def test_error_against_float64_is_at_most_twice_pefts(info: KernelInfo, dtype: str, base: str) -> None:
    for seed in range(12):
        model, x = build(info, Sample(seed=seed, dtype=dtype, base=base))
        exact, _ = step(to_float64_twin(model), x.double())
        peft, _ = step(model, x)
        info.patch(model)
        kernel, _ = step(model, x)
        for name, value in exact.items():
            limit = 2 * (peft[name].double() - value).abs().max() + 1e-8
            assert (kernel[name].double() - value).abs().max() <= limit, (seed, name)


@every_kernel
@pytest.mark.parametrize("dtype, base", [("fp32", "dense"), ("float64", "dense"), ("mixed", "nf4"), ("fp32", "nf4")])
def test_autocast_gives_pefts_dtypes_wherever_backward_is_called(info: KernelInfo, dtype: str, base: str) -> None:
    model, x = build(info, Sample(dtype=dtype, base=base))

    def autocast_forward(x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    want, _ = step(model, x, autocast_forward)
    info.patch(model)
    got, nodes = step(model, x, autocast_forward)
    assert nodes == {info.node}
    assert_close(got, want, 0.03)
    plain, _ = step(model, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside, _ = step(model, x, torch.autocast("cpu", enabled=False)(model.forward))
    assert_close(inside, plain, 0.0)


@every_kernel
@pytest.mark.parametrize("reentrant", [True, False])
def test_kernel_runs_under_checkpointing(info: KernelInfo, reentrant: bool) -> None:
    model, x = build(info, Sample(dtype="mixed", base="nf4-nested"))
    info.patch(model)
    want, _ = step(model, x)
    got, _ = step(model, x, lambda x: checkpoint(model, x, use_reentrant=reentrant))
    assert_close(got, want, 0.0)


@every_kernel
@pytest.mark.parametrize("base", ["dense", "nf4", "nf4-nested"])
def test_weights_streamed_in_for_the_call_are_the_ones_used(info: KernelInfo, base: str) -> None:
    model, x = build(info, Sample(base=base))
    want, _ = step(model, x)
    info.patch(model)
    frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    # plain tensors, as a pool of buffers holds them: a packed one carries no quant state
    streamed = {name: p.detach().clone().as_subclass(Tensor) for name, p in frozen.items()}
    assert not any(hasattr(tensor, "quant_state") for tensor in streamed.values())
    for parameter in frozen.values():
        parameter.data.zero_()
    got, nodes = step(model, x, lambda x: functional_call(model, streamed, (x,)))
    assert nodes == {info.node}
    assert_close(got, want, 1e-5)


@every_kernel
def test_copies_and_pickles_compute_with_their_own_weights(info: KernelInfo) -> None:
    model, x = build(info, Sample(base="nf4"))
    info.patch(model)
    if info.kind == "qkv":
        model.attn.q_proj(x)  # leaves K and V waiting; they belong to the original's calls
    twin = copy.deepcopy(model)
    with torch.no_grad():
        last_projection(info, twin).lora_B["default"].weight.mul_(3)
    got, nodes = step(twin, x)
    assert nodes == {info.node}
    assert info.unpatch(twin) == 1
    want, _ = step(twin, x)
    assert_close(got, want, 1e-5)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded, _ = step(torch.load(file, weights_only=False), x)
    assert_close(loaded, step(model, x)[0], 0.0)


def disable(proj: Any) -> None:
    proj.enable_adapters(False)


def two_active(proj: Any) -> None:
    config = LoraConfig(r=2, target_modules=["lora_only"])
    proj.update_layer("second", 2, lora_alpha=4, config=config)
    proj.set_adapter(["default", "second"])


STATES = {
    "adapters disabled": disable,
    "adapters merged": lambda proj: proj.merge(),
    "2 active adapters": two_active,
    "fan_in_fan_out=True": lambda proj: setattr(proj, "fan_in_fan_out", True),
    "lora_variant=object": lambda proj: proj.lora_variant.update(default=object()),
    "lora_bias=True": lambda proj: setattr(proj.lora_B["default"], "bias", nn.Parameter(torch.ones(proj.out_features))),
    "lora_dropout=0.1": lambda proj: proj.lora_dropout.update({"default": nn.Dropout(0.1)}),
    "unsupported dropout torch.ReLU": lambda proj: proj.lora_dropout.update({"default": nn.ReLU()}),
    "trainable base parameter": lambda proj: proj.base_layer.bias.requires_grad_(True),
}


@every_kernel
@pytest.mark.parametrize("reason", STATES)
def test_states_that_peft_must_run_are_handed_back_with_a_reason(info: KernelInfo, reason: str) -> None:
    model, x = build(info, Sample())
    assert info.patch(model) == 1
    path = KINDS[info.kind].block
    model(x)
    assert delegation_reasons(model)[path] == "kernel"
    STATES[reason](last_projection(info, model))
    assert delegation_reasons(model)[path] == f"PEFT: {reason}"
    if reason.startswith("lora_variant"):
        return
    assert info.node not in {type(out.grad_fn).__name__ for out in outputs(model(x))}


@every_kernel
def test_reasons_that_only_a_call_shows(info: KernelInfo) -> None:
    path = KINDS[info.kind].block
    model, x = build(info, Sample(dtype="bf16"))
    info.patch(model)
    with pytest.raises(RuntimeError, match="dtype"):
        model(x.float())
    assert delegation_reasons(model)[path] == "PEFT: input is torch.float32, weight is torch.bfloat16"
    model(x)
    assert delegation_reasons(model)[path] == "kernel"
    if info.kind == "swiglu-mlp":
        with pytest.raises(TypeError):
            model.mlp(x, 1)
    else:
        first = model.proj if info.kind == "linear" else model.attn.q_proj
        assert type(first(x, adapter_names=None).grad_fn).__name__ != info.node
    assert delegation_reasons(model)[path] == "PEFT: extra call arguments"


@pytest.mark.parametrize("info", [BY_NAME["qkv"], BY_NAME["swiglu"]], ids=lambda info: info.name)
def test_siblings_that_compute_in_different_dtypes_are_handed_back(info: KernelInfo) -> None:
    model, x = build(info, Sample(dtype="bf16", base="nf4"))
    last_projection(info, model).base_layer.compute_dtype = torch.float32
    want, _ = step(model, x)
    assert info.patch(model) == 1
    reason = "PEFT: siblings with different compute dtypes: bfloat16, float32"
    assert delegation_reasons(model)[KINDS[info.kind].block] == reason
    got, nodes = step(model, x)
    assert info.node not in nodes
    assert_close(got, want, 0.0)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_compute_dtype_that_nobody_chose_is_settled_as_bitsandbytes_does(info: KernelInfo, dtype: torch.dtype) -> None:
    chosen = []
    for patch in (lambda model: 0, info.patch):
        model, x = build(info, Sample(dtype="mixed", base="nf4"))
        base = last_projection(info, model).base_layer
        for module in model.modules():
            if hasattr(module, "compute_type_is_set"):
                module.compute_dtype, module.compute_type_is_set = None, False
        patch(model)
        model(x.detach().to(dtype))
        chosen.append((base.compute_dtype, base.compute_type_is_set))
    assert chosen[0] == chosen[1]


def int8_sibling(model: nn.Module) -> None:
    up = Linear8bitLt(20, 28, bias=False, has_fp16_weights=False)
    model.mlp.up_proj = up.requires_grad_(False).to("cpu")


def integer_weight(model: nn.Module) -> None:
    weight = nn.Parameter(torch.ones(28, 20, dtype=torch.int8), requires_grad=False)
    model.mlp.up_proj.weight = weight


def gelu_in_the_config(model: nn.Module) -> None:
    model.config.hidden_act = "gelu"


def no_act_in_the_config(model: nn.Module) -> None:
    vars(model.config)["hidden_activation"] = vars(model.config).pop("hidden_act")


REFUSED = {
    "unsupported layer bitsandbytes.Linear8bitLt": int8_sibling,
    "torch.int8 weight without a 4-bit state": integer_weight,
    "act_fn is GELU": lambda model: setattr(model.mlp, "act_fn", nn.GELU()),
    "no act_fn": lambda model: delattr(model.mlp, "act_fn"),
    "hidden_act=gelu": gelu_in_the_config,
    "no hidden_act in the config": no_act_in_the_config,
    "other layers in the block: norm": lambda model: setattr(model.mlp, "norm", nn.LayerNorm(28)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_blocks_that_are_no_plain_swiglu_are_not_patched(reason: str) -> None:
    model, _ = build("swiglu-mlp", Sample(adapted=("gate_proj", "down_proj")))
    REFUSED[reason](model)
    assert patch_swiglu(model) == 0
    assert delegation_reasons(model)["mlp"] == f"PEFT: {reason}"
    assert patch_linear(model) == 2


def test_moe_experts_and_unequal_input_widths_are_not_patched() -> None:
    model, _ = build("swiglu-mlp", Sample())
    mixture = nn.ModuleDict({"experts": nn.ModuleList([model.mlp])})
    vars(mixture)["config"] = model.config
    assert patch_swiglu(mixture) == 0
    assert delegation_reasons(mixture)["experts.0"] == "PEFT: MoE expert"
    model, _ = build("qkv", Sample())
    model.attn.v_proj = nn.Linear(16, 8).requires_grad_(False)
    assert patch_qkv(model) == 0
    assert delegation_reasons(model)["attn"] == "PEFT: unequal input widths"


class Layer(nn.Module):
    """An attention's projections, an output projection and an MLP: all three kernels have work."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = build("qkv", Sample()).model.attn
        self.mlp = build("swiglu-mlp", Sample()).model.mlp
        self.proj = build("linear", Sample()).model.proj
        self.config = build("linear", Sample()).model.config


def test_patches_and_unpatches_in_any_order_leave_no_residue() -> None:
    patches = {"linear": patch_linear, "qkv": patch_qkv, "swiglu": patch_swiglu}
    owners = dict.fromkeys(("attn.q_proj", "attn.k_proj", "attn.v_proj"), "qkv") | {
        "mlp": "swiglu",
        "proj": "linear",
    }
    layer = Layer()
    before = {path: set(vars(module)) for path, module in layer.named_modules()}
    for order, back in itertools.product(itertools.permutations(patches), repeat=2):
        for name in order:
            assert patches[name](layer) >= 1
        assert [patch(layer) for patch in patches.values()] == [0, 0, 0]
        owned = {path: patch_of(module) for path, module in layer.named_modules()}
        assert {path: patch.kernel for path, patch in owned.items() if patch} == owners
        assert [BY_NAME[name].unpatch(layer) for name in back] == [1, 1, 1]
        assert {path: set(vars(module)) for path, module in layer.named_modules()} == before


def test_forward_that_somebody_installed_is_handed_back_to_and_restored() -> None:
    model, x = build("linear", Sample())
    calls = []

    def installed(x: Tensor, own: Any = model.proj.forward) -> Any:
        calls.append(x)
        return own(x)

    vars(model.proj)["forward"] = installed
    assert patch_linear(model) == 1
    model(x)
    assert not calls
    disable(model.proj)
    model(x)
    assert len(calls) == 1
    assert unpatch_linear(model) == 1
    assert vars(model.proj)["forward"] is installed


def test_k_and_v_are_handed_over_once_for_the_identical_unchanged_input() -> None:
    model, x = build("qkv", Sample())
    patch_qkv(model)
    attn, node = model.attn, BY_NAME["qkv"].node
    patch = patch_of(attn.q_proj)
    assert patch is not None
    pending = patch.shared.pending

    def runs(proj: nn.Module, x: Tensor) -> bool:
        return type(proj(x).grad_fn).__name__ == node

    assert runs(attn.q_proj, x) and runs(attn.k_proj, x) and runs(attn.v_proj, x)
    assert not pending and not runs(attn.k_proj, x)  # once
    other = torch.randn_like(x)
    assert runs(attn.q_proj, x) and not runs(attn.k_proj, other) and not runs(attn.v_proj, other)
    assert not pending  # cross-attention releases them too
    changed = x.detach().clone()
    attn.q_proj(changed)
    changed.mul_(2)
    assert torch.equal(attn.k_proj(changed), attn.k_proj(changed.clone()))
    with torch.no_grad():
        attn.q_proj(x)
    assert attn.k_proj(x).requires_grad  # a K without a graph would train nothing
    attn.q_proj(x)
    disable(attn.k_proj)
    assert not runs(attn.k_proj, x)
    assert unpatch_qkv(model) == 1


@pytest.mark.parametrize("used", [(1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1)])
def test_outputs_without_a_gradient_give_none_as_in_peft(used: tuple[int, int, int]) -> None:
    grads = []
    for patch in (lambda model: 0, patch_qkv):
        model, x = build("qkv", Sample(dtype="float64"))
        patch(model)
        losses = [out.square().sum() for out, use in zip(model(x), used, strict=True) if use]
        torch.stack(losses).sum().backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad} | {"x": x.grad})
    want, got = grads
    for name, grad in want.items():
        assert (grad is None) == (got[name] is None), name
        assert grad is None or torch.allclose(got[name], grad)


@pytest.mark.parametrize("train", [True, False])
def test_dropout_is_modelled_on_request_with_pefts_own_mask(train: bool) -> None:
    model, x = build("linear", Sample(dropout=0.25))
    model.train(train)
    torch.manual_seed(3)
    want, _ = step(model, x)
    assert patch_linear(model, allow_dropout=True) == 1
    torch.manual_seed(3)
    got, nodes = step(model, x)
    assert nodes == {BY_NAME["linear"].node}
    assert_close(got, want, 1e-5)
    model.proj.lora_dropout["default"].p = 1.0
    assert delegation_reasons(model) == {"proj": "PEFT: lora_dropout=1.0"}


def test_saved_bytes_are_the_predicted_ones() -> None:
    N, h, f, r = 1024, 1024, 4096, 16
    sample = Sample(dtype="bf16", device="meta", widths=(h, f), shape=(N,), ranks=(r, r, r), bias=False)
    model, x = build("swiglu-mlp", sample)
    patch_swiglu(model)
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(x)
    weights, adapters, activations = 3 * h * f, 3 * r * (h + f), N * h + 2 * N * f + 2 * N * r
    assert sum(t.untyped_storage().nbytes() for t in saved.values()) == 2 * (weights + adapters + activations)


@every_kernel
def test_gradient_of_an_input_that_needs_none_is_not_computed(info: KernelInfo) -> None:
    def flops(needs_x: bool) -> int:
        model, x = build(info, Sample())
        info.patch(model)
        out = torch.cat(outputs(model(x.detach().requires_grad_(needs_x))), dim=-1)
        with FlopCounterMode(display=False) as counter:
            out.sum().backward()
        return counter.get_total_flops()

    rows, widths, ranks = 6, KINDS[info.kind].widths, KINDS[info.kind].ranks
    outs = (widths[1], widths[1]) if info.kind == "swiglu-mlp" else widths[1:]
    shared = ranks[: len(outs)]
    assert flops(True) - flops(False) == 2 * rows * widths[0] * (sum(outs) + sum(shared))
