"""This round beside an earlier one: what was killed then and survives now, the other way round, new and gone.

A mutant's name is its identity: it stays where code elsewhere changes. Columns are compared with those of the
same id, else with the only one of the same device. No text, no Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from fastlora_verify.reports.record import (
    LIBRARIES,
    Baseline,
    Column,
    Counts,
    Environment,
    Gone,
    LastRound,
    MutantRecord,
    Result,
    RunRecord,
    Then,
)
from fastlora_verify.reports.trees import SIDES, Of, contradiction, side_differs


class ComparisonError(ValueError):
    """The earlier record has nothing in common with this one; the message is one sentence."""


@dataclass(frozen=True)
class Change:
    """A verdict that is another one than in the last round."""

    mutant: MutantRecord
    column: str  # this record's id
    then: Then
    now: Result


def with_last_round(record: RunRecord, earlier: RunRecord, file: str) -> RunRecord:
    """The record with what the earlier one, read from `file`, says of the same mutants in the same columns."""
    columns = _matched(record.columns, earlier.columns)
    known = {mutant.name: mutant for mutant in earlier.mutants}
    names = {mutant.name for mutant in record.mutants}
    everywhere = names if record.shard is None else set(record.shard.names)
    by_id = {column.id: column for column in earlier.columns}
    pairs = [(column, by_id[columns[column.id]]) for column in record.columns if column.id in columns]
    same = {
        side: {mine.id for mine, then in pairs if _same(Of("", record, mine), Of("", earlier, then), side)}
        for side in SIDES
    }
    last = LastRound(
        file=file,
        started_at=earlier.started_at,
        columns=columns,
        same_blobs=tuple(mine.id for mine, _ in pairs if mine.id in same["source"] & same["tests"]),
        same_source=tuple(mine.id for mine, _ in pairs if mine.id in same["source"] - same["tests"]),
        other_versions=_other_versions(record, earlier, pairs),
        unmutated={mine.id: _counts(then.baseline) for mine, then in pairs if then.baseline is not None},
        then={name: _then(known[name], columns) for name in known if name in names},
        gone=tuple(_gone(mutant) for name, mutant in known.items() if name not in everywhere),
    )
    return replace(record, last_round=last)


def check_comparable(names: Iterable[str], columns: Iterable[Column], earlier: RunRecord, file: str) -> None:
    """Raises ComparisonError where the earlier record knows none of these mutants or columns, or was edited."""
    problem = contradiction(earlier)
    if problem:
        raise ComparisonError(f"{file} contradicts itself, so it was edited or damaged: {problem}")
    if not {mutant.name for mutant in earlier.mutants} & set(names):
        raise ComparisonError(f"{file} has none of these mutants: it is of another target or of other mutations")
    if not _matched(columns, earlier.columns):
        told = ", ".join(column.id for column in earlier.columns)
        raise ComparisonError(f"{file} has none of these columns: it has {told}")


def lost(record: RunRecord) -> list[Change]:
    """Killed in the last round, survives now, in a column of the tree under review."""
    return _changes(record, "killed", "survived")


def gained(record: RunRecord) -> list[Change]:
    """Survived in the last round, killed now, in a column of the tree under review."""
    return _changes(record, "survived", "killed")


def is_new(mutant: MutantRecord, record: RunRecord) -> bool:
    """True for a mutant that the earlier record doesn't have."""
    return record.last_round is not None and mutant.name not in record.last_round.then


def _changes(record: RunRecord, before: str, after: str) -> list[Change]:
    last = record.last_round
    if last is None:
        return []
    return [
        Change(mutant, column, then, now)
        for mutant in record.mutants
        for column, then in last.then.get(mutant.name, {}).items()
        if (now := mutant.results.get(column)) is not None and not now.beside
        if (then.status, now.status) == (before, after)
    ]


def _matched(columns: Iterable[Column], earlier: Iterable[Column]) -> dict[str, str]:
    """This record's columns that ran, each with the earlier one that it is compared with."""
    mine, theirs = ([column for column in side if column.not_run is None] for side in (columns, earlier))
    ids = {column.id for column in theirs}
    found = {column.id: column.id for column in mine if column.id in ids}
    for column in mine:
        alike = [other for other in theirs if other.device == column.device]
        alone = sum(other.device == column.device for other in mine) == 1
        if column.id not in found and len(alike) == 1 and alone:
            found[column.id] = alike[0].id
    return found


def _same(now: Of, then: Of, side: str) -> bool:
    tests = side == "source" or set(now.record.target.tests) == set(then.record.target.tests)
    return tests and side_differs(now, then, side) == ""


def _then(mutant: MutantRecord, columns: Mapping[str, str]) -> dict[str, Then]:
    """What the earlier record says of a mutant, by this record's columns."""
    return {mine: _short(mutant.results[then]) for mine, then in columns.items() if then in mutant.results}


def _counts(baseline: Baseline) -> Counts:
    return Counts(**{item.name: getattr(baseline, item.name) for item in fields(Counts)})


def _gone(mutant: MutantRecord) -> Gone:
    then = {column: _short(result) for column, result in mutant.results.items()}
    return Gone(name=mutant.name, gist=mutant.gist, then=then)


def _short(result: Result) -> Then:
    counts = {name: getattr(result, name) for name in ("passed", "failed", "errors")}
    return Then(status=result.status, **counts, stopped=result.stopped)


def _other_versions(record: RunRecord, earlier: RunRecord, pairs: list[tuple[Column, Column]]) -> tuple[str, ...]:
    """`torch 2.12.0 then, 2.13.0 now`, each once."""
    told: dict[str, None] = {}
    for mine, then in pairs:
        now, before = _environment(record, mine), _environment(earlier, then)
        for name in LIBRARIES:
            versions = (getattr(before, name), getattr(now, name))
            if versions[0] != versions[1]:
                told[f"{name} {versions[0] or 'missing'} then, {versions[1] or 'missing'} now"] = None
    return tuple(told)


def _environment(record: RunRecord, column: Column) -> Environment:
    return column.environment or record.environment
