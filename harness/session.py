"""One run from target to record: plan, select, run, write down. Nothing is printed here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import monotonic

from fastlora_verify.harness.ask import Question, ask_columns, has_kernel_entries
from fastlora_verify.harness.errors import FileError, NothingToRun, PythonError, UnknownDevice
from fastlora_verify.harness.plan import Column, Events, RunOptions
from fastlora_verify.harness.raising import raising_sources
from fastlora_verify.harness.recording import Told, run_record, save
from fastlora_verify.harness.records import compared, read_previous
from fastlora_verify.harness.revision import cpu_model, source_revision, tests_revision
from fastlora_verify.harness.roles import check_roles
from fastlora_verify.harness.run import run_columns
from fastlora_verify.harness.selection import Selection, check_allowances, select, wanted_mutations
from fastlora_verify.harness.sources import check_tests, on_disk, read_sources
from fastlora_verify.harness.target import Target
from fastlora_verify.harness.target_file import find_executable, load_target
from fastlora_verify.mutations.base import Mutant, NoSite
from fastlora_verify.mutations.plan import Plan, plan_mutants
from fastlora_verify.mutations.registry import MUTATIONS
from fastlora_verify.mutations.source import SourceFile
from fastlora_verify.reports.record import RunRecord, dumps

DEVICES = ("cpu", "cuda")
NO_ORACLES = "no oracle was asked: the target's tree has no fastlora_verify.kernels.database"
RUNS = ".fastlora-verify"  # in the working folder; ignored by git, never copied


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    command: tuple[str, ...]
    target: Path | None = None
    python: str | None = None
    devices: tuple[str, ...] = ("cpu",)
    tests: tuple[str, ...] = ()
    run_dir: Path | None = None
    json: Path | None = None
    previous: tuple[Path, ...] = ()  # records of an earlier round
    workers: int = 0
    threads: int = 1
    audit: int = 0
    oracles: bool = True
    select: bool = True


@dataclass(frozen=True)
class Loaded:
    """A target with its sources and the mutants that were asked for."""

    target: Target
    sources: Mapping[str, SourceFile]
    plan: Plan
    mutants: tuple[Mutant, ...]
    no_sites: tuple[NoSite, ...]  # of the kernels that were asked for


def version() -> str:
    """This distribution's version."""
    return metadata.version("fastlora-verify")


def load(path: Path | None, selection: Selection, events: Events | None = None) -> Loaded:
    """Reads the target, plans and selects. Raises TargetError, UnknownName or NothingToRun."""
    target = load_target(path)
    sources = read_sources(target)
    mutations = wanted_mutations(selection, target)
    if not mutations:
        raise NothingToRun("nothing to run: no mutation of the names given is of the families given")
    check_roles(target, sources)
    plan = plan_mutants(sources, target.kernels, target.instruments, mutations)
    if events is not None:
        for fault in plan.faults:
            events.note(f"a fault of fastlora-verify, this mutant is not run: {fault}")
    if mutations == MUTATIONS:
        check_allowances(plan, target)
    asked = selection.kernels or tuple(kernel.name for kernel in target.kernels)
    no_sites = tuple(no for no in plan.no_sites if no.kernel in asked)
    return Loaded(target, sources, plan, select(plan, selection), no_sites)


def mutate(request: Request, selection: Selection, events: Events) -> RunRecord:
    """Runs the selected mutants in every column and saves the record."""
    clock, started = monotonic(), datetime.now(UTC)
    columns = columns_of(request.devices)
    loaded = load(request.target, selection, events)
    earlier = read_previous(request.previous, (m.name for m in loaded.mutants), ((c.id, c.device) for c in columns))
    target = with_python(loaded.target, request.python)
    tests = inner_tests(target, request.tests)
    run_dir = prepare_run_dir(request.run_dir, target)
    oracles = request.oracles and has_kernel_entries(target)
    options = RunOptions(
        run_dir=run_dir,
        workers=request.workers,
        threads=request.threads,
        audit=request.audit,
        oracles=oracles,
        select=request.select,
        tests=tests or None,
        raising_sources=raising_sources(target, loaded.sources, _kernels_of(loaded)),
    )
    outcomes = run_columns(target, loaded.mutants, columns, options, events)
    told = _told(request, target, loaded.sources, tests or target.tests, run_dir, started, monotonic() - clock)
    if request.oracles and not oracles:
        told = replace(told, notes=(NO_ORACLES,))
    record = run_record(target, told, outcomes, loaded.mutants, loaded.no_sites, loaded.plan.faults)
    return _saved(compared(record, earlier, request.previous), request, run_dir)


def oracle(request: Request, question: Question) -> RunRecord:
    """Asks the oracles about the unmutated kernels and saves the record."""
    clock, started = monotonic(), datetime.now(UTC)
    columns = columns_of(request.devices)
    target = with_python(load_target(request.target), request.python)
    sources = read_sources(target)
    run_dir = prepare_run_dir(request.run_dir, target)
    options = RunOptions(run_dir=run_dir, threads=request.threads)
    outcomes = ask_columns(target, columns, question, options)
    told = _told(request, target, sources, target.tests, run_dir, started, monotonic() - clock)
    return _saved(run_record(target, told, outcomes), request, run_dir)


def columns_of(devices: Sequence[str]) -> list[Column]:
    """A column a device, each once. Raises UnknownDevice."""
    for device in devices:
        if device not in DEVICES:
            raise UnknownDevice(device)
    return [Column(f"head:{device}", device) for device in dict.fromkeys(devices)]


def with_python(target: Target, python: str | None) -> Target:
    """The target with the interpreter of the command line. Raises PythonError if there is no such file."""
    if python is None:
        return target
    found = find_executable(python, Path.cwd())
    if found is None:
        raise PythonError(python, "is not an executable file")
    return replace(target, python=found)


def inner_tests(target: Target, tests: Sequence[str]) -> tuple[str, ...]:
    """The command line's test paths, in the copy. They may be given as they lie on disk, too.

    Raises TargetError for one that is nowhere, NothingToRun where neither the command line nor the target has any.
    """
    inner = tuple(_inner_test(target, test) for test in tests)
    if not (inner or target.tests):
        raise NothingToRun(f"nothing to run: {target.file} names no tests; fill its key target.tests, or give --tests")
    check_tests(target, inner or target.tests, "--tests" if inner else "target.tests")
    return inner


def _inner_test(target: Target, test: str) -> str:
    path, colons, rest = test.partition("::")
    if on_disk(target, path) is not None:
        return test
    folders = [*target.place, *([("", target.root)] if target.root is not None else [])]
    real = Path(path).resolve()
    for inner, folder in folders:
        if real.is_relative_to(folder) and real.exists():
            relative = (Path(inner) / real.relative_to(folder)).as_posix()
            return f"{relative}{colons}{rest}"
    return test


def prepare_run_dir(path: Path | None, target: Target) -> Path:
    """Makes the run's folder; git ignores its content. Raises FileError if that can't be done."""
    folder = path if path is not None else Path.cwd() / RUNS / _folder_name(target.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = (folder if path is not None else folder.parent) / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise FileError(folder, f"the run's folder cannot be made: {error.strerror}") from error
    return folder.resolve()


def _folder_name(name: str) -> str:
    """A target's name as that of one folder, whatever stands in it."""
    return re.sub(r"[^\w.+@ -]", "-", name)[:60].strip(". ") or "target"


def _kernels_of(loaded: Loaded) -> set[str]:
    return {kernel for mutant in loaded.mutants for kernel in mutant.kernels}


def _told(
    request: Request,
    target: Target,
    sources: Mapping[str, SourceFile],
    tests: tuple[str, ...],
    run_dir: Path,
    started: datetime,
    seconds: float,
) -> Told:
    return Told(
        tool_version=version(),
        command=request.command,
        started_at=started.isoformat(timespec="seconds"),
        seconds=seconds,
        cpu=cpu_model(),
        source_rev=source_revision(target, sources),
        tests_rev=tests_revision(target, tests),
        tests=tests,
        saved_as=str(request.json) if request.json else _near(run_dir / "record.json"),
    )


def _near(path: Path) -> str:
    """A path as the user would write it: relative where it lies below the working folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _saved(record: RunRecord, request: Request, run_dir: Path) -> RunRecord:
    text = dumps(record)
    for path in (run_dir / "record.json", request.json):
        if path is not None:
            write(path, text)
    return record


def write(path: Path, text: str) -> None:
    """Writes a file of the command line. Raises FileError."""
    try:
        save(text, path)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from error
