"""The matrix products of one step, told apart by their shapes.

All sizes differ (rows N, widths, ranks), so a product's shape says what it computes.
Siblings that see the same X share one product with their concatenated A's in the forward and one for all their
dA in the backward, and the products for dX are gone when X needs no gradient. A 4-bit base computes in its compute
dtype, whatever dtype X comes in. The totals stand beside unpatched PEFT's and are not judged: a kernel may buy
memory with products.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import KINDS, Sample, build
from fastlora_verify.oracles.arms import Make, need_device, patched, ran
from fastlora_verify.oracles.base import (
    Figure,
    NotRunError,
    Options,
    Oracle,
    OracleResult,
    judged,
    measured,
    told,
)
from fastlora_verify.oracles.instruments import Product, leaf_like, matmul_count, outputs_of

ID = "gemms"
ROWS = 66
WIDTHS = {"linear": (40, 28), "qkv": (40, 48, 24, 16), "swiglu-mlp": (40, 56)}
RANKS = {"linear": (3,), "qkv": (3, 5, 2), "swiglu-mlp": (3, 5, 11)}
"""Sizes that no two parts share: the ranks of what sees X add up to less than any width, down's rank to more."""
SEE_X = {"linear": 1, "qkv": 3, "swiglu-mlp": 2}
"""How many of the projections, counted from the first, take X itself."""


def check(info: KernelInfo, options: Options) -> OracleResult:
    """One step with a gradient for X, one without, and a forward on a 4-bit base."""
    figures = measured(ID, partial(all_figures, info, options.device))
    figures += measured("nf4, fp32 input", partial(four_bit_figures, info, options.device))
    totals = [figure for figure in figures if figure.name.startswith("products, ")]
    return judged(ID, info.name, figures, ", ".join(map(told, totals)))


def all_figures(info: KernelInfo, device: str) -> list[Figure]:
    """Totals against PEFT's, the shared products, and what is left of dX when nobody asks for it."""
    need_device(device)
    make: Make = partial(build, info, sample_of(info, device=device, dtype="fp32"))
    theirs = step(make()[0], make()[1], input_grad=True)
    model, x = patched(info, make)
    if not ran(info, model, x):
        raise NotRunError("the call was handed back to PEFT")
    ours = step(model, x, input_grad=True)
    _, backward = step(model, x, input_grad=False)
    width = WIDTHS[info.kind][0]
    hidden = set(range(1, sum(RANKS[info.kind][: SEE_X[info.kind]]) + 1))  # whole, apart, or cut anywhere
    figures = [
        Figure("products, forward", len(ours[0]), unit=f"(PEFT {len(theirs[0])})", drift=0),
        Figure("products, backward", len(ours[1]), unit=f"(PEFT {len(theirs[1])})", drift=0),
        at_most("products of X and A, forward", count(ours[0], hidden, ROWS, inner=width), 1),
        at_most("products for dA of what sees X", count(ours[1], hidden, width, inner=ROWS), 1),
        skipped_figure(count(ours[1], {width}, ROWS), count(backward, {width}, ROWS), SEE_X[info.kind] + 1),
    ]
    return figures if info.declared else [told_only(figure) for figure in figures]


def sample_of(info: KernelInfo, **fields: Any) -> Sample:
    """A sample of the sizes that tell products apart."""
    return Sample(shape=(2, ROWS // 2), widths=WIDTHS[info.kind], ranks=RANKS[info.kind], bias=False, **fields)


def four_bit_figures(info: KernelInfo, device: str) -> list[Figure]:
    """The dtype of the base products where X is fp32 and the 4-bit layers compute in bf16."""
    need_device(device)
    sample = sample_of(info, device=device, dtype="bf16", base="nf4")
    model, x = patched(info, partial(build, info, sample))
    x = x.detach().float().requires_grad_()
    if not ran(info, model, x):
        raise NotRunError("the call was handed back to PEFT")
    forward, _ = step(model, x, input_grad=True)
    widths = WIDTHS[info.kind]
    edges = {(widths[i], widths[o]) for i, o in KINDS[info.kind].edges}
    base = [p for p in forward if any(count([p], {o}, ROWS, inner=i) for i, o in edges)]
    others = sum(product.dtype != torch.bfloat16 for product in base)
    name = f"nf4, fp32 input: of {len(base)} base products not in the compute dtype"
    figure = Figure(name, others, 0, ok=others == 0 and len(base) > 0, key="nf4, fp32 input", drift=0)
    return [figure if info.declared else told_only(figure)]


def told_only(figure: Figure) -> Figure:
    """The figure without a verdict: how often a kernel multiplies is its own affair where nothing is declared."""
    return replace(figure, ok=None)


def at_most(name: str, value: int, limit: int) -> Figure:
    """A count and its limit."""
    return Figure(name, value, limit, ok=value <= limit, drift=0)


def skipped_figure(needed: int, unneeded: int, for_x: int) -> Figure:
    """Whether dX's products (one per weight that sees X, and one or more for the adapters) go when X needs none.

    The same shape occurs in a backward that runs a SwiGLU block's forward again, so the difference counts.
    """
    name = f"products of dX's shape: {needed}, and with X needing none"
    limit = max(0, needed - for_x)
    return Figure(name, unneeded, limit, ok=unneeded <= limit, key="products of dX's shape", drift=0)


def step(model: nn.Module, x: torch.Tensor, *, input_grad: bool) -> tuple[list[Product], list[Product]]:
    """The products of one forward and of its backward."""
    with matmul_count() as forward:
        outputs = outputs_of(model(leaf_like(x, input_grad)))
    with matmul_count() as backward:
        torch.autograd.backward(outputs, tuple(torch.ones_like(out) for out in outputs))
    return forward.calls, backward.calls


def count(products: list[Product], one: set[int], other: int, inner: int | None = None) -> int:
    """Products whose result is [one, other] or its transpose, and that sum over `inner` where it is given."""
    return sum(result_is(product, one, other) and (inner is None or inner == inner_of(product)) for product in products)


def result_is(product: Product, one: set[int], other: int) -> bool:
    """Whether the result is a matrix of `other` rows or columns and one of the sizes `one` across."""
    *leading, last = product.result
    rows = 1
    for size in leading:
        rows *= size
    return (rows == other and last in one) or (last == other and rows in one)


def inner_of(product: Product) -> int:
    """The size that the product sums over."""
    first = product.operands[0] if product.name in ("linear", "gemm_4bit") else product.operands[-2]
    return first[-1]


ORACLE = Oracle(
    id=ID,
    title="Matrix products of one step",
    sees="a shared product split in two, dX computed when nobody needs it, a 4-bit compute dtype ignored",
    blind_to="what the products compute; work that is no matrix product; 4-bit dequantising",
    check=check,
)
