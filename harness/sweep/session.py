"""One sweep from target to record. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from fastlora_verify.harness import session
from fastlora_verify.harness.byhand import only_one
from fastlora_verify.harness.errors import TargetError, UsageError
from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.revision import cpu_model, source_revision
from fastlora_verify.harness.selection import Selection
from fastlora_verify.harness.sources import read_sources
from fastlora_verify.harness.sweep.run import Ask, Tell, sweep_columns
from fastlora_verify.harness.target import Target
from fastlora_verify.harness.target_file import load_target
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.reports.record import Environment
from fastlora_verify.reports.sweep_record import SweepRecord, dumps

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
    """Runs the sweep and saves its record. Raises UsageError where the wish contradicts itself."""
    if wish.runs and (wish.seeds or wish.env):
        raise UsageError("--runs repeats the test as it is; it goes with neither --seeds nor --seed-env")
    clock, started = monotonic(), datetime.now(UTC)
    columns = session.columns_of(request.devices)
    loaded, mutant = _loaded(request.target, wish.mutant)
    target = session.with_python(loaded, request.python)
    run_dir = session.prepare_run_dir(request.run_dir, target)
    options = RunOptions(run_dir=run_dir, workers=request.workers, threads=request.threads)
    test, paths = _place(target, wish.test)
    seeds = () if wish.runs else wish.seeds or SEEDS
    ask = Ask(test, paths, seeds, wish.runs, wish.env, mutant)
    swept = sweep_columns(target, ask, columns, options, tell)
    versions = next((device.versions for _, device in swept if not device.reason), {})
    saved_as = request.json or run_dir / "sweep.json"
    record = SweepRecord(
        tool_version=session.version(),
        command=request.command,
        started_at=started.isoformat(timespec="seconds"),
        seconds=monotonic() - clock,
        target=target.name,
        test=wish.test,
        unit="run" if wish.runs else "seed",
        environment=_environment(versions, next((d.device_name for _, d in swept if d.device_name), "")),
        columns=tuple(column for column, _ in swept),
        mutant=mutant.name if mutant else None,
        source_rev=source_revision(target, read_sources(target)),
        saved_as=str(saved_as),
    )
    for path in {run_dir / "sweep.json", Path(saved_as)}:
        session.write(path, dumps(record))
    return record


def _loaded(path: Path | None, name: str | None) -> tuple[Target, Mutant | None]:
    if name is None:
        return load_target(path), None
    loaded = session.load(path, Selection((name,)))
    return loaded.target, only_one(loaded.mutants, name)


def _place(target: Target, test: str) -> tuple[str, tuple[str, ...]]:
    """The test as it lies in the copy, and where to collect it: its file, or everywhere for a name alone."""
    if ".py" in test.partition("::")[0]:
        try:
            (inner,) = session.inner_tests(replace(target, tests=()), (test,))
        except TargetError:  # no such file: the nearest ids are among the target's own tests
            return test, target.tests
        return inner, (inner.partition("::")[0],)
    return test, target.tests


def _environment(versions: Mapping[str, str], device_name: str) -> Environment:
    known = {name: versions.get(name) for name in ("python", "torch", "peft", "bitsandbytes", "transformers", "pytest")}
    return Environment(**known, cpu=cpu_model(), device_name=device_name or None)
