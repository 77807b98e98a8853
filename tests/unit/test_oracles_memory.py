"""Saved bytes, GEMMs, overwritten memory: the predicted numbers, written out, and what each check refuses."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hand_made import RIGHT, WRONG, Columns, Einsum, Entry, Staged, kernel
from torch import nn

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles import calls, gemms, saved_bytes, streaming, unchanged
from fastlora_verify.oracles.base import Options
from fastlora_verify.oracles.instruments import Product, relative_error, run_block
from fastlora_verify.oracles.saved_bytes import holds_tensor

KERNEL = {info.name: info for info in KERNELS}
EINSUM = next(info for info in RIGHT if info.name == "EinsumLinear")


def figure(answer, pattern):
    (found,) = [figure for figure in answer.figures if re.search(pattern, figure.name)]
    return found


# --- saved bytes ----------------------------------------------------------------------------------


def test_the_llama_mlp_saves_what_was_worked_out_by_hand():
    N, h, f, r = 2048, 4096, 14336, 64
    weights, adapters, x, hidden, wide = 3 * h * f, 3 * r * (h + f), N * h, N * r, N * f
    peft = 2 * (weights + adapters + x + 3 * hidden + 4 * wide)
    assert peft == 611_844_096
    assert peft - 2 * (2 * wide + hidden) == 494_141_440
    answer = saved_bytes.ORACLE.check(KERNEL["swiglu"], Options())
    assert figure(answer, "Llama.*, bf16: PEFT").value == 611_844_096
    assert figure(answer, "Llama.*, bf16: kernel").limit == 494_141_440
    assert figure(answer, "Llama.*, bf16: kernel").value <= 494_141_440
    assert figure(answer, "Llama.*, bf16: saving").value >= 117_702_656


# rows, in, out per projection; X and the wide activations on top
SMALL = {
    "linear": ([(1024, 4096)], 0, 0),
    "qkv": ([(1024, 2048), (1024, 512), (1024, 512)], 0, 0),
    "swiglu": ([(1024, 4096), (1024, 4096), (4096, 1024)], 4 * 1024 * 4096, 2 * 1024 * 4096),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype, lora", [("bf16", 2), ("mixed", 4)])
def test_at_a_smaller_shape_the_sums_are_met_too(name, dtype, lora):
    edges, theirs, ours = SMALL[name]
    N, r = 1024, 16
    weights, adapters = sum(i * o for i, o in edges), sum(r * (i + o) for i, o in edges)
    answer = saved_bytes.ORACLE.check(KERNEL[name], Options())
    peft = 2 * (weights + adapters + N * 1024 + len(edges) * N * r + theirs)
    kept = len(edges) - (1 if ours else 0)
    limit = 2 * (weights + N * 1024 + ours) + lora * (adapters + kept * N * r)
    if dtype == "bf16":
        assert figure(answer, "N 1024.*, bf16: PEFT").value == peft
    assert figure(answer, f"N 1024.*, {dtype}: kernel").limit == limit
    assert figure(answer, f"N 1024.*, {dtype}: kernel").value == limit


def test_on_a_4_bit_base_codes_and_states_count_and_no_dense_weight_fits():
    answer = saved_bytes.ORACLE.check(KERNEL["swiglu"], Options())
    N, h, f, r = 40, 20, 28, 4
    codes, blocks = 3 * (h * f // 2), 3 * 9
    activations = 2 * (N * h + 2 * N * f + 2 * N * r + 3 * r * (h + f))
    assert figure(answer, "nf4: kernel").limit == codes + 4 * blocks + 3 * 64 + activations
    dense = 2 * h * f
    assert figure(answer, "nf4: kernel").value + dense > figure(answer, "nf4: kernel").limit


def test_a_count_of_peft_that_is_not_the_predicted_one_is_a_finding(monkeypatch):
    monkeypatch.setattr(saved_bytes, "LLAMA_8B", replace(saved_bytes.LLAMA_8B, rank=63))
    right = saved_bytes.elements
    monkeypatch.setattr(saved_bytes, "elements", lambda info, shape: replace(right(info, shape), x=1))
    answer = saved_bytes.ORACLE.check(EINSUM, Options())
    assert figure(answer, "Llama.*, bf16: PEFT").ok is False


def test_a_kernel_that_cannot_run_on_meta_is_measured_where_it_can():
    class NoMeta(Einsum):
        def forward(self, x, parts):
            assert not x.is_meta, "no meta here"
            return super().forward(x, parts)

    answer = saved_bytes.ORACLE.check(kernel("NoMeta", "linear", NoMeta()), Options())
    assert answer.ok is True
    assert figure(answer, "Llama.*, bf16: kernel").ok is None
    assert "no meta here" in figure(answer, "Llama.*, bf16: kernel").value
    assert figure(answer, "tiny, bf16: kernel").ok is True


def captured(value):
    return lambda: value


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(1),
        (1, [torch.ones(1)]),
        {"a": {"b": torch.ones(1)}},
        nn.Linear(2, 2),
        nn.Linear(2, 2).forward,
        captured(torch.ones(1)),
        SimpleNamespace(state=SimpleNamespace(absmax=torch.ones(1))),
    ],
)
def test_a_tensor_is_found_wherever_it_hides(value):
    assert holds_tensor(value)


@pytest.mark.parametrize("value", [None, 1.5, "weight", torch.bfloat16, (1, 2), captured(3), nn.Linear, len])
def test_numbers_names_and_dtypes_hold_no_tensor(value):
    assert not holds_tensor(value)


@pytest.mark.parametrize("name, row", [("WeightOnCtx", "base weights saved"), ("AdaptersOnCtx", "tensors on ctx")])
def test_what_is_kept_on_ctx_is_named(name, row):
    (info,) = [info for kernels in WRONG.values() for info in kernels if info.name == name]
    answer = saved_bytes.ORACLE.check(info, Options())
    assert figure(answer, f"tiny, bf16: {row}").ok is False
    if row == "tensors on ctx":
        assert figure(answer, "tiny, bf16: base weights").ok is True


# --- GEMMs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, forward, backward", [("linear", 3, 5), ("qkv", 7, 11), ("swiglu", 8, 14)])
def test_products_of_the_reference_kernels(name, forward, backward):
    """3 W + 1 shared A + 3 B; dX and dH per projection, one dA, one LoRA term of dX; SwiGLU recomputes down's H."""
    answer = gemms.ORACLE.check(KERNEL[name], Options())
    assert figure(answer, "^products, forward").value == forward
    assert figure(answer, "^products, backward").value <= backward
    assert figure(answer, "of X and A").value == 1
    assert figure(answer, "for dA").value == 1
    assert figure(answer, "X needing none").value == 0
    assert figure(answer, f"of {3 if name != 'linear' else 1} base products").value == 0


@pytest.mark.parametrize("kind", gemms.WIDTHS)
def test_sizes_of_products_are_told_apart(kind):
    ranks, seen = gemms.RANKS[kind], gemms.SEE_X[kind]
    widths = {*gemms.WIDTHS[kind], gemms.ROWS}
    assert len(widths) == len(gemms.WIDTHS[kind]) + 1
    assert max(ranks) < min(widths) and sum(ranks[:seen]) < min(widths)
    assert len(set(ranks)) == len(ranks)
    assert all(rank > sum(ranks[:seen]) for rank in ranks[seen:])


class HalvedInput(Columns):
    """One product per half of the concatenated A's, cut where no A ends."""

    def hidden(self, x_columns, parts, lora):
        A, columns = self.all_A(parts, lora), x_columns.to(lora)
        return torch.cat([A[:1] @ columns, A[1:] @ columns])


def test_a_shared_product_that_is_cut_anywhere_is_seen():
    answer = gemms.ORACLE.check(kernel("Halved", "qkv", HalvedInput()), Options())
    assert (figure(answer, "of X and A").value, figure(answer, "of X and A").ok) == (2, False)


def test_a_product_is_recognised_in_either_orientation_and_by_what_it_sums_over():
    product = Product("mm", ((66, 40), (40, 8)), (66, 8), torch.float32)
    turned = Product("mm", ((8, 40), (40, 66)), (8, 66), torch.float32)
    batched = Product("linear", ((2, 33, 40), (8, 40)), (2, 33, 8), torch.float32)
    biased = Product("addmm", ((8,), (66, 40), (40, 8)), (66, 8), torch.float32)
    other = Product("mm", ((66, 56), (56, 8)), (66, 8), torch.float32)
    assert gemms.count([product, turned, batched, biased, other], {8}, 66, inner=40) == 4
    assert gemms.count([product, other], {8}, 66) == 2
    assert gemms.count([product], {7}, 66) == 0


@pytest.mark.parametrize("unneeded, ok", [(0, True), (1, False), (2, False)])
def test_dX_is_skipped_whole(unneeded, ok):  # noqa: N802
    assert gemms.skipped_figure(2, unneeded, 2).ok is ok


def test_a_forward_that_is_run_again_does_not_count_as_dX():  # noqa: N802
    assert gemms.skipped_figure(5, 2, 3).ok is True
    assert gemms.skipped_figure(5, 3, 3).ok is False


# --- written to -----------------------------------------------------------------------------------


class Writes(Einsum):
    """Writes to what `victim` picks, in the forward."""

    def __init__(self, victim):
        self.victim = victim

    def forward(self, x, parts):
        result = super().forward(x, parts)
        tensor = self.victim(x, parts[0])
        if tensor is not None:
            tensor.detach().mul_(1)
        return result


@pytest.mark.parametrize(
    "victim, name",
    [
        (lambda x, part: x, "x"),
        (lambda x, part: part.tensors[0], "proj.base_layer.weight"),
        (lambda x, part: part.bias, "proj.base_layer.bias"),
        (lambda x, part: part.A, "proj.lora_A.default.weight"),
        (lambda x, part: part.B, "proj.lora_B.default.weight"),
        (lambda x, part: part.tensors[4], "proj.base_layer.quant_state.absmax"),
        (lambda x, part: part.tensors[8], "proj.base_layer.quant_state.state2.code"),
    ],
)
def test_a_write_is_seen_even_of_the_same_value(victim, name):
    answer = unchanged.ORACLE.check(kernel("Writes", "linear", Writes(victim)), Options())
    assert answer.ok is False
    assert any(name in str(figure.value).split(", ") for figure in answer.figures)


def test_a_patcher_that_changes_the_models_make_up_is_seen():
    def patch(model):
        model.extra = nn.Parameter(torch.zeros(1))
        model.proj.lora_A["default"].weight.requires_grad_(False)
        return EINSUM.patch(model)

    answer = unchanged.ORACLE.check(replace(EINSUM, patch=patch), Options())
    value = str(answer.figures[0].value)
    assert "state_dict key extra is torch.float32, was None" in value
    assert "proj.lora_A.default.weight is torch.float32, frozen, was torch.float32, trainable" in value


# --- streaming ------------------------------------------------------------------------------------


def test_unpatched_peft_streams_a_dense_layer_as_if_resident():
    """The pool itself is right: what is missing is the proof that the kernel ran.

    Not so on a 4-bit base: bitsandbytes' own Function keeps the codes on ctx.
    """
    answer = streaming.ORACLE.check(replace(EINSUM, patch=lambda model: 1), Options())
    dense, nf4 = (figure for figure in answer.figures if figure.unit == "relative")
    assert (dense.value, dense.ok) == (0, True)
    assert nf4.value > 0.1
    ran = [figure for figure in answer.figures if "layers that ran" in figure.name]
    assert [(figure.value, figure.limit, figure.ok) for figure in ran] == [(0, 4, False)] * 2


def test_fewer_buffers_than_layers_and_poison_in_the_layers_own_weights():
    layers, x = streaming.stack(KERNEL["swiglu"], Sample(dtype="float64"))
    streamed = streaming.Streamed(layers)
    assert len(layers.blocks) == 4 and len(streamed.pool) == 2
    own = [p for n, p in layers.named_parameters() if streaming.is_base_weight(n)]
    assert len(own) == 12 and all(p.isnan().all() for p in own)
    assert sum(p.requires_grad for p in layers.parameters()) == 24
    assert streamed(x).isfinite().all()
    assert streamed.loads == 4


class StateOfTheView(Entry):
    """Reads the quant state off the weight alone: a streamed view has none."""

    def __call__(self, x):
        layer = self.block.base_layer
        kept = getattr(layer, "quant_state", None)
        if kept is not None and getattr(layer.weight, "quant_state", None) is None:
            raise AttributeError("the weight has no quant state")
        return super().__call__(x)


def test_a_state_that_is_not_repaired_is_seen():
    answer = streaming.ORACLE.check(kernel("State", "linear", Einsum(), entry=StateOfTheView), Options())
    assert answer.ok is False
    assert "the weight has no quant state" in str(answer.as_json())


# --- calls ----------------------------------------------------------------------------------------


class Keeps(Entry):
    """Keeps its last output."""

    def __call__(self, x):
        self.last = super().__call__(x)
        return self.last


def test_an_output_that_is_kept_is_seen():
    answer = calls.ORACLE.check(kernel("Keeps", "linear", Einsum(), entry=Keeps), Options())
    assert figure(answer, "kept after a step").value >= 1
    assert figure(answer, "kept after a step").ok is False


def test_the_deep_copy_has_other_weights_than_the_original():
    found = calls.deep_copy(*build(EINSUM, Sample(dtype="float64")))
    assert found.keys() == {prefix + name for name in run_block(*build(EINSUM, Sample())) for prefix in ("", "copy's ")}
    assert relative_error(found["copy's out"], found["out"]) > 0.1


def test_a_patch_that_a_deep_copy_shares_is_seen():
    def patch(model):
        EINSUM.patch(model)
        entry = vars(model.proj)["forward"]
        vars(model.proj)["forward"] = lambda x: entry(x)
        return 1

    answer = calls.ORACLE.check(replace(EINSUM, patch=patch), Options())
    assert figure(answer, "deep copy").ok is False
    assert [figure.name for figure in answer.figures if figure.ok is False] == [figure(answer, "deep copy").name]


class Stale(Columns):
    """K and V of the previous call."""

    def __init__(self):
        self.last = {}

    def forward(self, x, parts):
        (q, k, v), kept = super().forward(x, parts)
        old = self.last.get(x.shape, (k, v))
        self.last[x.shape] = (k.detach().clone(), v.detach().clone())
        return (q, *(t.clone() for t in old)), kept


def test_k_and_v_of_another_call_are_seen():
    answer = calls.ORACLE.check(kernel("Stale", "qkv", Stale()), Options())
    assert figure(answer, "weights changed").ok is False


class BackwardOnce(Staged):
    """Writes into what it saved: a second backward starts from something else."""

    def backward(self, x, parts, kept, dys, needs_x):
        result = super().backward(x, parts, kept, dys, needs_x)
        kept[0].data.mul_(0.5)
        return result


def test_a_saved_tensor_that_the_backward_changes_is_seen():
    answer = calls.ORACLE.check(kernel("Once", "swiglu-mlp", BackwardOnce()), Options())
    assert [f.name.split(":")[0] for f in answer.figures if f.ok is False] == ["backward twice"]
