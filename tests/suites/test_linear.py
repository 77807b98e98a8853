"""The single projection: dropout on explicit opt-in, and what its calls hand back.

With the opt-in the kernel keeps the mask of what dropout kept, one byte an element. Given that mask, everything it
computes has a float64 reference: PEFT's layer with the same mask in place of its dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from fastlora_verify.kernels.linear import patch_linear, unpatch_linear
from fastlora_verify.kernels.qkv import patch_qkv
from fastlora_verify.kernels.reasons import delegation_reasons
from fastlora_verify.kernels.samples import Sample, build, to_float64_twin
from fastlora_verify.kernels.swiglu import patch_swiglu
from fastlora_verify.oracles.instruments import SavedBytes, assert_parity

Nodes = Callable[[object], list[str]]
Step = Callable[..., dict[str, Tensor]]
NODE = "FusedLoraLinearBackward"
P = 0.25


class SameMask(nn.Module):
    """Dropout that keeps what it is told to keep."""

    def __init__(self, keep: Tensor, p: float) -> None:
        super().__init__()
        self.keep = keep
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return x * self.keep.to(x.dtype) / (1 - self.p)


def with_mask(step: Step, model: nn.Module, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """One step of a patched layer and the mask that it kept: the one saved tensor of bytes that is as large as x."""
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.element_size() == 1 and tensor.numel() == x.numel():
            kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        results = step(model, x)
    assert len(kept) == 1
    return results, kept[0].view(x.shape)


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-13), ("fp32", 3e-6)])
def test_dropout_of_output_and_gradients_is_that_of_the_kept_mask(
    dtype: str, rtol: float, device: str, nodes: Nodes, step: Step
) -> None:
    model, x = build("linear", Sample(dtype=dtype, bias=False, dropout=P, device=device))
    twin = to_float64_twin(model)
    assert patch_linear(model, allow_dropout=True) == 1
    assert nodes(model(x)) == [NODE]
    got, keep = with_mask(step, model, x)
    assert 0 < keep.double().mean() < 1
    twin.get_submodule("proj").lora_dropout["default"] = SameMask(keep, P)
    want = step(twin, x.detach().double())
    assert_parity(got, want, rtol=rtol, atol=0, same_dtype=False)


def test_dropout_keeps_as_many_elements_as_it_says_and_other_ones_each_time(step: Step) -> None:
    model, x = build("linear", Sample(shape=(40, 5), bias=False, dropout=P))
    patch_linear(model, allow_dropout=True)
    masks = [with_mask(step, model, x)[1].double() for _ in range(2)]
    for mask in masks:
        assert abs(mask.mean() - (1 - P)) < 0.03  # 4000 draws: four standard deviations
    assert not torch.equal(*masks)


def test_the_mask_costs_one_byte_an_element_and_nothing_in_evaluation() -> None:
    model, x = build("linear", Sample(bias=False, dropout=P))
    patch_linear(model, allow_dropout=True)
    totals = []
    for training in (True, False):
        model.train(training)
        with SavedBytes() as saved:
            model(x)
        totals.append(saved.total)
    assert totals[0] - totals[1] == x.numel()


def test_in_evaluation_dropout_does_nothing(nodes: Nodes, step: Step) -> None:
    model, x = build("linear", Sample(dropout=P))
    model.eval()
    want = step(model, x)
    patch_linear(model, allow_dropout=True)
    assert nodes(model(x)) == [NODE]
    assert_parity(step(model, x), want, rtol=3e-6, atol=0)


def test_without_the_opt_in_dropout_is_pefts(nodes: Nodes) -> None:
    model, x = build("linear", Sample(dropout=P))
    torch.manual_seed(3)
    want = model(x)
    assert patch_linear(model) == 1
    assert delegation_reasons(model) == {"proj": f"PEFT: lora_dropout={P}"}
    torch.manual_seed(3)
    got = model(x)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert nodes(got) != [NODE]


@pytest.mark.parametrize("p, kernel", [(0.5, True), (1.0, False)])
def test_with_the_opt_in_only_dropout_of_everything_is_pefts(p: float, kernel: bool, nodes: Nodes) -> None:
    model, x = build("linear", Sample(dropout=p))
    assert patch_linear(model, allow_dropout=True) == 1
    assert delegation_reasons(model)["proj"] == ("kernel" if kernel else "PEFT: lora_dropout=1.0")
    assert (nodes(model(x)) == [NODE]) is kernel


def test_with_the_opt_in_a_dropout_of_another_kind_is_pefts(nodes: Nodes) -> None:
    model, x = build("linear", Sample(dropout=P))
    model.get_submodule("proj").lora_dropout["default"] = SameMask(torch.ones(1), P)
    want = model(x)
    patch_linear(model, allow_dropout=True)
    assert delegation_reasons(model)["proj"].startswith("PEFT: unsupported dropout")
    torch.testing.assert_close(model(x), want, rtol=0, atol=0)
    assert nodes(model(x)) != [NODE]


@pytest.mark.parametrize("kind, block, patch", [("qkv", "attn", patch_qkv), ("swiglu-mlp", "mlp", patch_swiglu)])
def test_the_opt_in_does_not_leak_to_group_kernels(kind: str, block: str, patch: Any, nodes: Nodes) -> None:
    """In either order of patching. Group kernels don't model dropout."""
    for patches in ((allowing, patch), (patch, allowing)):
        model, x = build(kind, Sample(dropout=P))
        for one in patches:
            one(model)
        assert delegation_reasons(model)[block] == f"PEFT: lora_dropout={P}"
        torch.manual_seed(3)
        got = model(x)
        assert not any("Fused" in node for node in nodes(got))
        patch_free, _ = build(kind, Sample(dropout=P))
        torch.manual_seed(3)
        for ours, theirs in zip(*map(as_tuple, (got, patch_free(x))), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def allowing(model: nn.Module) -> int:
    """The single kernel, with the opt-in."""
    return patch_linear(model, allow_dropout=True)


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    """A block's outputs."""
    return result if isinstance(result, tuple) else (result,)


def test_a_checkpointed_layer_draws_its_mask_again(step: Step) -> None:
    """The recomputed mask is the first one: gradients are those of one mask, with and without checkpointing."""
    model, x = build("linear", Sample(dropout=P))
    patch_linear(model, allow_dropout=True)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = model

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.block, x, use_reentrant=False)

    torch.manual_seed(9)
    want = step(model, x)
    torch.manual_seed(9)
    got = {name.replace("block.", ""): value for name, value in step(Checkpointed(), x).items()}
    assert_parity(got, want, rtol=0, atol=0)


def test_calls_for_other_adapters_are_pefts(nodes: Nodes) -> None:
    model, x = build("linear", Sample(shape=(2, 3)))
    model.eval()
    proj = model.get_submodule("proj")
    names = ["default", "__base__"]
    want = proj(x, adapter_names=names)
    assert not torch.allclose(want, proj(x))
    assert patch_linear(model) == 1
    got = proj(x, adapter_names=names)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert nodes(got) != [NODE]
    assert delegation_reasons(model)["proj"] == "PEFT: extra call arguments"
    plain = proj(x)
    assert nodes(plain) == [NODE]
    assert delegation_reasons(model)["proj"] == "kernel"


def test_an_argument_that_peft_refuses_is_refused() -> None:
    model, x = build("linear", Sample())
    patch_linear(model)
    refused = False
    try:
        model.get_submodule("proj")(x, None)
    except TypeError:
        refused = True
    assert refused
    assert unpatch_linear(model) == 1


def test_a_layer_of_another_make_is_not_patched() -> None:
    """It has a `lora_A` and a weight, but what it computes with them is its own affair."""

    class Lookalike(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 4)
            self.lora_A = nn.Linear(6, 2)

        forward = nn.Linear.forward

    model = nn.Sequential(Lookalike(), nn.Linear(4, 4))
    assert patch_linear(model) == 0
    assert delegation_reasons(model) == {}
