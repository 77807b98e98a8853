"""The matrix of the node oracle has no hole: every condition that could single calls out is true in a cell."""

import re
from dataclasses import replace

import pytest
import torch
from hand_made import RIGHT, Columns, Einsum, Entry, kernel
from torch import nn

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles import node_taken
from fastlora_verify.oracles.arms import below_casts, node_name, reaches
from fastlora_verify.oracles.base import Options

KERNEL = {info.name: info for info in KERNELS}
EINSUM = next(info for info in RIGHT if info.name == "EinsumLinear")


def streamed_in(weight):
    return not isinstance(weight, nn.Parameter)


LINEAR = {
    "always": lambda parts, x: True,
    "on 2-D": lambda parts, x: x.dim() == 2,
    "on 3-D": lambda parts, x: x.dim() == 3,
    "without bias": lambda parts, x: parts[0].bias is None,
    "with bias": lambda parts, x: parts[0].bias is not None,
    "unless the item size is 4": lambda parts, x: x.dtype.itemsize != 4,
    "on fp32": lambda parts, x: x.dtype == torch.float32,
    "on fp16": lambda parts, x: x.dtype == torch.float16,
    "on bf16": lambda parts, x: x.dtype == torch.bfloat16,
    "on mixed dtype": lambda parts, x: parts[0].A.dtype != x.dtype,
    "on uniform dtype": lambda parts, x: parts[0].A.dtype == x.dtype,
    "with a quant state": lambda parts, x: parts[0].skeleton is not None,
    "with a nested state": lambda parts, x: parts[0].skeleton is not None and parts[0].skeleton.nested,
    "with a flat state": lambda parts, x: parts[0].skeleton is not None and not parts[0].skeleton.nested,
    "on FP4": lambda parts, x: parts[0].skeleton is not None and parts[0].skeleton.quant_type == "fp4",
    "4-bit, on mixed dtype": lambda parts, x: parts[0].skeleton is not None and parts[0].A.dtype != x.dtype,
    "4-bit, on fp16": lambda parts, x: parts[0].skeleton is not None and x.dtype == torch.float16,
    "4-bit, an input that is not in the compute dtype": lambda parts, x: (
        parts[0].base != x.dtype and parts[0].skeleton is not None
    ),
    "under autocast": lambda parts, x: torch.is_autocast_enabled("cpu"),
    "input without gradient": lambda parts, x: not x.requires_grad,
    "weight swapped in": lambda parts, x: streamed_in(parts[0].tensors[0]),
    "weight swapped in, 4-bit": lambda parts, x: (
        streamed_in(parts[0].tensors[0]) and parts[0].tensors[0].dtype == torch.uint8
    ),
}
SIBLINGS = {
    "unless all are adapted": lambda parts, x: any(part.A is None for part in parts),
    "unless two are adapted": lambda parts, x: sum(part.A is not None for part in parts) != 2,
    "when q is not adapted": lambda parts, x: parts[0].A is None,
    "when k is not adapted": lambda parts, x: parts[1].A is None,
    "when v alone is adapted": lambda parts, x: parts[0].A is None and parts[1].A is None,
    "on unequal ranks": lambda parts, x: len({len(part.A) for part in parts if part.A is not None}) > 1,
    "on equal ranks": lambda parts, x: (
        len({len(p.A) for p in parts if p.A is not None}) == 1 and all(part.A is not None for part in parts)
    ),
    "4-bit, unless all are adapted": lambda parts, x: (
        parts[0].skeleton is not None and any(part.A is None for part in parts)
    ),
}
CONDITIONS = [("linear", Einsum, name, condition) for name, condition in LINEAR.items()]
CONDITIONS += [("qkv", Columns, name, condition) for name, condition in SIBLINGS.items()]


@pytest.mark.parametrize("kind, formula, name, condition", CONDITIONS, ids=[f"{c[0]}-{c[2]}" for c in CONDITIONS])
def test_a_kernel_that_hands_back_on_a_condition_is_seen(kind, formula, name, condition):
    info = kernel("Narrow", kind, formula(), takes=lambda parts, x: not condition(parts, x))
    answer = node_taken.ORACLE.check(info, Options())
    assert answer.ok is False
    assert "AddBackward0" in str(answer.figures) or "none" in str(answer.figures)


def test_the_matrix_names_models_and_calls():
    rows = node_taken.matrix(KERNEL["swiglu"], Options())
    assert len({row.name for row in rows}) == len(rows) == 38
    cells = {name for row in rows for name in row.cells}
    assert {"3-D", "2-D", "streamed", "checkpointed", "autocast bf16", "3-D, input without gradient"} <= cells
    assert {cell for row in rows for cell in row.cells.values()} == {"kernel", "-"}
    assert all(row.cells["fp32 input"] == ("-" if " dense" in row.name else "kernel") for row in rows)


def test_a_hole_is_told_by_model_and_call():
    info = kernel("Narrow", "linear", Einsum(), takes=lambda parts, x: x.dtype != torch.float16 or x.dim() != 2)
    answer = node_taken.ORACLE.check(info, Options())
    red = {figure.name: figure.value for figure in answer.figures if figure.ok is False}
    assert set(red) == {"fp16 dense, bias", "fp16 dense, no bias", "fp16 nf4-nested, no bias"}
    assert re.search(r"^2-D: \w+Backward0; 2-D, input without gradient: ", red["fp16 dense, bias"])


class CastBack(Entry):
    """Every output in the input's dtype, as only 4-bit layers have it."""

    def __call__(self, x):
        return super().__call__(x).to(x.dtype)


def test_an_output_in_another_dtype_than_pefts_is_seen_although_the_kernel_ran():
    answer = node_taken.ORACLE.check(kernel("CastBack", "linear", Einsum(), entry=CastBack), Options())
    row = next(figure for figure in answer.figures if figure.name == "fp32 dense, bias")
    assert row.value == (
        "autocast bf16: torch.float32, PEFT gives torch.bfloat16; "
        "autocast fp16, 2-D: torch.float32, PEFT gives torch.float16"
    )


class Worked(Entry):
    """Something is done to the kernel's output."""

    def __call__(self, x):
        return super().__call__(x) * 1


def test_work_on_top_of_the_kernels_output_is_not_the_kernels_output():
    answer = node_taken.ORACLE.check(kernel("Worked", "linear", Einsum(), entry=Worked), Options())
    assert answer.ok is False
    assert "MulBackward0" in answer.summary


def test_the_unpatched_model_must_not_have_the_node():
    answer = node_taken.ORACLE.check(replace(EINSUM, node="AddBackward0", patch=lambda model: 1), Options())
    assert answer.ok is False
    assert "the unpatched model has the node" in answer.summary


def test_casts_are_looked_through_and_nothing_else():
    model, x = build(EINSUM, Sample())
    EINSUM.patch(model)
    out = model(x)
    assert reaches(out, EINSUM.node) and reaches(out.double().half(), EINSUM.node)
    assert not reaches(out.view(-1), EINSUM.node) and not reaches(out.detach(), EINSUM.node)
    assert below_casts(out.double()) is out.grad_fn
    assert node_name(out.detach()) == "none"
