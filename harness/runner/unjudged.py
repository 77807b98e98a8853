"""A column in which no mutant is judged, because its device is missing or its suite isn't green by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastlora_verify.harness.errors import NothingToRun
from fastlora_verify.harness.plan import NOT_RUN, Column, ColumnOutcome, Control, MutantOutcome
from fastlora_verify.harness.runner.baseline import baseline_of
from fastlora_verify.harness.runner.controls import UNMUTATED, Red
from fastlora_verify.harness.runner.device import Device
from fastlora_verify.harness.trees.blobs import Blobs
from fastlora_verify.mutations.base import Mutant

_NAMED = 3  # so many tests that pass on a red tree are named


def not_run(column: Column, mutants: Sequence[Mutant], device: Device, blobs: Blobs, reason: str) -> ColumnOutcome:
    """The column with its reason in place of every outcome."""
    return ColumnOutcome(
        column,
        NOT_RUN,
        reason,
        mutants=tuple(MutantOutcome(mutant.name, column.id, NOT_RUN, reason=reason) for mutant in mutants),
        device_name=device.device_name,
        versions=device.versions,
        blobs=blobs,
    )


def red_column(
    column: Column, mutants: Sequence[Mutant], device: Device, blobs: Blobs, red: Red | NothingToRun
) -> ColumnOutcome:
    """The column with the counts of its unmutated suite, where that came to its end."""
    if isinstance(red, NothingToRun):
        outcome = not_run(column, mutants, device, blobs, "no test is collected there")
        return replace(outcome, red=Control(UNMUTATED, 0.0, "no test is collected"))
    what = "the unmutated suite" if red.control == UNMUTATED else f"control {red.control!r}"
    told = f"{what} is red there" + ("" if red.suite and red.control == UNMUTATED else f": {red.problem}")
    outcome = not_run(column, mutants, device, blobs, told)
    if red.suite is None:
        return replace(outcome, red=Control(red.control, 0.0, red.problem))
    facts, end = red.suite
    green = [test for test, case in facts.tests.items() if case.category == "passed"]
    is_few = red.control == UNMUTATED and 0 < len(green) <= _NAMED
    few = f"; these pass: {', '.join(green)}" if is_few else ""
    return replace(outcome, red=Control(red.control, end.seconds, red.problem + few), baseline=baseline_of(facts, end))
