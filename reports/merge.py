"""Records of different machines, made one: CI's columns beside those of a card.

Columns of one tree stand side by side only if they are of the same tree by content, and a mutant's name must
mean the same edit in every record. Where that isn't so, or can't be told, nothing is merged. Two runs of the
same column are both kept and told apart by what differs: machine, versions, at last the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from fastlora_verify.reports.record import (
    Audit,
    Column,
    Environment,
    MutantRecord,
    OracleRecord,
    Result,
    RunOrigin,
    RunRecord,
)
from fastlora_verify.reports.same_tree import MergeError, check_mutants, check_runs, check_trees, origins
from fastlora_verify.reports.trees import revision, tree_name

T = TypeVar("T")
LIBRARIES = ("torch", "python", "peft", "bitsandbytes", "transformers", "pytest")

__all__ = ["MergeError", "merge"]


@dataclass(frozen=True)
class _Placed:
    """A column of one of the records, and what it is called in the merged one."""

    record: int
    column: Column
    started_at: str
    id: str


def merge(named: Sequence[tuple[str, RunRecord]]) -> RunRecord:
    """One record of all of them; each comes with the name of its file. Raises MergeError, one sentence."""
    if len(named) == 1:
        return named[0][1]
    check_trees(named)
    check_runs(named)
    check_mutants(named)
    records = [record for _, record in named]
    placed = _placed(records)
    names = [{p.column.id: p.id for p in placed if p.record == i} for i in range(len(records))]
    first = records[0]
    return replace(
        first,
        seconds=sum(record.seconds for record in records),
        target=replace(first.target, kernels=_union(record.target.kernels for record in records)),
        columns=tuple(_column(p, records, named) for p in placed),
        mutants=_mutants(records, names),
        no_sites=_union(record.no_sites for record in records),
        faults=_union(record.faults for record in records),
        faults_elsewhere=_union(record.faults_elsewhere for record in records),
        oracles=tuple(_renamed(answer, names[i]) for i, record in enumerate(records) for answer in record.oracles),
        audit=_audit(records, names),
        saved_as=" and ".join(name for name, _ in named),
        files={name: files for record in records for name, files in record.files.items()},
        merged=tuple(origin for pair, ids in zip(named, names, strict=True) for origin in _origins(*pair, ids)),
        suite=next((record.suite for record in records if record.suite is not None), None),
        last_round=None,
    )


def _origins(name: str, record: RunRecord, ids: Mapping[str, str]) -> list[RunOrigin]:
    told = origins(name, record)
    return [replace(one, columns=tuple(ids[id_] for id_ in one.columns if id_ in ids)) for one in told]


def _placed(records: Sequence[RunRecord]) -> list[_Placed]:
    """Every column that ran, or that ran nowhere, with an id of its own."""
    found = []
    for index, record in enumerate(records):
        times = {id_: one.started_at for one in origins("", record) for id_ in one.columns}
        found += [_Placed(index, _with_environment(c, record), times.get(c.id, ""), c.id) for c in record.columns]
    groups: dict[str, list[_Placed]] = {}
    for placed in found:
        groups.setdefault(_base_id(placed.column), []).append(placed)
    kept: list[_Placed] = []
    for base, group in groups.items():
        ran = [placed for placed in group if placed.column.not_run is None] or group[:1]
        kept += [replace(p, id=id_) for p, id_ in zip(ran, _ids(base, ran), strict=True)]
    return kept


def _with_environment(column: Column, record: RunRecord) -> Column:
    own = column.environment or replace(record.environment, device_name=column.device_name)
    return replace(column, environment=own)


def _base_id(column: Column) -> str:
    tree = tree_name(column)
    return column.id if tree == column.id else f"{tree}:{column.device}"


def _ids(base: str, group: Sequence[_Placed]) -> list[str]:
    """The ids of columns that have one in common: with as much of what differs as tells them apart."""
    if len(group) == 1:
        return [group[0].id]
    told: list[list[str]] = [[] for _ in group]
    for values in _differences(group):
        if len(set(values)) > 1:
            told = [[*words, *([value] if value else [])] for words, value in zip(told, values, strict=True)]
        labels = [", ".join(words) for words in told]
        if len(set(labels)) == len(group):
            return [f"{base} ({label})" if label else base for label in labels]
    return [f"{base} (run {number})" for number in range(1, len(group) + 1)]


def _differences(group: Sequence[_Placed]) -> list[list[str]]:
    """Each thing that may tell columns apart, by column, the most telling first."""
    environments = [placed.column.environment or Environment() for placed in group]
    machines = [
        (placed.column.device_name if placed.column.device != "cpu" else own.cpu) or ""
        for placed, own in zip(group, environments, strict=True)
    ]
    versions = [
        [f"{name} {value}" if (value := getattr(own, name)) else "" for own in environments] for name in LIBRARIES
    ]
    asked = ["verdict only" if placed.column.asked == "verdict" else "" for placed in group]
    times = [placed.started_at[:19].replace("T", " ") for placed in group]
    return [asked, machines, *versions, times]


def _column(placed: _Placed, records: Sequence[RunRecord], named: Sequence[tuple[str, RunRecord]]) -> Column:
    column, notes = placed.column, list(placed.column.notes)
    others = [
        other
        for record in records[: placed.record]
        for other in record.columns
        if tree_name(other) == tree_name(column) and revision(other, "source") != revision(column, "source")
    ]
    if others:
        told = [revision(other, "source")[:19] for other in (column, others[0])]
        notes.append(f"of revision {told[0]}, which has the same files by content as {told[1]}")
    if not column.source_digest:
        notes.append(f"{named[placed.record][0]} has no hashes of files: its revisions were compared")
    if records[placed.record].last_round is not None:
        notes.append("what its record says of a last round is not shown here; give --previous again")
    return replace(column, id=placed.id, notes=tuple(notes))


def _mutants(records: Sequence[RunRecord], names: Sequence[Mapping[str, str]]) -> tuple[MutantRecord, ...]:
    found: dict[str, MutantRecord] = {}
    for record, ids in zip(records, names, strict=True):
        for mutant in record.mutants:
            results = {ids[id_]: result for id_, result in mutant.results.items() if id_ in ids}
            answers = tuple(_renamed(answer, ids) for answer in mutant.oracles)
            if mutant.name in found:
                found[mutant.name] = _joined(found[mutant.name], mutant, results, answers)
            else:
                found[mutant.name] = replace(mutant, results=results, oracles=answers)
    return tuple(found.values())


def _joined(
    known: MutantRecord, more: MutantRecord, results: Mapping[str, Result], answers: tuple[OracleRecord, ...]
) -> MutantRecord:
    """An allowance holds only where every record has it: what one target's table allows, the other's may not."""
    return replace(
        known,
        results={**known.results, **results},
        oracles=(*known.oracles, *answers),
        allowed=known.allowed if more.allowed is not None else None,
    )


def _renamed(answer: OracleRecord, ids: Mapping[str, str]) -> OracleRecord:
    return replace(answer, column=ids.get(answer.column, answer.column))


def _audit(records: Sequence[RunRecord], names: Sequence[Mapping[str, str]]) -> Audit | None:
    audits = [(record.audit, ids) for record, ids in zip(records, names, strict=True) if record.audit is not None]
    differences = [
        replace(difference, column=ids.get(difference.column, difference.column))
        for audit, ids in audits
        for difference in audit.differences
    ]
    return Audit(checked=sum(audit.checked for audit, _ in audits), differences=tuple(differences)) if audits else None


def _union(lists: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(lists)))
