"""A suite before and after a change, as a part of the run record: what was deleted, skipped or loosened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SuiteKind = Literal[
    "test-removed",
    "arm-removed",
    "assertion-removed",
    "loosened",
    "skip-added",
    "not-collected",
    "rewritten",
    "skip-changed",
    "arm-changed",
    "test-moved",
    "arm-continued",
    "expected",
    "tightened",
    "marker-changed",
    "skip-removed",
]

# What the suite lost; what nobody can tell from source and ids; the rest takes nothing away.
EXCEPTIONS: tuple[SuiteKind, ...] = ("test-removed", "arm-removed", "assertion-removed", "loosened", "skip-added")
UNTOLD: tuple[SuiteKind, ...] = ("not-collected", "rewritten", "skip-changed", "arm-changed")


@dataclass(frozen=True, kw_only=True)
class SuiteFinding:
    """One difference between two suites."""

    kind: SuiteKind
    text: str  # one sentence; code in backticks
    base: str = ""  # file:line in the base's tree
    head: str = ""
    tests: tuple[str, ...] = ()  # ids, of the base where it has them


@dataclass(frozen=True, kw_only=True)
class SuiteSide:
    """The suite of one tree."""

    rev: str  # as the command line names it
    commit: str = ""  # or a digest of its tests
    collected: int = 0  # tests that would run


@dataclass(frozen=True, kw_only=True)
class SuiteRecord:
    """Two suites set against each other."""

    base: SuiteSide
    head: SuiteSide
    findings: tuple[SuiteFinding, ...] = ()
    added: tuple[str, ...] = ()  # ids that only the head has
    kept: int = 0  # of the base's ids that the head has under the same id
    continued: int = 0  # that go on as arms of a new parameter, or under another id
    moved: int = 0  # whose test has another name or file, its body being the same
    notes: tuple[str, ...] = ()
