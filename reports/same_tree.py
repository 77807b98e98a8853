"""Whether records may be merged: of the same trees by content, of other runs, their mutants the same edits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from fastlora_verify.reports.record import Column, MutantRecord, RunOrigin, RunRecord
from fastlora_verify.reports.trees import SIDES, Of, contradiction, side_differs, tree_name

Named = tuple[str, RunRecord]  # the name of its file, the record


class MergeError(ValueError):
    """The records can't be one table; the message is one sentence."""


def origins(name: str, record: RunRecord) -> tuple[RunOrigin, ...]:
    """The runs that a record is made of; `name` is its file."""
    own = RunOrigin(
        file=name,
        tool_version=record.tool_version,
        command=record.command,
        started_at=record.started_at,
        seconds=record.seconds,
        columns=tuple(column.id for column in record.columns),
        shard=str(record.shard or ""),
    )
    return record.merged or (own,)


def check_runs(named: Sequence[Named]) -> None:
    """Raises MergeError where one run is given twice, or the runs were of other tests."""
    for (name, record), (other_name, other) in combinations(named, 2):
        for one in origins(name, record):
            if any(_same_run(one, two) for two in origins(other_name, other)) and _share_a_result(record, other):
                raise MergeError(f"{name} and {other_name} hold the same run, of {one.started_at}: give each run once")
        mine, theirs = set(record.target.tests), set(other.target.tests)
        if mine != theirs:
            different = min(mine ^ theirs)
            holder = name if different in mine else other_name
            raise MergeError(f"{name} and {other_name} are not of the same tests: only {holder} ran {different}")


def _same_run(one: RunOrigin, other: RunOrigin) -> bool:
    return (one.started_at, one.seconds, one.command) == (other.started_at, other.seconds, other.command)


def _share_a_result(record: RunRecord, other: RunRecord) -> bool:
    """Whether some column is the same in both: one run's record may have been taken apart by hand."""
    return any(_content(record, a) == _content(other, b) for a in record.columns for b in other.columns)


def _content(record: RunRecord, column: Column) -> tuple[object, ...]:
    results = tuple((mutant.name, mutant.results.get(column.id)) for mutant in record.mutants)
    answers = tuple(answer for answer in record.oracles if answer.column == column.id)
    environment = column.environment or record.environment
    return (column.device, column.device_name, column.baseline, column.not_run, environment, results, answers)


def check_trees(named: Sequence[Named]) -> None:
    """Raises MergeError where trees of one name differ, where no tree is common, or where it can't be told."""
    for (name, record), (other_name, other) in combinations(named, 2):
        pairs = [(a, b) for a in _ran(record) for b in _ran(other) if tree_name(a) == tree_name(b)]
        for mine, theirs in pairs:
            problem = _problem(Of(name, record, mine), Of(other_name, other, theirs))
            if problem:
                raise MergeError(f"{name} and {other_name} are not of the same tree: {problem}")
        if not pairs and not _have_one_in_common(record, other):
            told = [", ".join(dict.fromkeys(map(tree_name, r.columns))) or "none" for r in (record, other)]
            raise MergeError(
                f"{name} and {other_name} have no tree in common: {told[0]} in the first and {told[1]} in the "
                "second are of other files"
            )
    for name, record in named:
        problem = contradiction(record)
        if problem:
            raise MergeError(f"{name} contradicts itself, so it was edited or damaged: {problem}")


def _problem(one: Of, other: Of) -> str:
    """What keeps two columns from standing side by side; empty if nothing does."""
    for side in SIDES:
        differs = side_differs(one, other, side)
        if differs is None:
            return f"one of them does not say of which {side} its column {one.column.id} is"
        if differs:
            edited = [
                f"{of.name} contradicts itself: {told}" for of in (one, other) if (told := contradiction(of.record))
            ]
            return "; ".join([f"the {side} of {tree_name(one.column)} differs ({differs})", *edited])
    return ""


def _have_one_in_common(record: RunRecord, other: RunRecord) -> bool:
    pairs = [(Of("", record, a), Of("", other, b)) for a in _ran(record) for b in _ran(other)]
    return any(all(side_differs(a, b, side) == "" for side in SIDES) for a, b in pairs)


def _ran(record: RunRecord) -> list[Column]:
    """The columns that say something of a tree: those of older records that did not run may not."""
    return [column for column in record.columns if column.not_run is None or column.source_digest]


def check_mutants(named: Sequence[Named]) -> None:
    """Raises MergeError where one name stands for two edits."""
    known: dict[str, tuple[str, MutantRecord]] = {}
    for name, mutant in _mutants(named):
        first, other = known.setdefault(mutant.name, (name, mutant))
        if (mutant.file, mutant.diff) != (other.file, other.diff):
            what = "its diff is another" if mutant.file == other.file else f"it is in {other.file} and in {mutant.file}"
            raise MergeError(f"{first} and {name} do not have the same mutants: {mutant.name} is two edits, {what}")


def _mutants(named: Sequence[Named]) -> Iterator[tuple[str, MutantRecord]]:
    for name, record in named:
        yield from ((name, mutant) for mutant in record.mutants)
