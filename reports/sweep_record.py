"""The record of a sweep: one test under many seeds, or many times, as data and as JSON (`kind` "sweep")."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fastlora_verify.reports.decode import RecordError, decode
from fastlora_verify.reports.record import Environment, Section

SCHEMA_VERSION = 1
KIND = "sweep"

Way = Literal["argument", "shift", "streams", "environment", "repeat", ""]
"""How a seed was given: as the value of the test's argument, added to every seed that the test sets, by starting
the global streams at it, in the environment, or not at all; "" where no run came so far."""

GOOD = ("passed", "xfailed", "xpassed")
SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A number in an assertion. `close` is 1 at the limit and less within it."""

    value: float
    limit: float | None = None
    unit: str = ""  # "x": a multiple of what the limit is a multiple of
    least: bool = False  # the limit is the least that is allowed
    close: float | None = None
    source: str = ""  # the assertion, as it stands in the test; "" in a failure


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one arm."""

    number: int  # the seed, or which repetition it is, from 1
    outcome: str  # pytest's category, or "timeout", "crash", "not-run"
    seconds: float = 0.0
    measured: Measured | None = None  # of the failure, or the comparison that came nearest to its limit
    held: tuple[Measured, ...] = ()  # the comparisons that held, the nearest of each assertion; a few
    exception: str = ""
    message: str = ""  # of a failure; of a skip its reason
    printed: tuple[Section, ...] = ()
    highest: float | None = None  # of the numbers that it prints under labels that every passing run has
    highest_label: str = ""
    edited_line_ran: bool | None = None  # on a mutant


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A number that a test prints under the same label in each of its passing runs."""

    label: str
    lowest: float
    median: float
    highest: float
    highest_at: int  # the run's number


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One parametrisation of the test, but for its seed."""

    test: str  # an id of it
    label: str  # the id with the argument's name where the seed stands
    way: Way = ""
    argument: str = ""
    given: tuple[str, ...] = ()  # seeds that the test itself sets: "torch.manual_seed(3)"
    runs: tuple[Run, ...] = ()
    printed: tuple[Distribution, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SweepColumn:
    """The test on one device."""

    id: str
    device: str
    source: str = ""  # what its source is called: "working tree", a revision, a merge
    tests: str = ""
    source_rev: str = ""
    device_name: str | None = None
    mode: str = "fork"  # "fork", "spawn", or "plain": each run a pytest of its own
    not_run: str | None = None
    notes: tuple[str, ...] = ()
    arms: tuple[Arm, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A whole sweep."""

    schema_version: int = SCHEMA_VERSION
    kind: str = KIND
    tool_version: str
    command: tuple[str, ...]
    started_at: str  # ISO 8601, UTC
    seconds: float
    target: str
    test: str  # as asked for
    unit: Literal["seed", "run"]
    environment: Environment
    columns: tuple[SweepColumn, ...]
    mutant: str | None = None
    saved_as: str = ""


def is_sweep(data: object) -> bool:
    """True for JSON data of a sweep."""
    return isinstance(data, dict) and data.get("kind") == KIND


def dumps(record: SweepRecord) -> str:
    """The record as JSON text in ASCII, ending in a newline."""
    return json.dumps(asdict(record), indent=1) + "\n"


def from_json(data: Any) -> SweepRecord:
    """The record from JSON data. Raises RecordError."""
    if data.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(f"schema version {data.get('schema_version')!r} of a sweep is unknown")
    record: SweepRecord = decode(SweepRecord, data, "record")
    return record
