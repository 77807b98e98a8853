"""What a step costs: the bytes that the backward keeps, and the matrix products that run.

Both are predicted in whole tensors and products, and must be met exactly: one tensor more is a fault. All of it on
one layout (fp32, no bias, 3-D, equal ranks): whether the kernel runs on the others is test_node's subject.
"""

from __future__ import annotations

from math import ceil, prod
from operator import attrgetter
from typing import Any

import pytest
import torch

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.instruments import SavedBytes, matmul_count, outputs_of, random_dy

SWIGLU = next(kernel for kernel in KERNELS if kernel.kind == "swiglu-mlp")
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))

# (input, output) of each projection and the widths of what is kept besides X: activations [N, .], per kind.
EDGES = {
    "linear": lambda i, o: [(i, o)],
    "qkv": lambda h, q, k, v: [(h, q), (h, k), (h, v)],
    "swiglu-mlp": lambda h, f: [(h, f), (h, f), (f, h)],
}
WIDTHS = {"linear": (20, 14), "qkv": (20, 24, 12, 8), "swiglu-mlp": (20, 28)}
SHAPE, N, RANK = (2, 3), 6, 4


def block(kernel: KernelInfo, **fields: Any) -> tuple[torch.nn.Module, torch.Tensor]:
    """The layout that costs are counted on."""
    ranks = (RANK,) * len(kernel.projections)
    return build(kernel, Sample(**{"bias": False, "shape": SHAPE, "ranks": ranks} | fields))


def saved_by(model: torch.nn.Module, x: torch.Tensor) -> SavedBytes:
    """What one forward of the block saves."""
    with SavedBytes() as saved:
        model(x)
    return saved


def hidden_kept(kernel: KernelInfo) -> int:
    """How many H a kernel keeps: a SwiGLU's backward computes down's again."""
    return 2 if kernel.kind == "swiglu-mlp" else len(kernel.projections)


def predicted(kernel: KernelInfo, rows: int, widths: tuple[int, ...], rank: int, itemsize: int) -> int:
    """Bytes that a kernel keeps: X, each W, A and B, the H, and G and U of a SwiGLU. No bias, M or output."""
    matrices = sum(i * o + rank * (i + o) for i, o in EDGES[kernel.kind](*widths))
    intermediate = 2 * widths[1] if kernel.kind == "swiglu-mlp" else 0
    return itemsize * (rows * (widths[0] + intermediate + rank * hidden_kept(kernel)) + matrices)


@each_kernel
def test_a_dense_block_keeps_what_its_formulas_name(kernel: KernelInfo) -> None:
    model, x = block(kernel)
    want = predicted(kernel, N, WIDTHS[kernel.kind], RANK, 4)
    assert saved_by(model, x).total >= want
    kernel.patch(model)
    assert saved_by(model, x).total == want


def test_a_mixed_swiglu_keeps_no_second_copy() -> None:
    """X, G and U are kept as they came; only adapters and their H are in fp32."""
    model, x = block(SWIGLU, dtype="mixed")
    hidden = N * RANK * hidden_kept(SWIGLU)
    adapters = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    SWIGLU.patch(model)
    want = predicted(SWIGLU, N, WIDTHS[SWIGLU.kind], RANK, 2) + 2 * (hidden + adapters)  # 2 bytes more for each
    assert saved_by(model, x).total == want


@each_kernel
@pytest.mark.parametrize("base", ["nf4", "nf4-nested", "fp4"])
def test_a_4_bit_block_keeps_codes_and_states_and_no_dense_weight(kernel: KernelInfo, base: str) -> None:
    model, x = block(kernel, base=base)
    shapes = [(o, i) for i, o in EDGES[kernel.kind](*WIDTHS[kernel.kind])]
    kernel.patch(model)
    saved = saved_by(model, x)
    assert not set(saved.shapes) & {*shapes, *((i, o) for o, i in shapes)}
    dense = predicted(kernel, N, WIDTHS[kernel.kind], RANK, 4) - 4 * sum(map(prod, shapes))
    assert saved.total == dense + sum(packed_bytes(prod(shape), base) for shape in shapes)


def packed_bytes(elements: int, base: str) -> int:
    """A 4-bit weight: half a byte an element, a code book of 16, an absmax for every 64 elements.

    Nested, an absmax is one byte, and there are the offset, its code book of 256 and an absmax for every 256.
    """
    blocks = ceil(elements / 64)
    absmax = blocks + 4 * (1 + 256 + ceil(blocks / 256)) if base == "nf4-nested" else 4 * blocks
    return elements // 2 + 4 * 16 + absmax


@pytest.mark.parametrize(
    "rows, hidden, intermediate, rank",
    [(2048, 4096, 14336, 64), (1024, 1024, 4096, 16)],
    ids=["llama-3.1-8b", "small"],
)
def test_a_swiglu_block_saves_two_intermediate_tensors_less_than_peft(
    rows: int, hidden: int, intermediate: int, rank: int
) -> None:
    """On meta nothing is allocated, so the real shape costs nothing. PEFT keeps M, silu(G) and down's H besides."""
    model, _ = block(SWIGLU, dtype="bf16", widths=(hidden, intermediate), ranks=(rank,) * 3, shape=(1,), device="meta")
    x = torch.empty(1, rows, hidden, dtype=torch.bfloat16, device="meta", requires_grad=True)
    peft = saved_by(model, x).total
    SWIGLU.patch(model)
    fused = saved_by(model, x).total
    n_f = rows * intermediate * 2
    assert fused == predicted(SWIGLU, rows, (hidden, intermediate), rank, 2)
    assert peft - fused == 2 * n_f + rows * rank * 2
    assert 2 * n_f <= peft - fused < 3 * n_f
    if rows == 2048:
        assert (peft, fused) == (611_844_096, 494_141_440)


# Matrix products of (forward, backward, backward without dX), all projections adapted.
# linear: W, A, B | dB, dH, dA, dX of base and adapter
# qkv: three W, one for the three A, three B | three dB and dH, one dA, dX: three of bases and one of the adapters
# swiglu: three W, one for gate's and up's A, down's A, three B |
#   down: its H again, dB, dH, dA, dM of base and adapter; gate and up: two dB and dH, one dA; dX: two and one
PRODUCTS = {"linear": (3, 5, 3), "qkv": (7, 11, 7), "swiglu-mlp": (8, 14, 11)}


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4"])
@pytest.mark.parametrize("input_grad", [True, False], ids=["with-dX", "without-dX"])
def test_a_step_runs_no_product_more_than_its_formulas(kernel: KernelInfo, base: str, input_grad: bool) -> None:
    model, x = block(kernel, base=base)
    x = x.detach().requires_grad_(input_grad)
    kernel.patch(model)
    forward, backward, without_dx = PRODUCTS[kernel.kind]
    with matmul_count() as products:
        outputs = outputs_of(model(x))
        assert products.count == forward
        torch.autograd.backward(outputs, random_dy(outputs, seed=1))
    assert products.count - forward == (backward if input_grad else without_dx)


@each_kernel
@pytest.mark.parametrize("frozen", ["lora_A", "lora_B"])
def test_frozen_adapters_cost_no_product_for_their_gradient(kernel: KernelInfo, frozen: str) -> None:
    """Without dX: a frozen A spares dA (one for siblings), and dH; a frozen B spares each dB."""
    model, x = block(kernel)
    kernel.patch(model)
    whole = backward_products(model, x)
    for name, parameter in model.named_parameters():
        if frozen in name:
            parameter.requires_grad_(False)
    assert whole - backward_products(model, x) == FROZEN[kernel.kind][frozen]


FROZEN = {
    "linear": {"lora_A": 2, "lora_B": 1},
    "qkv": {"lora_A": 4, "lora_B": 3},
    "swiglu-mlp": {"lora_A": 4, "lora_B": 4},
}


# Products of a backward without dX when one projection has an adapter. Its own: dB, dH, dA; down's needs H again, and
# gate's or up's needs dM, of which the adapter has no part.
ALONE = {"proj": 3, "q_proj": 3, "k_proj": 3, "v_proj": 3, "gate_proj": 4, "up_proj": 4, "down_proj": 4}


@pytest.mark.parametrize(
    "kernel, projection", [pytest.param(k, p, id=f"{k.name}-{p}") for k in KERNELS for p in k.projections]
)
def test_one_adapter_alone_costs_no_product_beyond_its_own_gradient(kernel: KernelInfo, projection: str) -> None:
    model, x = block(kernel, adapted=(projection,))
    kernel.patch(model)
    assert backward_products(model, x) <= ALONE[projection]


def backward_products(model: torch.nn.Module, x: torch.Tensor) -> int:
    """Products of a backward without dX."""
    outputs = tuple(out for out in outputs_of(model(x.detach())) if out.requires_grad)
    with matmul_count() as products:
        torch.autograd.backward(outputs, random_dy(outputs, seed=1))
    return products.count
