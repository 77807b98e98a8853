"""The kernel runs: the output carries its node, over everything that a condition could narrow it by.

Parity can't see a kernel that hands every call back to PEFT: agreement is free then. So each configuration asserts
the node, and first that PEFT's own output doesn't carry it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations
from operator import attrgetter
from typing import Any

import pytest
import torch

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build

Nodes = Callable[[Any], list[str]]

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
each_shape = pytest.mark.parametrize("shape", [(6,), (2, 3)], ids=["2-D", "3-D"])

QUANTISED = [(base, dtype) for base in ("nf4", "fp4", "nf4-nested") for dtype in ("mixed", "bf16", "fp32")]
SUBSETS = [
    pytest.param(kernel, subset, id=f"{kernel.name}-{'+'.join(subset)}")
    for kernel in KERNELS
    for subset in chain.from_iterable(
        combinations(kernel.projections, n) for n in range(1, len(kernel.projections) + 1)
    )
]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
AUTOCAST = [
    pytest.param(base, dtype, autocast, id=f"{base}-{dtype}-under-{autocast}")
    for dtype, autocast in [
        ("fp32", "bf16"),
        ("fp32", "fp16"),
        ("mixed", "bf16"),
        ("bf16", "fp16"),
        ("float64", "bf16"),
    ]
    for base in ("dense", "nf4")
    if (base, dtype) != ("nf4", "float64")  # bitsandbytes computes in 16 or 32 bits
]


def on_every_output(kernel: KernelInfo) -> list[str]:
    """The kernel's node for each of a block's outputs: three for a group of three projections on one x."""
    return [kernel.node] * (3 if kernel.kind == "qkv" else 1)


@each_kernel
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "float64", "mixed"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@each_shape
def test_the_kernel_runs_for_every_dtype_bias_and_rank_of_input(
    kernel: KernelInfo, dtype: str, bias: bool, shape: tuple[int, ...], device: str, nodes: Nodes
) -> None:
    model, x = build(kernel, Sample(dtype=dtype, bias=bias, shape=shape, device=device))
    assert kernel.node not in nodes(model(x))
    kernel.patch(model)
    assert nodes(model(x)) == on_every_output(kernel)


@pytest.mark.parametrize("kernel, subset", SUBSETS)
def test_the_kernel_runs_for_every_subset_of_adapted_projections(
    kernel: KernelInfo, subset: tuple[str, ...], nodes: Nodes
) -> None:
    model, x = build(kernel, Sample(adapted=subset))
    assert kernel.node not in nodes(model(x))
    kernel.patch(model)
    assert nodes(model(x)) == on_every_output(kernel)


@each_kernel
@pytest.mark.parametrize("equal", [True, False], ids=["equal-ranks", "unequal-ranks"])
def test_the_kernel_runs_for_equal_and_for_unequal_ranks(kernel: KernelInfo, equal: bool, nodes: Nodes) -> None:
    ranks = (3,) * len(kernel.projections) if equal else (2, 5, 3)[: len(kernel.projections)]
    model, x = build(kernel, Sample(ranks=ranks))
    assert kernel.node not in nodes(model(x))
    kernel.patch(model)
    assert nodes(model(x)) == on_every_output(kernel)


@each_kernel
@pytest.mark.parametrize("base, dtype", QUANTISED, ids=["-".join(pair) for pair in QUANTISED])
def test_the_kernel_runs_on_every_4_bit_base(
    kernel: KernelInfo, base: str, dtype: str, device: str, nodes: Nodes
) -> None:
    model, x = build(kernel, Sample(base=base, dtype=dtype, bias=dtype == "fp32", device=device))
    assert kernel.node not in nodes(model(x))
    kernel.patch(model)
    assert nodes(model(x)) == on_every_output(kernel)


@each_kernel
@each_shape
@pytest.mark.parametrize("base", ["dense", "nf4"])
def test_the_kernel_runs_when_the_input_needs_no_gradient(
    kernel: KernelInfo, base: str, shape: tuple[int, ...], nodes: Nodes
) -> None:
    model, x = build(kernel, Sample(base=base, shape=shape))
    assert kernel.node not in nodes(model(x.detach()))
    kernel.patch(model)
    assert nodes(model(x.detach())) == on_every_output(kernel)


@each_kernel
def test_the_kernel_runs_on_inputs_that_are_not_contiguous(kernel: KernelInfo, nodes: Nodes) -> None:
    model, x = build(kernel, Sample(shape=(2, 3)))
    x = x.detach().transpose(0, 1).requires_grad_()
    assert not x.is_contiguous()
    assert kernel.node not in nodes(model(x))
    kernel.patch(model)
    assert nodes(model(x)) == on_every_output(kernel)


@each_kernel
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_kernel_runs_in_training_and_in_evaluation(kernel: KernelInfo, training: bool, nodes: Nodes) -> None:
    model, x = build(kernel, Sample())
    model.train(training)
    assert kernel.node not in nodes(model(x))
    kernel.patch(model)
    assert nodes(model(x)) == on_every_output(kernel)


@each_kernel
@pytest.mark.parametrize("base, dtype, autocast", AUTOCAST)
def test_under_autocast_the_kernel_runs_and_its_output_has_pefts_dtype(
    kernel: KernelInfo, base: str, dtype: str, autocast: str, device: str, nodes: Nodes, step: Any
) -> None:
    model, x = build(kernel, Sample(base=base, dtype=dtype, device=device))
    with torch.autocast(device, dtype=DTYPES[autocast]):
        assert kernel.node not in nodes(model(x))
        want = {name: tensor.dtype for name, tensor in step(model, x).items()}
        kernel.patch(model)
        assert nodes(model(x)) == on_every_output(kernel)
        got = {name: tensor.dtype for name, tensor in step(model, x).items()}
    assert got == want
