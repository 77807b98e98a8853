"""What a run is asked to do and what it hands back: the data between the command line and the runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fastlora_verify.harness.trees.blobs import Blobs
from fastlora_verify.reports.results import Counts as Counts

GIB = 1024**3

# Statuses of a mutant in a column. Only the first two count as a verdict on the tests.
KILLED = "killed"
SURVIVED = "survived"
TIMEOUT = "timeout"
CRASH = "crash"
NOT_VIABLE = "not-viable"
NOT_RUN = "not-run"
NO_SITE = "no-site"  # in this column's source; others have it

# How a killed mutant was killed.
BY_ASSERTION = "assertion"
BY_EXCEPTION = "exception"


@dataclass(frozen=True)
class Column:
    """One tree on one device: a column of the report."""

    id: str  # "head:cpu"
    device: str  # "cpu" | "cuda"


# What is asked of the tests: full counts, or the verdict alone.
COUNT = "count"
VERDICT = "verdict"
REMEMBERED = 8  # tests of a kill

LOCAL, RAY = "local", "ray"  # where tests run


@dataclass(frozen=True)
class Kill:
    """What killed a mutant, of this run or of an earlier one."""

    mutant: str
    mutation: str
    path: str
    scope: str
    tests: tuple[str, ...]  # those that say most first


@dataclass(frozen=True)
class RunOptions:
    """How the mutants are run. Every limit is a floor or a bound, never a guess at a verdict."""

    run_dir: Path  # results, scratch copies and logs; outside the target, or ignored by its git
    workers: int = 0  # children at once; 0: as many as processors
    threads: int = 1  # threads of each child's BLAS and of torch
    audit: int = 0  # this many random mutants again as a cold plain pytest; > 0 adds every survivor
    audit_seed: int = 0
    oracles: bool = False  # also run the oracles on every mutant
    collect_once: bool = True  # where the tests import nothing mutated while they are collected
    select: bool = True  # run only the tests that can reach the mutated code; the record is the same
    mode: str = COUNT  # VERDICT: the likeliest killers first, and a mutant's run ends at its first kill
    kills: tuple[Kill, ...] = ()  # of earlier runs, for that order
    pytest_extra: tuple[str, ...] = ()  # after the target's own pytest_args
    tests: tuple[str, ...] | None = None  # in place of the target's tests
    # Kernels made to raise, as (path in the copy, whole text): the last control. Empty: it isn't run.
    raising_sources: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] = ("torch", "peft", "transformers", "bitsandbytes")  # imported before the fork
    several: bool = False  # one of several trees: a red control or a missing device is a finding, and ends nothing
    beside: bool = False  # of those, one that is set beside the tree under review: its tests may run no kernel
    executor: str = LOCAL  # LOCAL | RAY: where the tests run
    address: str | None = None  # of the Ray cluster
    resume: bool = True  # take results of an interrupted run with the same key
    cold: bool = False  # a new interpreter for each mutant, no fork
    wall_floor: float = 20.0  # s
    wall_factor: float = 10.0  # of the unmutated suite's wall time
    cpu_floor: float = 10.0  # s
    cpu_factor: float = 5.0  # of the unmutated suite's CPU time
    memory_limit: int = 8 * GIB  # bytes of resident memory of a child's process group
    output_limit: int = 4 * 1024**2  # bytes of a child's stdout and stderr that are kept


class Events(Protocol):
    """What the runner tells while it runs. Called from the runner's own thread, one call at a time."""

    def column_started(self, column: Column, mutants: int, done: int) -> None:
        """Controls follow, then `mutants` mutants, of which `done` are known from an interrupted run."""

    def control_done(self, name: str, seconds: float) -> None:
        """A control was green."""

    def mutant_done(self, name: str, column: str, status: str) -> None:
        """One mutant has its outcome in one column."""

    def note(self, text: str) -> None:
        """Something that the user should know and that stops nothing."""


class NoEvents:
    """Says nothing."""

    def column_started(self, column: Column, mutants: int, done: int) -> None:
        pass

    def control_done(self, name: str, seconds: float) -> None:
        pass

    def mutant_done(self, name: str, column: str, status: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass


@dataclass(frozen=True)
class Killer:
    """A test that passed on the unmutated tree and doesn't on the mutant."""

    test: str
    effect: str  # judge.EFFECTS' word, e.g. "fails", "vanished", "skips"
    exception: str
    message: str
    how: str  # BY_ASSERTION | BY_EXCEPTION
    gpu: bool = False  # it has the target's gpu marker


@dataclass(frozen=True)
class MutantOutcome:
    """One mutant in one column."""

    mutant: str
    column: str
    status: str  # KILLED | SURVIVED | TIMEOUT | CRASH | NOT_VIABLE | NOT_RUN
    how: str = ""  # of a kill
    reason: str = ""  # why not killed or survived, one sentence
    counts: Counts = field(default_factory=Counts)
    reached: int = 0  # tests that ran the mutated scope
    triggered: int = 0  # tests that ran the changed line
    reached_import: bool = False  # reached outside of any test: import, collection, session fixtures
    triggered_import: bool = False
    killers: tuple[Killer, ...] = ()
    reached_tests: tuple[tuple[str, bool], ...] = ()  # of survivors: (green test that reached it, it triggered)
    skipped_here: tuple[str, ...] = ()  # tests with the target's gpu marker that were skipped
    differences: tuple[tuple[str, str], ...] = ()  # (test, effect) of changes that kill nothing, e.g. "xfail to xpass"
    seconds: float = 0.0  # wall time of the suite
    cpu_seconds: float = 0.0
    stopped: bool = False  # at the first kill: counts, killers and reach are of the tests that were run
    oracles: tuple[
        Mapping[str, Any], ...
    ] = ()  # OracleResult as plain data; {"oracle", "kernel", "error"} if it raised
    oracle_status: str = ""  # "", "ran", TIMEOUT, CRASH: what became of the oracles' process


@dataclass(frozen=True)
class Control:
    """A control and what it found."""

    name: str  # "unmutated" | "warm equals cold" | "identity" | "raise"
    seconds: float
    detail: str = ""


@dataclass(frozen=True)
class Printed:
    """What one test printed."""

    test: str
    sections: tuple[tuple[str, str], ...]  # (pytest's title, text)


@dataclass(frozen=True)
class Baseline:
    """The unmutated suite in a column."""

    counts: Counts
    seconds: float
    cpu_seconds: float
    skips: tuple[tuple[str, str], ...] = ()  # (test, reason)
    skipped_here: tuple[str, ...] = ()  # those with the target's gpu marker
    printed: tuple[Printed, ...] = ()  # by passing tests
    printed_note: str = ""  # what is missing there, and why


@dataclass(frozen=True)
class AuditDifference:
    """A mutant whose cold plain pytest run says something else than the record."""

    mutant: str
    column: str
    recorded: str
    audited: str


@dataclass(frozen=True)
class OfTree:
    """What a column's tree is, for the record."""

    source: str = ""  # "working tree", "main", "v1+fix.diff"
    tests: str = ""
    source_rev: str = ""  # a commit where it is exactly one, else a digest
    tests_rev: str = ""
    digest: str = ""  # of all its files; "": not looked at
    beside: bool = False  # beside the tree under review: shown, and deciding nothing


@dataclass(frozen=True)
class ColumnOutcome:
    """A column of the report: controls, baseline and every mutant in the order asked for."""

    column: Column
    status: str  # "run" | NOT_RUN
    reason: str = ""  # why not run
    mode: str = "fork"  # "fork" | "spawn" | "cold"
    asked: str = COUNT  # COUNT | VERDICT
    baseline: Baseline | None = None
    oracles: tuple[Mapping[str, Any], ...] = ()  # on the unmutated kernels
    controls: tuple[Control, ...] = ()
    mutants: tuple[MutantOutcome, ...] = ()
    reused: tuple[str, ...] = ()  # names whose outcomes are those of an earlier run
    audited: tuple[str, ...] = ()  # names that were run again
    audit_differences: tuple[AuditDifference, ...] = ()
    device_name: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # "python", "torch", "peft"… in the target's interpreter
    notes: tuple[str, ...] = ()
    blobs: Blobs = field(default_factory=Blobs)  # what was run, by content
    no_device: bool = False
    red: Control | None = None  # that was not green
    tree: OfTree = OfTree()
