"""Q, K and V of one x: how K and V get from the call of q_proj to those of k_proj and v_proj, and when they don't."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastlora_verify.kernels.qkv import patch_qkv, unpatch_qkv
from fastlora_verify.kernels.reasons import delegation_reasons
from fastlora_verify.kernels.samples import Attention, AttentionModel, Sample, build

Nodes = Callable[[object], list[str]]
NODE = "FusedLoraQKVBackward"
LATER = pytest.mark.parametrize("name", ["k_proj", "v_proj"])


def patched(**fields: Any) -> tuple[Any, Any, Tensor]:
    """A patched attention, its unpatched twin, and an input."""
    model, x = build("qkv", Sample(**fields))
    twin, _ = build("qkv", Sample(**fields))
    assert patch_qkv(model) == 1
    return model.get_submodule("attn"), twin.get_submodule("attn"), x


def is_pefts(layer: Any, twin: Any, x: Tensor, nodes: Nodes, **extra: Any) -> Tensor:
    """A call that PEFT runs: it gives the twin's output, equal to the bit, and not the kernel's; it doesn't raise."""
    want = twin(x, **extra)
    try:
        out = layer(x, **extra)
    except Exception as error:
        out = repr(error)
    assert isinstance(out, Tensor), out
    assert nodes(out) != [NODE]
    torch.testing.assert_close(out, want, rtol=0, atol=0)
    return out


@LATER
def test_another_input_gets_its_own_projection(name: str, nodes: Nodes) -> None:
    """Cross-attention: k and v read another tensor, here one of equal shape."""
    attn, twin, x = patched()
    other = torch.randn_like(x).requires_grad_()
    attn.q_proj(x)
    is_pefts(getattr(attn, name), getattr(twin, name), other, nodes)
    assert delegation_reasons(attn)[name].startswith("PEFT: not the input")


@LATER
def test_an_equal_input_that_is_another_object_is_another_input(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    attn.q_proj(x)
    same = x.detach().clone().requires_grad_()
    out = is_pefts(getattr(attn, name), getattr(twin, name), same, nodes)
    out.sum().backward()
    assert same.grad is not None and x.grad is None


@LATER
def test_an_input_changed_in_place_gets_the_projection_of_what_it_is_now(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    x = x.detach().clone()
    attn.q_proj(x)
    x.add_(1)
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


@LATER
def test_a_second_call_is_computed_anew(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    attn.q_proj(x)
    first = getattr(attn, name)(x)
    assert nodes(first) == [NODE]
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


@LATER
def test_a_call_before_q_is_pefts(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


@LATER
def test_a_call_with_another_input_uses_up_what_was_waiting(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    attn.q_proj(x)
    getattr(attn, name)(torch.randn_like(x))
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


def test_q_on_another_input_replaces_what_was_waiting(nodes: Nodes) -> None:
    attn, twin, x = patched()
    other = torch.randn_like(x).requires_grad_()
    attn.q_proj(x)
    attn.q_proj(other)
    out = attn.k_proj(other)
    assert nodes(out) == [NODE]
    torch.testing.assert_close(out, twin.k_proj(other))
    is_pefts(attn.v_proj, twin.v_proj, x, nodes)


@LATER
def test_a_q_call_that_peft_ran_leaves_nothing_of_an_earlier_one(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    attn.q_proj(x)
    for module in (attn, twin):
        module.q_proj.enable_adapters(False)
    attn.q_proj(x)
    attn.q_proj.enable_adapters(True)
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


@LATER
@pytest.mark.parametrize("extra", [{"adapter_names": ["default", "__base__"]}], ids=["adapter-names"])
def test_a_call_with_extra_arguments_is_pefts_and_uses_up_what_was_waiting(
    name: str, extra: dict[str, Any], nodes: Nodes
) -> None:
    attn, twin, x = patched()
    for module in (attn, twin):
        module.eval()
    attn.q_proj(x)
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes, **extra)
    assert delegation_reasons(attn)[name] == "PEFT: extra call arguments"
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


def test_a_q_call_with_extra_arguments_is_pefts(nodes: Nodes) -> None:
    attn, twin, x = patched()
    for module in (attn, twin):
        module.eval()
    names = ["default", "__base__"]
    is_pefts(attn.q_proj, twin.q_proj, x, nodes, adapter_names=names)
    assert delegation_reasons(attn)["q_proj"] == "PEFT: extra call arguments"
    is_pefts(attn.k_proj, twin.k_proj, x, nodes)


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_an_argument_that_peft_refuses_is_refused(name: str) -> None:
    attn, _, x = patched()
    if name != "q_proj":
        attn.q_proj(x)
    refused = False
    try:
        getattr(attn, name)(x, None)
    except TypeError:
        refused = True
    assert refused


def exchange_weight(layer: Any) -> None:
    weight = nn.Parameter(2 * layer.base_layer.weight, requires_grad=False)
    while weight._version < layer.base_layer.weight._version:
        weight.mul_(1)  # as often changed in place as the other: only which tensor it is differs
    layer.base_layer.weight = weight


def change_adapter(layer: Any) -> None:
    with torch.no_grad():
        layer.lora_A["default"].weight.mul_(2)


def change_lora_b(layer: Any) -> None:
    with torch.no_grad():
        layer.lora_B["default"].weight.mul_(2)


def change_bias(layer: Any) -> None:
    with torch.no_grad():
        layer.base_layer.bias.mul_(2)


def change_scaling(layer: Any) -> None:
    layer.scaling["default"] = 11.0


@LATER
@pytest.mark.parametrize("change", [exchange_weight, change_adapter, change_lora_b, change_bias, change_scaling])
def test_a_layer_changed_after_q_was_called_computes_with_what_it_is_now(
    name: str, change: Callable[[Any], None], nodes: Nodes
) -> None:
    attn, twin, x = patched()
    attn.q_proj(x)
    for module in (attn, twin):
        change(getattr(module, name))
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


@LATER
def test_adapters_disabled_after_q_was_called_are_disabled(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    attn.q_proj(x)
    for module in (attn, twin):
        getattr(module, name).enable_adapters(False)
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)
    for module in (attn, twin):
        getattr(module, name).enable_adapters(True)
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


@LATER
@pytest.mark.parametrize("first", [torch.no_grad, nullcontext], ids=["q-without-grad", "q-with-grad"])
def test_what_was_computed_in_the_other_grad_mode_is_not_handed_over(
    name: str, first: Callable[[], Any], nodes: Nodes
) -> None:
    attn, twin, x = patched()
    second = nullcontext if first is torch.no_grad else torch.no_grad
    with first():
        attn.q_proj(x)
    with second():
        out = is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)
    assert out.requires_grad == (second is nullcontext)


@LATER
def test_what_was_computed_under_autocast_is_not_handed_over_outside(name: str, nodes: Nodes) -> None:
    attn, twin, x = patched()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        attn.q_proj(x)
    is_pefts(getattr(attn, name), getattr(twin, name), x, nodes)


def test_handed_over_or_not_gradients_are_pefts() -> None:
    """x reaches the loss once through the kernel and once through PEFT."""
    attn, twin, x = patched(dtype="float64")
    attn.q_proj(x)
    for module in (attn, twin):
        leaf = x.detach().clone().requires_grad_()
        outputs = [module.q_proj(leaf), module.k_proj(leaf), module.k_proj(leaf), module.v_proj(leaf)]
        sum((out * (i + 1)).square().sum() for i, out in enumerate(outputs)).backward()
        module.x_grad = leaf.grad
    torch.testing.assert_close(attn.x_grad, twin.x_grad)
    for (name, got), (_, want) in zip(attn.named_parameters(), twin.named_parameters(), strict=True):
        if want.grad is not None:
            torch.testing.assert_close(got.grad, want.grad, msg=name)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2), ()], ids=str)
def test_outputs_that_the_loss_does_not_use_get_no_gradient(used: tuple[int, ...]) -> None:
    """As in PEFT: not a gradient of zeros, which an optimiser would take for one."""
    grads = []
    for patch in (False, True):
        model, x = build("qkv", Sample(dtype="float64"))
        if patch:
            patch_qkv(model)
        out = model(x)
        loss = sum((out[i].square().sum() for i in used), (x * 0).sum())
        loss.backward()
        grads.append({name: p.grad for name, p in model.named_parameters()} | {"x": x.grad})
    want, got = grads
    assert [name for name in got if got[name] is None] == [name for name in want if want[name] is None]
    for name in want:
        if want[name] is not None:
            torch.testing.assert_close(got[name], want[name])


def test_nothing_outlives_the_three_calls() -> None:
    attn, _, x = patched(bias=False, ranks=(3, 3, 3))
    x = x.detach().clone().requires_grad_()
    held = [weakref.ref(out.grad_fn) for out in (attn.q_proj(x), attn.k_proj(x), attn.v_proj(x))]
    held.append(weakref.ref(x))
    del x
    assert [ref() for ref in held] == [None] * 4


def test_an_input_is_not_kept_for_calls_that_do_not_come() -> None:
    """In evaluation without gradients nothing else holds x, and K and V hold nothing of it."""
    attn, _, x = patched()
    x = x.detach().clone()
    held = weakref.ref(x)
    with torch.no_grad():
        attn.q_proj(x)
    del x
    assert held() is None


def test_a_second_round_is_as_good_as_the_first(nodes: Nodes) -> None:
    attn, twin, x = patched()
    for _ in range(3):
        got, want = attn(x), twin(x)
        assert nodes(got) == [NODE] * 3
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_a_copy_made_between_the_calls_of_q_and_k_has_nothing_waiting(nodes: Nodes) -> None:
    """K belongs to a graph of the original's; what can't be copied must not keep the attention from being copied."""
    attn, twin, x = patched()
    attn.q_proj(x)
    raised, copied = "", attn
    try:
        copied = copy.deepcopy(attn)
    except RuntimeError as error:
        raised = str(error)
    assert not raised
    is_pefts(copied.k_proj, twin.k_proj, x, nodes)
    assert nodes(attn.k_proj(x)) == [NODE]


def test_two_attentions_in_turns_get_each_their_own(nodes: Nodes) -> None:
    first, first_twin, x = patched()
    second, second_twin, _ = patched(seed=1)
    outputs = [first.q_proj(x), second.q_proj(x), first.k_proj(x), second.k_proj(x)]
    wanted = [first_twin.q_proj(x), second_twin.q_proj(x), first_twin.k_proj(x), second_twin.k_proj(x)]
    assert nodes(tuple(outputs)) == [NODE] * 4
    for ours, theirs in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("order", [("v_proj", "k_proj"), ("k_proj", "v_proj")])
def test_k_and_v_come_in_either_order(order: tuple[str, str], nodes: Nodes) -> None:
    attn, twin, x = patched()
    attn.q_proj(x)
    for name in order:
        out = getattr(attn, name)(x)
        assert nodes(out) == [NODE]
        torch.testing.assert_close(out, getattr(twin, name)(x))


def test_an_inference_tensor_is_left_to_peft() -> None:
    """It counts no changes in place (asking for their number raises): a stale K could not be told from a fresh one."""
    attn, twin, x = patched()
    raised = ""
    with torch.inference_mode():
        x = x.detach().clone()
        try:
            attn.q_proj(x)
        except RuntimeError as error:
            raised = str(error)
        assert not raised
        assert delegation_reasons(attn)["q_proj"] == "PEFT: inference tensor as input"
        x.add_(1)
        torch.testing.assert_close(attn.k_proj(x), twin.k_proj(x), rtol=0, atol=0)


@pytest.mark.parametrize("odd", range(3))
def test_projections_of_unequal_input_widths_are_left_to_peft(odd: int, nodes: Nodes) -> None:
    """Cross-attention on an encoder of another width."""
    built = [build("qkv", Sample(widths=widths)).model.attn for widths in ((20, 24, 12, 8), (10, 24, 12, 8))]
    names = ("q_proj", "k_proj", "v_proj")
    layers = [getattr(built[i == odd], name) for i, name in enumerate(names)]
    model = AttentionModel(Attention(*layers))
    inputs = [torch.randn(4, 10 if i == odd else 20) for i in range(3)]
    want = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    assert patch_qkv(model) == 0
    assert delegation_reasons(model)["attn"] == "PEFT: unequal input widths"
    for layer, x, expected in zip(layers, inputs, want, strict=True):
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=0)


def counted(model: nn.Module) -> int | str:
    """How many blocks the patcher takes, or what it raises: it must not trip over modules that are none of its own."""
    try:
        return patch_qkv(model)
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("missing", ["q_proj", "k_proj", "v_proj"])
def test_a_module_with_two_of_the_three_children_is_no_attention(missing: str) -> None:
    model, _ = build("qkv", Sample())
    delattr(model.get_submodule("attn"), missing)
    assert counted(model) == 0
    assert unpatch_qkv(model) == 0
    assert "attn" not in delegation_reasons(model)
