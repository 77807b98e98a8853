"""Putting a kernel on a model and taking it off again.

Patching twice is patching once. Unpatching gives the model back as it was: no attribute left on any module, PEFT's
own numbers, no node; and patching again works. Nothing is said of several kernels on one model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.arms import HANDED_BACK, need_device, ran
from fastlora_verify.oracles.base import (
    Figure,
    NotRunError,
    Options,
    Oracle,
    OracleResult,
    Value,
    judged,
    measured,
    one_line,
)
from fastlora_verify.oracles.instruments import run_block

ID = "lifecycle"
RUNS = "the kernel runs when patched"


def check(info: KernelInfo, options: Options) -> OracleResult:
    """On, on again, off, off again, on."""
    measure = all_figures if info.declared else told_figures
    figures = measured(ID, partial(measure, info, Sample(device=options.device)))
    return judged(ID, info.name, figures, "patched once, unpatched without a trace")


def told_figures(info: KernelInfo, sample: Sample) -> list[Figure]:
    """The same of a kernel that nothing is declared of: what it counts and leaves on modules is told, not judged."""
    free = ("blocks", "attributes")
    figures = [replace(f, ok=None) if f.name.startswith(free) else f for f in all_figures(info, sample)]
    if next(f for f in figures if f.name == RUNS).ok is False:
        raise NotRunError(HANDED_BACK)
    return figures


def all_figures(info: KernelInfo, sample: Sample) -> list[Figure]:
    """Every step of one model's life, in order."""
    need_device(sample.device)
    model, x = build(info, sample)
    before, want = attributes(model), run_block(model, x, dtype=None)
    figures = [must("blocks patched", changed(info, info.patch, model), 1)]
    figures.append(must("blocks patched a second time", changed(info, info.patch, model), 0))
    figures.append(must(RUNS, ran(info, model, x), True))
    figures.append(must("blocks unpatched", changed(info, info.unpatch, model), 1))
    figures.append(must("blocks unpatched a second time", changed(info, info.unpatch, model), 0))
    figures.append(must("the kernel runs when unpatched", ran(info, model, x), False))
    traces = ", ".join(sorted(attributes(model) ^ before)) or "none"
    figures.append(must("attributes left behind or lost", traces, "none"))
    got = run_block(model, x, dtype=None)
    same = got.keys() == want.keys() and all(torch.equal(got[name], want[name]) for name in want)
    figures.append(must("PEFT's own numbers when unpatched", same, True))
    figures.append(must("blocks patched again", changed(info, info.patch, model), 1))
    figures.append(must("the kernel runs when patched again", ran(info, model, x), True))
    return figures


def changed(info: KernelInfo, change: Callable[[nn.Module], int], model: nn.Module) -> int | str:
    """The count that patching or unpatching gives; of a kernel that nothing is declared of, also what it raises."""
    try:
        return change(model)
    except Exception as error:
        if info.declared or isinstance(error, NotRunError):
            raise
        return f"raises {one_line(error)}"


def must(name: str, value: Value, limit: Value) -> Figure:
    """A step that has one right answer."""
    return Figure(name, value, limit, ok=value == limit, drift=0)


def attributes(model: nn.Module) -> set[str]:
    """Every instance attribute of every module."""
    return {f"{name}.{attribute}".lstrip(".") for name, module in model.named_modules() for attribute in vars(module)}


ORACLE = Oracle(
    id=ID,
    title="On, on again, off, and nothing left",
    sees="a block patched twice, an attribute left behind by unpatching, a kernel that stays or does not come back",
    blind_to="several kernels on one model; hooks; pickling; what a deep copy shares (see calls)",
    check=check,
)
