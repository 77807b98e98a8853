"""Whether the kernel ran at all, over everything that a condition at the top of its forward could single out.

Agreement with PEFT proves nothing here: a kernel that hands every call back agrees perfectly. What a kernel
leaves behind is its node in the graph of the output, and the unpatched model must not have it. The matrix has
a row per model (dtype, base, bias, adapted subset, ranks) and a column per way of calling it; each cell also
holds the output's dtype against unpatched PEFT's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import DTYPES, Sample, build
from fastlora_verify.oracles.arms import HANDED_BACK, need_device, node_name, took
from fastlora_verify.oracles.base import (
    Figure,
    NotRunError,
    Options,
    Oracle,
    OracleResult,
    judged,
    measured,
    one_line,
)
from fastlora_verify.oracles.instruments import leaf_like, outputs_of

ID = "node-taken"
KERNEL = "kernel"
NOT_APPLICABLE = "-"
RAISED, OTHER_DTYPE, HAS_NODE = "raised ", ", PEFT gives ", "the unpatched model has the node"

Outputs = tuple[Tensor, ...]
Forward = Callable[[nn.Module, Tensor], Any]


def plain(model: nn.Module, x: Tensor) -> Any:
    """The call as training makes it."""
    return model(x)


def streamed(model: nn.Module, x: Tensor) -> Any:
    """Base weights swapped in for the call, as bare tensors: a 4-bit one carries no quant state."""
    weights = {name: p.data.clone() for name, p in model.named_parameters() if is_base_weight(name)}
    return torch.func.functional_call(model, weights, (x,))


def is_base_weight(name: str) -> bool:
    """Whether a parameter's name is that of a base layer's weight."""
    return name.endswith(".weight") and "lora_" not in name


def checkpointed(model: nn.Module, x: Tensor) -> Any:
    """Under non-reentrant checkpointing, which leaves the kernel's node on the output."""
    return checkpoint(model, x, use_reentrant=False)


@dataclass(frozen=True)
class Call:
    """A column: how the model is called, and with what kind of x."""

    name: str
    shape: tuple[int, ...] = (2, 3)
    input_grad: bool = True
    forward: Forward = plain
    autocast: torch.dtype | None = None
    x_dtype: torch.dtype | None = None  # of an input that is not in the base's dtype; 4-bit bases alone take it


CALLS = (
    Call("3-D"),
    Call("2-D", (6,)),
    Call("3-D, input without gradient", input_grad=False),
    Call("2-D, input without gradient", (6,), input_grad=False),
    Call("autocast bf16", autocast=torch.bfloat16),
    Call("autocast fp16, 2-D", (6,), autocast=torch.float16),
    Call("streamed", forward=streamed),
    Call("streamed, input without gradient", forward=streamed, input_grad=False),
    Call("checkpointed", forward=checkpointed),
    Call("fp32 input", x_dtype=torch.float32),
)


def samples(info: KernelInfo) -> Iterator[dict[str, Any]]:
    """The rows, as fields of `Sample`."""
    for dtype in ("fp32", "bf16", "fp16", "float64", "mixed"):
        for bias in (True, False):
            yield {"dtype": dtype, "base": "dense", "bias": bias}
    for base in ("nf4", "nf4-nested", "fp4"):
        yield {"dtype": "bf16", "base": base, "bias": False}
        yield {"dtype": "mixed", "base": base, "bias": True}
    for dtype in ("fp16", "fp32"):
        yield {"dtype": dtype, "base": "nf4-nested", "bias": False}
    yield {"dtype": "fp32", "base": "dense", "bias": False, "ranks": (4,) * len(info.projections)}
    yield {"dtype": "mixed", "base": "nf4-nested", "bias": False, "ranks": (4,) * len(info.projections)}
    for size in range(1, len(info.projections)):
        for adapted in combinations(info.projections, size):
            yield {"dtype": "mixed", "base": "dense", "bias": False, "adapted": adapted}
            yield {"dtype": "fp32", "base": "dense", "bias": True, "adapted": adapted}
            yield {"dtype": "mixed", "base": "nf4-nested", "bias": False, "adapted": adapted}


@dataclass(frozen=True)
class Row:
    """A model of the matrix and what each call of it came to: "kernel", what went wrong, or "-"."""

    name: str
    cells: Mapping[str, str]


def check(info: KernelInfo, options: Options) -> OracleResult:
    """The whole matrix; a figure per model."""
    rows: list[Row] = []
    figures = measured(ID, partial(all_figures, info, options, rows))
    cells = [cell for row in rows for cell in row.cells.values() if cell != NOT_APPLICABLE]
    told = f"the kernel ran in {cells.count(KERNEL)} of {len(cells)} cells, {len(rows)} models"
    return judged(ID, info.name, figures, told)


def all_figures(info: KernelInfo, options: Options, rows: list[Row]) -> list[Figure]:
    """A figure per model. The rows are appended to `rows`."""
    need_device(options.device)
    seed = options.seeds[0] if options.seeds else 0
    figures: list[Figure] = []
    for fields in samples(info):
        name = row_name(fields)
        sample = Sample(seed=seed, device=options.device, **fields)
        figures += measured(name, partial(row_figures, info, name, sample, rows))
    return figures


def row_figures(info: KernelInfo, name: str, sample: Sample, rows: list[Row]) -> list[Figure]:
    """How many calls of one model went through the kernel, or what the others did instead."""
    row = Row(name, row_cells(info, sample))
    rows.append(row)
    asked = {call: cell for call, cell in row.cells.items() if cell != NOT_APPLICABLE}
    holes = [f"{call}: {cell}" for call, cell in asked.items() if cell != KERNEL]
    if not asked:
        raise NotRunError("PEFT raises in every call")
    if not info.declared:
        return [told_figure(name, asked, crossed(sample))]
    if holes:
        return [Figure(name, "; ".join(holes), KERNEL, ok=False)]
    return [Figure(name, len(asked), len(asked), "calls through the kernel", True)]


def told_figure(name: str, asked: Mapping[str, str], unusual: frozenset[str]) -> Figure:
    """A row of a kernel that nothing is declared of: it may hand back what it likes, and then PEFT runs.

    It may not raise where PEFT doesn't, nor give outputs of another dtype. In calls that are `unusual` even that
    is told and not judged.
    """
    usual = {call: cell for call, cell in asked.items() if call not in unusual}
    holes = [f"{call}: {cell}" for call, cell in asked.items() if cell != KERNEL]
    taken, cells = len(asked) - len(holes), tuple(asked.items())
    if not taken:
        return Figure(name, f"{HANDED_BACK} in all {len(asked)} calls: {holes[0]}", ok=fault_of(usual), cells=cells)
    told = f"{taken} of {len(asked)} calls through the kernel; {'; '.join(holes)}"
    ok = fault_of(usual) is None
    if not holes:
        return Figure(name, taken, unit="calls through the kernel", ok=ok, cells=cells)
    return Figure(name, told, ok=ok, cells=cells)


def crossed(sample: Sample) -> frozenset[str]:
    """The calls under an autocast to the other 16-bit dtype than the model's: no training has it."""
    own = DTYPES[sample.dtype]
    if own not in (torch.bfloat16, torch.float16):
        return frozenset()
    return frozenset(call.name for call in CALLS if call.autocast not in (None, own))


def fault_of(cells: Mapping[str, str]) -> bool | None:
    """False where a call did worse than PEFT; None where all ran, whoever ran them."""
    worse = any(cell.startswith(RAISED) or OTHER_DTYPE in cell or cell == HAS_NODE for cell in cells.values())
    return False if worse else None


def row_cells(info: KernelInfo, sample: Sample) -> dict[str, str]:
    """Each call of one model, unpatched and then patched."""
    model, x = build(info, sample)
    calls = [call for call in CALLS if call.x_dtype is None or sample.base != "dense"]
    before = {call.name: attempt(call, model, x) for call in calls}
    count = info.patch(model)
    if count < 1:
        return {call.name: f"patched {count} blocks" for call in calls}
    cells = {call.name: NOT_APPLICABLE for call in CALLS}
    for call in calls:
        unpatched = before[call.name]
        if isinstance(unpatched, tuple):  # where PEFT itself raises there is nothing to ask of the kernel
            cells[call.name] = cell(info, unpatched, attempt(call, model, x))
    return cells


def attempt(call: Call, model: nn.Module, x: Tensor) -> Outputs | str:
    """The call's outputs, or what it raised."""
    x = x.detach().reshape(*call.shape, x.shape[-1])
    x = leaf_like(x.to(call.x_dtype or x.dtype), call.input_grad)
    cast = torch.autocast(x.device.type, call.autocast) if call.autocast else nullcontext()
    try:
        with cast:
            return outputs_of(call.forward(model, x))
    except Exception as error:
        return one_line(error)


def cell(info: KernelInfo, unpatched: Outputs, got: Outputs | str) -> str:
    """What one call came to."""
    if isinstance(got, str):
        return f"{RAISED}{got}"
    if any(took(info, out) for out in unpatched):
        return HAS_NODE
    strangers = {node_name(out) for out in got if not took(info, out)}
    if strangers:
        return " and ".join(sorted(strangers))
    for out, reference in zip(got, unpatched, strict=True):
        if out.dtype != reference.dtype:
            return f"{out.dtype}{OTHER_DTYPE}{reference.dtype}"
    return KERNEL


def row_name(fields: Mapping[str, Any]) -> str:
    """A row in words: `mixed nf4-nested, no bias, q_proj and v_proj adapted`."""
    words = [f"{fields['dtype']} {fields['base']}", "bias" if fields["bias"] else "no bias"]
    if "adapted" in fields:
        words.append(" and ".join(fields["adapted"]) + " adapted")
    if "ranks" in fields:
        words.append("equal ranks")
    return ", ".join(words)


def matrix(info: KernelInfo, options: Options) -> list[Row]:
    """The matrix itself, for printing: a hole in it is a configuration that nobody looked at."""
    rows: list[Row] = []
    all_figures(info, options, rows)
    return rows


ORACLE = Oracle(
    id=ID,
    title="The kernel ran",
    sees="a call handed back to PEFT for its dtype, base, bias, shape, subset, ranks, autocast or streaming",
    blind_to="what the kernel computes; reentrant checkpointing, whose graph does not show the node",
    check=check,
)
