"""Patching and unpatching: counts, ownership, what is left behind, and what a patched model still is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import permutations
from operator import attrgetter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.reasons import delegation_reasons
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.instruments import assert_parity, outputs_of

Nodes = Callable[[object], list[str]]
Step = Callable[..., dict[str, Tensor]]

BY_NAME = {kernel.name: kernel for kernel in KERNELS}
LINEAR = BY_NAME["linear"]
GROUPS = [kernel for kernel in KERNELS if len(kernel.projections) > 1]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
each_group = pytest.mark.parametrize("group", GROUPS, ids=attrgetter("name"))


class Layer(nn.Module):
    """A block of each kind: an attention with an output projection and an MLP, all on one width."""

    def __init__(self, seed: int = 0, **fields: Any) -> None:
        super().__init__()
        self.attn = build("qkv", Sample(seed=seed, **fields)).model
        self.proj = build("linear", Sample(seed=seed, **fields)).model
        self.mlp = build("swiglu-mlp", Sample(seed=seed, **fields)).model

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (*self.attn(x), self.proj(x), self.mlp(x))


NODES = ["FusedLoraQKVBackward"] * 3 + ["FusedLoraLinearBackward", "FusedLoraSwiGLUBackward"]


def everything(model: nn.Module) -> dict[str, tuple[type, dict[str, Any]]]:
    """Class and instance attributes of every module, hooks and buffers included."""
    return {name: (type(module), dict(vars(module))) for name, module in model.named_modules()}


def x_of(width: int = 20) -> Tensor:
    """An input."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, width, generator=generator).requires_grad_()


def close(got: object, want: object) -> None:
    """Outputs equal up to rounding."""
    for ours, theirs in zip(outputs_of(got), outputs_of(want), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def take_weights(model: nn.Module, other: nn.Module) -> None:
    """Gives a model the parameters (and quant states) of another, the very objects."""
    for module, source in zip(model.modules(), other.modules(), strict=True):
        if isinstance(module, nn.Linear):
            module.weight, module.bias = source.weight, source.bias
            if hasattr(module, "quant_state"):
                module.quant_state = source.quant_state


def equal(got: object, want: object) -> bool:
    """Outputs equal to the bit."""
    return all(map(torch.equal, outputs_of(got), outputs_of(want)))


@each_kernel
def test_patchers_count_and_the_second_time_there_is_nothing_to_do(kernel: KernelInfo, nodes: Nodes) -> None:
    blocks = nn.ModuleList(build(kernel, Sample(seed=seed)).model for seed in range(3))
    before = everything(blocks)
    assert kernel.patch(blocks) == 3
    patched = everything(blocks)
    assert patched != before
    assert kernel.patch(blocks) == 0
    assert everything(blocks) == patched
    assert kernel.unpatch(blocks) == 3
    assert everything(blocks) == before
    assert kernel.unpatch(blocks) == 0
    assert kernel.node not in nodes(blocks[0](x_of()))


@each_kernel
def test_a_model_patched_in_part_is_patched_in_the_rest(kernel: KernelInfo) -> None:
    blocks = nn.ModuleList(build(kernel, Sample(seed=seed)).model for seed in range(3))
    assert kernel.patch(blocks[1]) == 1
    assert kernel.patch(blocks) == 2
    assert kernel.unpatch(blocks[0]) == 1
    assert kernel.unpatch(blocks) == 2


@each_kernel
def test_unpatching_gives_back_pefts_forward_to_the_bit(kernel: KernelInfo, step: Step) -> None:
    model, x = build(kernel, Sample())
    want = step(model, x)
    kernel.patch(model)
    step(model, x)
    kernel.unpatch(model)
    assert_parity(step(model, x), want, rtol=0, atol=0)


@each_kernel
def test_patching_changes_no_parameter_no_state_dict_and_no_other_model(kernel: KernelInfo, nodes: Nodes) -> None:
    model, x = build(kernel, Sample())
    other, _ = build(kernel, Sample())
    parameters = {name: (id(p), p.requires_grad) for name, p in model.named_parameters()}
    keys = list(model.state_dict())
    kernel.patch(model)
    assert {name: (id(p), p.requires_grad) for name, p in model.named_parameters()} == parameters
    assert list(model.state_dict()) == keys
    assert kernel.node not in nodes(other(x))


ORDERS = list(permutations(["linear", "qkv", "swiglu"]))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_groups_own_their_projections_whatever_the_order_of_patching(order: tuple[str, ...], nodes: Nodes) -> None:
    layer = Layer()
    want = layer(x_of())
    for name in order:
        BY_NAME[name].patch(layer)
    got = layer(x_of())
    assert nodes(got) == NODES
    close(got, want)
    assert set(delegation_reasons(layer).values()) == {"kernel"}
    mlp = layer.mlp.get_submodule("mlp")
    for name in ("gate_proj", "up_proj"):
        assert nodes(getattr(mlp, name)(x_of())) != ["FusedLoraLinearBackward"]
    for name in order:
        assert BY_NAME[name].patch(layer) == 0


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_the_single_kernel_counts_only_what_no_group_owns(order: tuple[str, ...]) -> None:
    layer = Layer()
    counts = {name: BY_NAME[name].patch(layer) for name in order}
    groups_before = order.index("linear")
    assert counts == {"qkv": 1, "swiglu": 1, "linear": 1 + 3 * (2 - groups_before)}


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_unpatching_in_any_order_leaves_nothing_behind(order: tuple[str, ...], nodes: Nodes) -> None:
    """Whether the single kernel was patched first, and gave projections away, or last."""
    layer = Layer()
    want, before = layer(x_of()), everything(layer)
    for patching in (ORDERS[0], ORDERS[-1]):
        for name in patching:
            BY_NAME[name].patch(layer)
        layer(x_of())
        assert [BY_NAME[name].unpatch(layer) for name in order] == [1, 1, 1]
        assert everything(layer) == before
        got = layer(x_of())
        assert not any("Fused" in node for node in nodes(got))
        assert equal(got, want)


@each_group
def test_unpatching_one_kernel_leaves_the_others(group: KernelInfo, nodes: Nodes) -> None:
    layer = Layer()
    for kernel in KERNELS:
        kernel.patch(layer)
    assert group.unpatch(layer) == 1
    assert [node for node in nodes(layer(x_of())) if "Fused" in node] == [n for n in NODES if n != group.node]
    assert LINEAR.patch(layer) == 3
    assert LINEAR.unpatch(layer) == 4


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4"])
def test_a_deep_copy_computes_with_its_own_weights(kernel: KernelInfo, base: str, nodes: Nodes, step: Step) -> None:
    model, x = build(kernel, Sample(base=base))
    other, _ = build(kernel, Sample(base=base, seed=1))
    want, want_of_other = step(model, x), step(other, x)
    kernel.patch(model)
    model(x)
    twin = copy.deepcopy(model)
    take_weights(twin, other)
    assert set(nodes(twin(x))) == {kernel.node}
    assert_parity(step(twin, x), want_of_other, rtol=1e-5, atol=0)
    assert_parity(step(model, x), want, rtol=1e-5, atol=0)
    assert kernel.unpatch(twin) == 1
    assert kernel.node not in nodes(twin(x))
    assert set(nodes(model(x))) == {kernel.node}


@each_kernel
def test_a_forward_that_somebody_had_installed_runs_and_comes_back(kernel: KernelInfo, nodes: Nodes) -> None:
    """A wrapper of the class's forward: what the kernel hands back goes to it, and unpatching restores it."""
    model, x = build(kernel, Sample(bias=False, ranks=(3,) * len(kernel.projections)))
    module: Any = model.get_submodule({"linear": "proj", "qkv": "attn.q_proj", "swiglu-mlp": "mlp"}[kernel.kind])
    calls: list[Tensor] = []
    inner = module.forward

    def installed(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        calls.append(x)
        return inner(x, *args, **kwargs)

    module.forward = installed
    want, before = model(x), everything(model)
    assert kernel.patch(model) == 1
    out = model(x)
    assert set(nodes(out)) == {kernel.node}
    assert len(calls) == 1
    for layer in model.modules():
        if hasattr(layer, "enable_adapters"):
            layer.enable_adapters(False)
    model(x)
    assert len(calls) == 2
    for layer in model.modules():
        if hasattr(layer, "enable_adapters"):
            layer.enable_adapters(True)
    assert kernel.unpatch(model) == 1
    assert everything(model) == before
    assert equal(model(x), want) and len(calls) == 3


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4"])
def test_weights_exchanged_after_patching_are_read_in_the_call(
    kernel: KernelInfo, base: str, nodes: Nodes, step: Step
) -> None:
    """By assignment of a new parameter, of its data, and of adapter and scaling."""
    model, x = build(kernel, Sample(base=base))
    other, _ = build(kernel, Sample(base=base, seed=1))
    kernel.patch(model)
    model(x)
    take_weights(model, other)
    for module in (*model.modules(), *other.modules()):
        if hasattr(module, "scaling"):
            module.scaling["default"] = 1.25
    want = step(other, x)
    assert set(nodes(model(x))) == {kernel.node}
    assert_parity(step(model, x), want, rtol=1e-5, atol=0)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.flip(0)
    want = step(other, x)
    assert_parity(step(model, x), want, rtol=1e-5, atol=0)


@each_kernel
def test_an_adapter_chosen_after_patching_is_the_one_computed(kernel: KernelInfo, nodes: Nodes) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    model, x = build(kernel, Sample())
    twin, _ = build(kernel, Sample())
    kernel.patch(model)
    for one in (twin, model):
        torch.manual_seed(4)
        inject_adapter_in_model(
            LoraConfig(r=2, lora_alpha=5, target_modules=list(kernel.projections)), one, adapter_name="b"
        )
        for name, parameter in one.named_parameters():
            if "lora_B.b" in name:
                nn.init.normal_(parameter)
        for layer in one.modules():
            if hasattr(layer, "set_adapter"):
                layer.set_adapter("b")
    assert set(nodes(model(x))) == {kernel.node}
    close(model(x), twin(x))


@each_kernel
def test_hooks_on_a_patched_module_fire(kernel: KernelInfo) -> None:
    model, x = build(kernel, Sample())
    module = model.get_submodule({"linear": "proj", "qkv": "attn.k_proj", "swiglu-mlp": "mlp"}[kernel.kind])
    fired: list[str] = []
    module.register_forward_pre_hook(lambda *_: fired.append("before"))
    module.register_forward_hook(lambda *_: fired.append("after"))
    kernel.patch(model)
    model(x)
    assert fired == ["before", "after"]
