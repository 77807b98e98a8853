"""Run records of the command line: read, merged, compared with those of an earlier round."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from fastlora_verify.harness.arguments import read_record
from fastlora_verify.harness.errors import UsageError
from fastlora_verify.harness.plan import REMEMBERED, Kill
from fastlora_verify.reports.merge import merge
from fastlora_verify.reports.merge_shards import with_whole_runs
from fastlora_verify.reports.record import Column, RunRecord
from fastlora_verify.reports.rounds import ComparisonError, check_comparable, with_last_round
from fastlora_verify.reports.same_tree import MergeError


def read_merged(paths: Sequence[Path], hint: str = "") -> RunRecord:
    """The record of all files together. Raises FileError, or UsageError where they are no one table.

    A shard alone is read as it is; of several every run must be complete.
    """
    try:
        return merge(with_whole_runs([(str(path), read_record(path)) for path in paths]))
    except MergeError as error:
        raise UsageError(f"{error}; nothing is merged" + (f", {hint}" if hint else "")) from error


def beside(record: RunRecord, previous: Sequence[Path]) -> RunRecord:
    """The record beside the earlier round in these files; itself if there are none. Raises as `read_previous`."""
    columns = ((column.id, column.device) for column in record.columns if column.not_run is None)
    shown = [mutant.name for mutant in record.mutants]
    earlier = read_previous(previous, shown if record.shard is None else record.shard.names, columns, shown)
    return compared(record, earlier, previous)


def read_previous(
    previous: Sequence[Path], mutants: Iterable[str], columns: Iterable[tuple[str, str]], part: Collection[str]
) -> RunRecord | None:
    """The earlier round in these files, merged; None if there are none.

    `columns` are ids and devices, `part` those of the mutants that are compared with it. Raises FileError, or
    UsageError where the round knows none of these mutants or columns, or is a shard and others hold some of `part`.
    """
    if not previous:
        return None
    earlier = read_merged(previous)
    shard = earlier.shard
    if shard is not None and set(part) & (set(shard.names) - set(shard.part)):
        told = f"{named(previous)} is shard {shard} of its round, and others have mutants of this one"
        raise UsageError(f"--previous: {told}: give the records of all {shard.of}")
    try:
        check_comparable(mutants, [Column(id=id_, device=device) for id_, device in columns], earlier, named(previous))
    except ComparisonError as error:
        raise UsageError(f"--previous: {error}") from error
    return earlier


def compared(record: RunRecord, earlier: RunRecord | None, previous: Sequence[Path]) -> RunRecord:
    """The record with what the earlier one, of these files, says of its mutants."""
    return with_last_round(record, earlier, named(previous)) if earlier is not None else record


def kills_in(record: RunRecord | None) -> tuple[Kill, ...]:
    """What killed the record's mutants, in whichever column; none without a record."""
    found = []
    for mutant in record.mutants if record is not None else ():
        killers = [killer for result in mutant.results.values() for killer in result.killers]
        killers.sort(key=lambda killer: killer.how != "assertion")
        tests = tuple(dict.fromkeys(killer.test for killer in killers))
        if tests:
            found.append(Kill(mutant.name, mutant.mutation, mutant.file, mutant.scope, tests[:REMEMBERED]))
    return tuple(found)


def named(paths: Sequence[Path]) -> str:
    """The files of one round, as a reader sees them."""
    return " and ".join(map(str, paths))
