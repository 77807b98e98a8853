"""What became of mutants, as parts of the run record: one in a column, what killed it, and an earlier round's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["killed", "survived", "timeout", "crash", "not-viable", "no-site", "not-run"]
How = Literal["assertion", "exception"]


@dataclass(frozen=True)
class Counts:
    """Outcomes of one run of the whole suite, as pytest counts them."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    xfailed: int = 0
    xpassed: int = 0


@dataclass(frozen=True, kw_only=True)
class Killer:
    """A test that passes on the unmutated tree and did not on the mutant."""

    test: str  # pytest's node id
    effect: str = "fails"  # what became of its pass: "fails", "vanished", "skips"…
    exception: str = ""  # the exception's class name
    message: str = ""
    how: How = "assertion"
    gpu: bool | None = None  # it has the target's gpu marker; None: the record is older than this field


@dataclass(frozen=True, kw_only=True)
class ReachedTest:
    """A green test that ran the mutated scope; `triggered` if it ran the changed line itself."""

    test: str
    triggered: bool


@dataclass(frozen=True, kw_only=True)
class Result(Counts):
    """One mutant in one column.

    Where `stopped`, its tests were not run to the end: counts, `reached`, `triggered`, `killers` and `how` are of
    those that were, so they are lower bounds, and a kill by exception may have become one by assertion.
    """

    status: Status
    how: How | None = None  # of a kill: by an assertion of the tests, or only by an exception in the mutated scope
    reached: int = 0  # tests that ran the mutated scope
    triggered: int = 0  # tests in which the mutant's condition was true or its changed line ran
    reached_import: bool = False  # ran outside of any test: import, collection, session fixtures
    triggered_import: bool = False
    killers: tuple[Killer, ...] = ()
    reached_tests: tuple[ReachedTest, ...] = ()  # of survivors; bounded by the writer, so may be shorter than `reached`
    seconds: float = 0.0
    stopped: bool = False  # at the first tests that killed it; only where the column was asked for the verdict alone
    beside: bool = False  # as its column is
    note: str = ""  # why it was neither killed nor survived, or what else a reader must know


@dataclass(frozen=True, kw_only=True)
class Then:
    """A mutant's outcome in one column of an earlier record."""

    status: Status
    passed: int = 0
    failed: int = 0
    errors: int = 0
    stopped: bool = False  # as in `Result`


@dataclass(frozen=True, kw_only=True)
class Gone:
    """A mutant that only the earlier record has."""

    name: str
    gist: str
    then: Mapping[str, Then]  # by the earlier record's column id


@dataclass(frozen=True, kw_only=True)
class LastRound:
    """An earlier record, as far as this one is compared with it."""

    file: str
    started_at: str
    columns: Mapping[str, str]  # this record's column id to what it is compared with, the earlier record's
    same_blobs: tuple[str, ...] = ()  # ids of columns whose source and tests are the same by content
    same_source: tuple[str, ...] = ()  # whose source is the same, and not the tests
    other_versions: tuple[str, ...] = ()  # libraries that were others, in words
    unmutated: Mapping[str, Counts] = field(default_factory=dict)  # by this record's column id
    then: Mapping[str, Mapping[str, Then]] = field(default_factory=dict)  # by mutant, then by this record's column id
    gone: tuple[Gone, ...] = ()
