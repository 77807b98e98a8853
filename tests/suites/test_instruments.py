"""The instruments themselves: each accepts what is right, refuses what is wrong, counts what is known."""

import math

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from fastlora_verify.oracles import instruments
from fastlora_verify.oracles.instruments import (
    TWICE,
    SavedBytes,
    assert_lora_matters,
    assert_parity,
    assert_within_twice,
    error_ratio,
    error_ratios,
    largest_error,
    leaf_like,
    lora_terms,
    matmul_count,
    random_dy,
    relative_error,
    run_block,
)


def adapted(seed=0):
    """`x -> proj(x)`, 6 to 5, with a LoRA of rank 2 whose B is not zero."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5))
    inject_adapter_in_model(LoraConfig(r=2, lora_alpha=3, target_modules=["0"]), model)
    nn.init.normal_(model[0].lora_B["default"].weight)
    return model


class Keep(torch.autograd.Function):
    """Saves the tensors that it is given, for the counter to find."""

    @staticmethod
    def forward(ctx, x, *kept):
        ctx.save_for_backward(*kept)
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return (dy, *(None for _ in ctx.saved_tensors))


def saved(*kept, device="cpu"):
    x = torch.zeros(1, device=device, requires_grad=True)
    with SavedBytes() as counted:
        Keep.apply(x, *kept)
    return counted


# --- saved bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_distinct_tensors_add_up(device):
    one = torch.empty(3, 5, dtype=torch.bfloat16, device=device)
    other = torch.empty(3, 5, dtype=torch.bfloat16, device=device)
    third = torch.empty(7, dtype=torch.uint8, device=device)
    assert saved(one, other, third, device=device).total == 30 + 30 + 7


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_tensor_saved_twice_counts_once(device):
    one = torch.empty(3, 5, device=device)
    assert saved(one, one, device=device).total == 60
    assert saved(one, one.view(3, 5), one[:], device=device).total == 60


def test_another_look_into_the_same_storage_counts_on_its_own():
    one = torch.empty(4, 5)
    counted = saved(one, one.t(), one[:2], one[2:])
    assert counted.total == 80 + 80 + 40 + 40
    assert counted.shapes == [(4, 5), (5, 4), (2, 5), (2, 5)]


def test_a_tensor_saved_by_two_operations_on_meta_counts_once():
    x = torch.empty(4, 6, device="meta", requires_grad=True)
    a, b = (torch.empty(6, 5, device="meta", requires_grad=True) for _ in range(2))
    with SavedBytes() as counted:
        x @ a
        x @ b
    assert counted.total == (4 * 6 + 6 * 5 + 6 * 5) * 4


def test_memory_that_is_reused_by_a_second_tensor_counts_again():
    x = torch.zeros(1, requires_grad=True)
    with SavedBytes() as counted:
        for _ in range(5):
            Keep.apply(x, torch.empty(1000))
    assert counted.total == 5 * 4000


def test_parameters_are_counted_and_nothing_outside_the_block_is():
    layer, x = nn.Linear(6, 5, bias=False), torch.ones(3, 6, requires_grad=True)
    layer(x)
    with SavedBytes() as counted:
        layer(x)
    layer(x)
    assert counted.total == (6 * 5 + 3 * 6) * 4


# --- matrix products ------------------------------------------------------------------------------


def test_products_of_forward_and_backward_are_counted_with_their_shapes():
    layer = nn.Linear(6, 5)
    with matmul_count() as counted:
        layer(torch.ones(2, 3, 6, requires_grad=True)).sum().backward()
    assert [(call.operands, call.result) for call in counted.calls] == [
        (((5,), (6, 6), (6, 5)), (6, 5)),
        (((6, 5), (5, 6)), (6, 6)),
        (((5, 6), (6, 6)), (5, 6)),
    ]


def test_one_product_less_when_the_input_needs_no_gradient():
    layer = nn.Linear(6, 5)
    with matmul_count() as counted:
        layer(torch.ones(3, 6)).sum().backward()
    assert counted.count == 2


def test_batched_products_vectors_and_einsum_count_and_elementwise_work_does_not():
    a, b = torch.ones(2, 3, 4), torch.ones(2, 4, 5)
    with matmul_count() as counted:
        a @ b
        torch.baddbmm(torch.ones(2, 3, 5), a, b)
        a[0] @ b[0, :, 0]
        torch.einsum("bij,bjk->bik", a, b)
        a * a + a
    assert counted.count == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_products_count_alike_in_every_dtype(dtype):
    with torch.no_grad(), matmul_count() as counted:
        nn.functional.linear(torch.ones(3, 6, dtype=dtype), torch.ones(5, 6, dtype=dtype))
    assert [call.dtype for call in counted.calls] == [dtype]


# --- errors and ratios ----------------------------------------------------------------------------


def off(exact, by):
    moved = exact.clone()
    moved[0] += by
    return moved


EXACT = torch.arange(1.0, 7.0, dtype=torch.float64)


def test_the_threshold_is_two():
    assert TWICE == 2.0


@pytest.mark.parametrize("ours, theirs, ratio", [(0.3, 0.1, 3), (0.1, 0.1, 1), (0.05, 0.1, 0.5), (0, 0.1, 1e-10)])
def test_ratio_is_our_error_over_the_references(ours, theirs, ratio):
    assert error_ratio(off(EXACT, ours), off(EXACT, theirs), EXACT) == pytest.approx(ratio, abs=1e-9)


def test_the_ratio_takes_the_largest_error_and_its_size_not_its_sign():
    got, reference = EXACT.clone(), EXACT.clone()
    got[0], got[1] = got[0] - 0.4, got[1] + 0.1
    reference[2] -= 0.2
    assert error_ratio(got, reference, EXACT) == pytest.approx(2)


def test_two_exact_arms_are_equally_good():
    assert error_ratio(EXACT.clone(), EXACT.clone(), EXACT) == 1
    zeros = torch.zeros(4, dtype=torch.float64)
    assert error_ratio(zeros.clone(), zeros.clone(), zeros) == 1


def test_an_error_where_the_reference_has_none_is_far_over_any_limit():
    assert error_ratio(off(EXACT, 1e-3), EXACT.clone(), EXACT) > 1e6
    zeros = torch.zeros(4, dtype=torch.float64)
    assert error_ratio(off(zeros, 1e-30), zeros.clone(), zeros) > 1e6


def test_float64_rounding_is_told_from_no_error_by_nobody():
    assert error_ratio(off(EXACT, 1e-14), EXACT.clone(), EXACT) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("arm", range(3))
def test_a_value_that_is_not_finite_passes_in_no_arm(bad, arm):
    arms = [EXACT.clone(), off(EXACT, 0.1), EXACT.clone()]
    arms[arm] = off(arms[arm], bad)
    assert math.isnan(error_ratio(*arms))
    with pytest.raises(AssertionError, match="nan"):
        assert_within_twice(*({"out": tensor} for tensor in arms))


def test_within_twice_holds_the_line_at_two():
    exact, reference = {"dX": EXACT}, {"dX": off(EXACT, 0.25)}
    assert assert_within_twice({"dX": off(EXACT, 0.5)}, reference, exact) == {"dX": 2}
    with pytest.raises(AssertionError, match=r"over 2 times .* dX 2\.04"):
        assert_within_twice({"dX": off(EXACT, 0.51)}, reference, exact)


def test_a_tensor_that_is_fine_does_not_hide_one_that_is_not():
    exact = {"out": EXACT.clone(), "dX": EXACT.clone()}
    reference = {"out": off(EXACT, 0.1), "dX": off(EXACT, 0.1)}
    got = {"out": off(EXACT, 0.1), "dX": off(EXACT, 0.5)}
    with pytest.raises(AssertionError, match="dX 5"):
        assert_within_twice(got, reference, exact)
    assert error_ratios(got, reference, exact) == pytest.approx({"out": 1, "dX": 5})


def test_shapes_are_never_broadcast():
    with pytest.raises(AssertionError, match="shapes differ"):
        largest_error(torch.zeros(3, 1), torch.zeros(3, 3))
    with pytest.raises(AssertionError, match="shapes differ"):
        assert_parity({"out": torch.zeros(1)}, {"out": torch.zeros(3)}, rtol=1, atol=1)


def test_relative_error_is_of_the_whole_tensor():
    assert relative_error(torch.tensor([1.0, 4.5]), torch.tensor([1.0, 4.0])) == pytest.approx(0.125)
    assert relative_error(torch.zeros(3), torch.zeros(3)) == 0
    assert relative_error(torch.ones(3), torch.zeros(3)) == math.inf


# --- parity ---------------------------------------------------------------------------------------


def pair(value=1.0):
    return {"out": torch.full((3,), value), "dX": torch.full((2,), value)}


def test_parity_accepts_equal_tensors_and_returns_their_differences():
    assert assert_parity(pair(), pair(), rtol=0, atol=0) == {"out": 0, "dX": 0}


@pytest.mark.parametrize("name", ["out", "dX"])
def test_parity_refuses_a_difference_in_any_tensor(name):
    got = pair()
    got[name] = got[name] + torch.tensor([0.0] * (len(got[name]) - 1) + [0.1])
    with pytest.raises(AssertionError, match=rf"{name} 0\.1"):
        assert_parity(got, pair(), rtol=0.05, atol=0)
    assert assert_parity(got, pair(), rtol=0.2, atol=0)[name] == pytest.approx(0.1)


def test_parity_adds_its_two_tolerances():
    got = {"out": torch.tensor([10.6])}
    assert_parity(got, {"out": torch.tensor([10.0])}, rtol=0.05, atol=0.11)
    with pytest.raises(AssertionError):
        assert_parity(got, {"out": torch.tensor([10.0])}, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_parity_refuses_what_is_not_finite_even_in_both_arms(bad):
    with pytest.raises(AssertionError):
        assert_parity(pair(bad), pair(), rtol=1, atol=1)
    with pytest.raises(AssertionError):
        assert_parity(pair(), pair(bad), rtol=1, atol=1)
    with pytest.raises(AssertionError):
        assert_parity(pair(bad), pair(bad), rtol=1, atol=1)


def test_parity_refuses_another_dtype_unless_told():
    got = {name: value.double() for name, value in pair().items()}
    with pytest.raises(AssertionError, match=r"out: torch\.float64, not torch\.float32"):
        assert_parity(got, pair(), rtol=1, atol=1)
    assert_parity(got, pair(), rtol=0, atol=0, same_dtype=False)


def compare(kind, got, want):
    if kind == "parity":
        assert_parity(got, want, rtol=1, atol=1)
    else:
        error_ratios(got, {k: v.clone() for k, v in want.items()}, want)


@pytest.mark.parametrize("kind", ["parity", "ratios"])
def test_nothing_to_compare_is_no_agreement(kind):
    with pytest.raises(AssertionError, match="nothing to compare"):
        compare(kind, {}, {})


@pytest.mark.parametrize("kind", ["parity", "ratios"])
def test_a_missing_or_an_extra_gradient_is_no_agreement(kind):
    with pytest.raises(AssertionError, match=r"missing \['dX'\]"):
        compare(kind, {"out": torch.ones(3)}, pair())
    with pytest.raises(AssertionError, match=r"extra \['dX'\]"):
        compare(kind, pair(), {"out": torch.ones(3)})


@pytest.mark.parametrize("kind", ["parity", "ratios"])
def test_arms_that_share_memory_are_refused(kind):
    got, want = pair(), pair()
    with pytest.raises(AssertionError, match="share memory"):
        compare(kind, got, {**want, "out": got["out"]})
    with pytest.raises(AssertionError, match="share memory"):
        compare(kind, {**got, "out": want["dX"].repeat(1)[:1].expand(3)} | {"dX": want["out"][:2]}, want)


@pytest.mark.parametrize("one, other", [("got", "reference"), ("got", "exact"), ("reference", "exact")])
def test_no_two_of_the_three_arms_may_be_the_same_tensors(one, other):
    arms = {"got": pair(), "reference": pair(), "exact": pair()}
    arms[other] = arms[one]
    with pytest.raises(AssertionError, match=f"{one} and {other} share memory"):
        error_ratios(**arms)


# --- one step of a block --------------------------------------------------------------------------


def test_a_step_returns_output_input_gradient_and_every_adapter_gradient_in_float64():
    found = run_block(adapted(), torch.randn(4, 6))
    assert found.keys() == {"out", "dX", "d 0.lora_A.default.weight", "d 0.lora_B.default.weight"}
    assert {tensor.dtype for tensor in found.values()} == {torch.float64}
    assert "dX" not in run_block(adapted(), torch.randn(4, 6), input_grad=False)


def test_a_step_gives_the_gradients_of_the_formula():
    model, x = adapted().double(), torch.randn(4, 6, dtype=torch.float64)
    dy = torch.randn(4, 5, dtype=torch.float64)
    found = run_block(model, x, dy=lambda outputs: (dy,))
    layer, s = model[0], 1.5
    w, bias = layer.base_layer.weight, layer.base_layer.bias
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    want = {
        "out": x @ w.T + bias + s * x @ a.T @ b.T,
        "dX": dy @ w + s * dy @ b @ a,
        "d 0.lora_A.default.weight": s * (dy @ b).T @ x,
        "d 0.lora_B.default.weight": s * dy.T @ x @ a.T,
    }
    assert_parity(found, {name: value.detach() for name, value in want.items()}, rtol=1e-14, atol=0)


def test_a_step_leaves_model_and_input_alone_and_its_results_are_copies():
    model, x = adapted(), torch.randn(4, 6)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    kept = x.clone()
    first, second = run_block(model, x), run_block(model, x)
    assert_parity(first, second, rtol=0, atol=0)
    assert torch.equal(x, kept) and x.grad is None
    for name, parameter in model.named_parameters():
        assert parameter.grad is None and torch.equal(parameter, before[name])


def test_a_gradient_that_was_there_before_is_not_added():
    model, x = adapted(), torch.randn(4, 6)
    clean = run_block(model, x)
    model(x).sum().backward()
    assert_parity(run_block(model, x), clean, rtol=0, atol=0)


class Reused(nn.Module):
    """Writes each output into the same memory."""

    def __init__(self):
        super().__init__()
        self.memory = torch.zeros(4, 6)

    def forward(self, x):
        with torch.no_grad():
            self.memory.copy_(x)
        return Into.apply(x, self.memory)


class Into(torch.autograd.Function):
    """Returns memory that outlives the call."""

    @staticmethod
    def forward(ctx, x, memory):
        return memory.view(memory.shape)

    @staticmethod
    def backward(ctx, dy):
        return dy, None


def test_results_survive_the_next_step_of_a_block_that_reuses_its_memory():
    first_x, second_x = torch.ones(4, 6), torch.zeros(4, 6)
    model = Reused()
    first = run_block(model, first_x, dtype=None)
    run_block(model, second_x, dtype=None)
    assert torch.equal(first["out"], first_x)


def test_a_step_may_keep_the_dtypes():
    model = adapted().to(torch.bfloat16)
    found = run_block(model, torch.randn(4, 6, dtype=torch.bfloat16), dtype=None)
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}


def test_the_leaf_has_the_strides_of_the_input_and_memory_of_its_own():
    x = torch.randn(6, 4).t()
    leaf = leaf_like(x, True)
    assert torch.equal(leaf, x) and leaf.stride() == x.stride() and leaf.is_leaf and leaf.requires_grad
    assert instruments.storage_identity(leaf) != instruments.storage_identity(x)


def test_the_same_dy_goes_to_every_arm_and_is_not_of_ones():
    outputs = (torch.zeros(4, 5), torch.zeros(3, dtype=torch.bfloat16))
    first, again, other = random_dy(outputs, 1), random_dy(outputs, 1), random_dy(outputs, 2)
    assert torch.equal(first[0], again[0]) and not torch.equal(first[0], other[0])
    assert first[1].dtype == torch.bfloat16 and first[0].std() > 0.3


# --- adapters that do something -------------------------------------------------------------------


def test_each_lora_term_is_measured_and_the_model_is_left_as_it_was():
    model, x = adapted(), torch.randn(4, 6)
    before = model(x)
    moved = assert_lora_matters(model, x)
    assert moved.keys() == {"0.lora_B.default.weight"} and moved["0.lora_B.default.weight"] > 0.1
    assert torch.equal(model(x), before)


def test_a_model_with_b_at_zero_or_without_adapters_is_refused():
    model, x = adapted(), torch.randn(4, 6)
    nn.init.zeros_(model[0].lora_B["default"].weight)
    assert lora_terms(model, x) == {"0.lora_B.default.weight": 0}
    with pytest.raises(AssertionError, match=r"0\.lora_B\.default\.weight 0"):
        assert_lora_matters(model, x)
    with pytest.raises(AssertionError, match="no lora_B"):
        assert_lora_matters(nn.Sequential(nn.Linear(6, 5)), x)


def test_an_error_of_five_units_of_float64_noise_is_an_error() -> None:
    """The floor keeps two exact arms apart from a division by zero, and hides nothing above it."""
    exact = torch.ones(3, dtype=torch.float64)
    off = exact.clone()
    off[1] += 5e-12
    assert 4 < error_ratio(off, exact.clone(), exact) < 6
