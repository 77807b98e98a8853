"""The run record: what a run did and found, as data and as JSON (schema version 1).

The harness writes it, the reports read it; nothing else passes between them. JSON names are the field names,
with one addition: a mutant also has `kernel`, its kernels' names joined by a comma.

Revisions (`source_rev`, `tests_rev`) are a commit where the tree is one, else `sha256:` and a digest of its
content. Times are seconds of wall clock; `started_at` is ISO 8601 in UTC. `passed`, `failed`, `errors`,
`skipped`, `xfailed`, `xpassed` are the numbers that a plain pytest run of the whole suite prints, but where a result
is `stopped`.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastlora_verify.reports.decode import RecordError, decode, encode
from fastlora_verify.reports.origins import RunOrigin, Shard
from fastlora_verify.reports.results import Counts, Gone, How, Killer, LastRound, ReachedTest, Result, Status, Then
from fastlora_verify.reports.suite_record import SuiteRecord

SCHEMA_VERSION = 1

Value = float | int | str | None
Mode = Literal["fork", "spawn", "cold"]
Asked = Literal["count", "verdict"]

# fmt: off
__all__ = [
    "LIBRARIES", "SCHEMA_VERSION", "Counts", "Gone", "How", "Killer", "LastRound", "ReachedTest", "RecordError",
    "Result", "RunOrigin", "RunRecord", "Shard", "Status", "Then", "dumps", "from_json", "loads", "to_json",
]
# fmt: on


@dataclass(frozen=True, kw_only=True)
class Baseline(Counts):
    """The unmutated suite in one column."""

    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Control:
    """One check of the column before any mutant: unmutated, warm-equals-cold, identity, raise."""

    name: str
    ok: bool
    summary: str
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Section:
    """Something that a test printed, under pytest's title for it ("Captured stdout call")."""

    title: str
    text: str  # shortened by the writer, which says so in it


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What a passing test of the unmutated suite printed."""

    test: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One tree on one device."""

    id: str  # "head:cpu"
    device: str  # "cpu" | "cuda"
    source: str = ""  # what the user calls the tree of its source: "working tree", "main", "v1+fix.diff"
    tests: str = ""  # and that of its tests
    source_rev: str = ""
    tests_rev: str = ""
    baseline: Baseline | None = None  # None: the suite did not run here
    controls: tuple[Control, ...] = ()
    mode: Mode = "fork"  # how children start; "cold": a new interpreter each, why is in `notes`
    asked: Asked = "count"  # "verdict": a mutant's tests end at its first kill, see `Result.stopped`
    reused: tuple[str, ...] = ()  # mutants whose results are those of an earlier run: nothing that counts changed
    needs_card: tuple[str, ...] = ()  # tests that are skipped here for want of a card
    device_name: str | None = None
    not_run: str | None = None  # why nothing ran in this column
    notes: tuple[str, ...] = ()
    printed: tuple[Printed, ...] = ()  # by passing tests of the unmutated suite; bounded by the writer
    printed_note: str = ""  # what is missing there, and why
    tree_digest: str = ""  # of all files of the tree, modes included; "": the working tree, run alone
    beside: bool = False  # beside the tree under review: shown, and deciding nothing
    source_digest: str = ""  # of the contents of all its files; "": the record is older than this field
    tests_digest: str = ""
    identity: str = ""  # of its revisions and digests together: an edit of one of them shows
    environment: Environment | None = None  # this column's own; None: as the run's


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number that an oracle measured. `ok` None: it is reported, not judged."""

    name: str
    value: Value  # a word where nothing could be measured
    limit: Value = None
    unit: str = ""
    ok: bool | None = None


@dataclass(frozen=True, kw_only=True)
class OracleRecord:
    """What one oracle says of one kernel. `ok` None: it could not say."""

    oracle: str
    kernel: str
    ok: bool | None
    summary: str
    figures: tuple[Figure, ...] = ()
    column: str = ""
    compared: bool = False  # with the unmutated kernel's figures: what is said there is not said of this


@dataclass(frozen=True, kw_only=True)
class MutantRecord:
    """One changed source and what each column and oracle made of it."""

    name: str
    mutation: str
    family: str
    kernels: tuple[str, ...]
    file: str  # relative to the target's copy
    line: int
    scope: str
    gist: str
    diff: str
    options: tuple[str, ...] = ()  # of the command line that make it: beside its name, or all of an edit
    results: Mapping[str, Result] = field(default_factory=dict)  # by column id
    oracles: tuple[OracleRecord, ...] = ()
    allowed: str | None = None  # the written reason of an allowance


@dataclass(frozen=True, kw_only=True)
class NoSiteRecord:
    """A mutation that finds no place in a kernel, and why."""

    mutation: str
    kernel: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TargetRecord:
    """Which tree was under review."""

    name: str
    file: str
    kernels: tuple[str, ...]
    tests: tuple[str, ...]


LIBRARIES = ("python", "torch", "peft", "bitsandbytes", "transformers", "pytest")  # whose versions are kept


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the target ran on; a version is None where the library is not installed."""

    python: str | None = None
    torch: str | None = None
    peft: str | None = None
    bitsandbytes: str | None = None
    transformers: str | None = None
    pytest: str | None = None
    cpu: str | None = None
    device_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class AuditDifference:
    """A mutant whose plain pytest run on an edited copy disagrees with the record."""

    mutant: str
    column: str
    recorded: str
    plain: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Mutants that were run again as plain pytest on edited copies."""

    checked: int
    differences: tuple[AuditDifference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ConflictRecord:
    """A path that could not be merged."""

    path: str
    kind: str  # git's word: "content", "add/add", "modify/delete"…
    text: str = ""  # git's sentence


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Why there was no tree to run on: a merge or a rebase that conflicts."""

    step: str
    conflicts: tuple[ConflictRecord, ...]


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A whole run."""

    schema_version: int = SCHEMA_VERSION
    tool_version: str
    command: tuple[str, ...]
    started_at: str
    seconds: float = 0.0
    target: TargetRecord
    environment: Environment
    columns: tuple[Column, ...]
    mutants: tuple[MutantRecord, ...] = ()
    no_sites: tuple[NoSiteRecord, ...] = ()
    faults: tuple[str, ...] = ()  # mutations that made something that is no mutant: a fault of this tool
    faults_elsewhere: tuple[str, ...] = ()  # the same of mutations that a file or another package offers
    oracles: tuple[OracleRecord, ...] = ()  # on the unmutated kernels
    audit: Audit | None = None
    saved_as: str = ""  # where this record lies as JSON, as the user knows the place
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by digest: paths in the copy, their SHA-256
    merged: tuple[RunOrigin, ...] = ()  # the runs that a merged record is made of
    shard: Shard | None = None  # `mutants` are one part of the run's; the others are in other records
    stopped: Stopped | None = None  # in place of columns
    suite: SuiteRecord | None = None  # the suite set against that of another revision
    last_round: LastRound | None = None  # what an earlier record says of the same mutants


def to_json(record: RunRecord) -> dict[str, Any]:
    """The record as data that `json.dumps` takes."""
    data: dict[str, Any] = encode(record)
    for mutant in data["mutants"]:
        mutant["kernel"] = ", ".join(mutant["kernels"])
    return data


def from_json(data: object) -> RunRecord:
    """The record from JSON data; unknown names are ignored.

    Raises RecordError, one sentence, for another schema version, a missing name or a value of another type.
    """
    if not isinstance(data, dict) or "schema_version" not in data:
        raise RecordError("not a run record of fastlora-verify: it has no schema_version")
    version = data["schema_version"]
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"schema version {version!r} is unknown: this fastlora-verify reads version {SCHEMA_VERSION}; "
            "read the record with the release that wrote it"
        )
    record: RunRecord = decode(RunRecord, data, "record")
    return record


def dumps(record: RunRecord) -> str:
    """The record as JSON text in ASCII, ending in a newline: a line an entry, and a line each item of its lists."""
    entries = []
    for name, value in to_json(record).items():
        items = ",\n  ".join(map(json.dumps, value)) if isinstance(value, tuple) else ""
        entries.append(f' "{name}": ' + (f"[\n  {items}\n ]" if items else json.dumps(value)))
    return "{\n" + ",\n".join(entries) + "\n}\n"


def loads(text: str) -> RunRecord:
    """The record from JSON text; raises RecordError also when the text is no JSON."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(f"not JSON: {error.msg} at line {error.lineno}") from error
    except RecursionError as error:
        raise RecordError("not JSON: nested too deeply") from error
    except ValueError as error:  # of a number with thousands of digits
        raise RecordError(f"not JSON: {error}") from error
    collects = gc.isenabled()
    gc.disable()  # no search for garbage meanwhile: all that is made lives as long as the record
    try:
        return from_json(data)
    finally:
        if collects:
            gc.enable()
