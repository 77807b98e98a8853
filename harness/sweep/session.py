"""One sweep from target to record. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from fastlora_verify.harness import session
from fastlora_verify.harness.byhand import only_one
from fastlora_verify.harness.errors import NoDevice, NothingToRun, NoTree, TargetError, UsageError
from fastlora_verify.harness.loading import load
from fastlora_verify.harness.plan import Column, RunOptions
from fastlora_verify.harness.recording import environment
from fastlora_verify.harness.run_folder import near, prepare_run_dir, write
from fastlora_verify.harness.runner.device import Device
from fastlora_verify.harness.selection import Selection
from fastlora_verify.harness.several import Fitted, fitted
from fastlora_verify.harness.sweep.run import Ask, Tell, sweep_column
from fastlora_verify.harness.targets.instead import inner_tests, with_python
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.harness.trees.column_trees import trees_of
from fastlora_verify.harness.trees.columns import ids_of, specs_of
from fastlora_verify.harness.trees.revision import cpu_model, digest_of_sources
from fastlora_verify.harness.trees.scratch_git import Conflicts
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.reports.record import Environment
from fastlora_verify.reports.sweep_record import SweepColumn, SweepRecord, dumps

RECORD = "sweep.json"
SEEDS = tuple(range(20))  # where neither seeds nor runs are asked for


@dataclass(frozen=True)
class Wish:
    """What the command line asks to be swept."""

    test: str
    seeds: tuple[int, ...] = ()
    runs: int = 0
    env: tuple[str, ...] = ()
    mutant: str | None = None


def sweep(request: session.Request, wish: Wish, tell: Tell) -> SweepRecord:
    """Runs the sweep in every column and saves its record.

    Raises UsageError where the wish contradicts itself, and what the only column raises: NothingToRun, NoDevice.
    """
    if wish.runs and (wish.seeds or wish.env):
        raise UsageError("--runs repeats the test as it is; it goes with neither --seeds nor --seed-env")
    if wish.mutant and not request.columns.is_plain:
        raise UsageError("--mutant is of the tree as it lies there; give it without columns of other trees")
    clock, started = monotonic(), datetime.now(UTC)
    specs = specs_of(request.columns, request.devices)
    loaded, mutant = _loaded(request.target, wish.mutant)
    target = with_python(loaded, request.python)
    run_dir = prepare_run_dir(request.run_dir, target)
    options = RunOptions(run_dir=run_dir, workers=request.workers, threads=request.threads)
    test, paths = _place(target, wish.test)
    ask = Ask(test, paths, () if wish.runs else wish.seeds or SEEDS, wish.runs, wish.env, mutant)
    columns = [Column(name, spec.device) for name, spec in zip(ids_of(specs), specs, strict=True)]
    try:
        with trees_of(target, request.columns, specs, paths, run_dir) as trees:
            several = fitted(list(zip(columns, trees, strict=True)), paths)
            swept = [_column(one, ask, options, tell, alone=len(specs) == 1) for one in several]
    except Conflicts as found:
        raise NoTree(found.step, [(one.path, one.kind) for one in found.conflicts]) from found
    devices = [device for _, device in swept if device is not None]
    saved_as = request.json or run_dir / RECORD
    record = SweepRecord(
        tool_version=session.version(),
        command=request.command,
        started_at=started.isoformat(timespec="seconds"),
        seconds=monotonic() - clock,
        target=target.name,
        test=wish.test,
        unit="run" if wish.runs else "seed",
        environment=_environment(devices),
        columns=tuple(column for column, _ in swept),
        mutant=mutant.name if mutant else None,
        saved_as=near(saved_as),
    )
    for path in dict.fromkeys((run_dir / RECORD, saved_as)):
        write(path, dumps(record))
    return record


def _column(
    one: Fitted, ask: Ask, options: RunOptions, tell: Tell, *, alone: bool
) -> tuple[SweepColumn, Device | None]:
    """One column; where there are several, one that can't be run says why."""
    tree = one.tree
    told = SweepColumn(
        id=one.column.id,
        device=one.column.device,
        source=tree.source.name,
        tests=tree.tests.name,
        source_rev=tree.source.commit or digest_of_sources(one.sources),
        notes=one.notes,
    )
    try:
        if not one.tests:
            raise NothingToRun(f"{tree.tests.name} has no {', '.join(ask.paths)}")
        swept, device = sweep_column(one.target, replace(ask, paths=one.tests), one.column, options, tell)
    except (NothingToRun, NoDevice) as failure:
        if alone:
            raise
        return replace(told, not_run=str(failure)), None
    notes = (*told.notes, *swept.notes)
    return replace(swept, source=told.source, tests=told.tests, source_rev=told.source_rev, notes=notes), device


def _loaded(path: Path | None, name: str | None) -> tuple[Target, Mutant | None]:
    if name is None:
        return load_target(path), None
    loaded = load(path, Selection((name,)))
    return loaded.target, only_one(loaded.mutants, name)


def _place(target: Target, test: str) -> tuple[str, tuple[str, ...]]:
    """The test as it lies in the copy, and where to collect it: its file, or everywhere for a name alone."""
    if ".py" in test.partition("::")[0]:
        try:
            (inner,) = inner_tests(replace(target, tests=()), (test,))
        except TargetError:  # no such file: the nearest ids are among the target's own tests
            return test, target.tests
        return inner, (inner.partition("::")[0],)
    return test, target.tests


def _environment(devices: Sequence[Device]) -> Environment:
    names = (device.device_name for device in devices if device.device_name)
    return environment(devices[0].versions if devices else {}, cpu_model(), next(names, None))
