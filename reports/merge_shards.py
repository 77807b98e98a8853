"""Shards of one run, made the record that the run would have given undivided.

What every shard found by itself must agree: the trees by content, the list of all mutants, versions, controls, the
unmutated counts, the oracles' verdicts on the unmutated kernels. Nothing is merged where a shard is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import chain, combinations
from typing import TypeVar

from fastlora_verify.reports.record import LIBRARIES, Audit, Column, Counts, LastRound, RunRecord, Shard
from fastlora_verify.reports.same_tree import MergeError, Named, check_runs, check_trees, origins

T = TypeVar("T")


def with_whole_runs(named: Sequence[Named]) -> list[Named]:
    """The records, shards of one run put together. Raises MergeError, one sentence. A shard alone stays one."""
    for name, record in named:
        _check_own(name, record)
    if len(named) == 1 and named[0][1].shard is not None and named[0][1].shard.of > 1:
        return list(named)
    groups: dict[object, list[Named]] = {}
    for place, one in enumerate(named):
        columns = tuple((column.id, column.device) for column in one[1].columns)
        groups.setdefault(columns if one[1].shard is not None else place, []).append(one)
    return [_whole(group) if group[0][1].shard is not None else group[0] for group in groups.values()]


def is_whole_run(record: RunRecord) -> bool:
    """True of a record that was put together of all shards."""
    return record.shard is None and any(origin.shard for origin in record.merged)


def _check_own(name: str, record: RunRecord) -> None:
    shard = record.shard
    if shard is None:
        return
    if not 1 <= shard.number <= shard.of:
        raise MergeError(f"{name} contradicts itself, so it was edited or damaged: it is shard {shard}")
    if tuple(mutant.name for mutant in record.mutants) != shard.part:
        told = f"its mutants are not those of shard {shard}"
        raise MergeError(f"{name} contradicts itself, so it was edited or damaged: {told}")


def _whole(named: Sequence[Named]) -> Named:
    shards = [_shard(record) for _, record in named]
    _check_shards(named, shards)
    check_trees(named)
    _check_selection(named, shards)
    check_runs(named)
    _check_agree(named)
    _check_complete(named, shards)
    in_order = sorted(named, key=lambda one: _shard(one[1]).number)
    joined = " and ".join(name for name, _ in named)
    return joined, _joined(in_order, joined)


def _shard(record: RunRecord) -> Shard:
    assert record.shard is not None
    return record.shard


def _check_shards(named: Sequence[Named], shards: Sequence[Shard]) -> None:
    """Of one division, and each once."""
    told = [(name, shard) for (name, _), shard in zip(named, shards, strict=True)]
    for (one, mine), (other, theirs) in combinations(told, 2):
        if mine.of != theirs.of:
            raise MergeError(f"{one} is shard {mine} and {other} shard {theirs}: they are of runs divided otherwise")
        if mine.number == theirs.number:
            raise MergeError(f"{one} and {other} are both shard {mine}: give each shard once")


def _check_selection(named: Sequence[Named], shards: Sequence[Shard]) -> None:
    """Of one selection, planned by one tool."""
    (first, record), whole = named[0], shards[0].names
    for (name, other), shard in zip(named[1:], shards[1:], strict=True):
        if record.tool_version != other.tool_version:
            versions = f"fastlora-verify {record.tool_version} and {other.tool_version}"
            raise MergeError(f"{first} and {name} were written by {versions}: run all shards with one release")
        if whole != shard.names:
            different = sorted(set(whole) ^ set(shard.names))
            told = "the order of their mutants differs"
            if different:
                told = f"only {first if different[0] in whole else name} has {different[0]}"
            raise MergeError(f"{first} and {name} are shards of different selections: {told}")
        if set(record.no_sites) != set(other.no_sites):
            raise MergeError(f"{first} and {name} are shards of different selections: other mutations have no site")


def _check_complete(named: Sequence[Named], shards: Sequence[Shard]) -> None:
    of, there = shards[0].of, {shard.number for shard in shards}
    missing = [f"{number}/{of}" for number in range(1, of + 1) if number not in there]
    if missing:
        is_ = "shard {} is" if len(missing) == 1 else "shards {} are"
        columns = ", ".join(column.id for column in named[0][1].columns)
        given = ", ".join(name for name, _ in named)
        raise MergeError(f"{is_.format(', '.join(missing))} missing of the run of {columns} that {given} is part of")


def _check_agree(named: Sequence[Named]) -> None:
    """What each shard found before its first mutant is the same."""
    first, record = named[0]
    for name, other in named[1:]:
        for mine, theirs in zip(record.columns, other.columns, strict=True):
            for what, of in _FOUND:
                here, there = of(mine, record), of(theirs, other)
                if here != there:
                    told = f"{_said(here)} in {first}, {_said(there)} in {name}"
                    raise MergeError(f"{first} and {name} do not agree on {what} of {mine.id}: {told}")
        verdicts = [[(a.oracle, a.kernel, a.column, a.ok) for a in one.oracles] for one in (record, other)]
        different = sorted(set(verdicts[0]) ^ set(verdicts[1]), key=str)
        if different:
            oracle, kernel, column, _ = different[0]
            told = f"the oracle {oracle} answers otherwise on the unmutated {kernel} in {column}"
            raise MergeError(f"{first} and {name} do not agree: {told}")


def _ran(column: Column, _: RunRecord) -> object:
    return "run" if column.not_run is None else f"not run ({column.not_run})" if column.baseline else "not run"


def _asked(column: Column, _: RunRecord) -> object:
    return f"--mode {column.asked}"


def _versions(column: Column, record: RunRecord) -> object:
    own = column.environment or record.environment
    return ", ".join(f"{name} {getattr(own, name) or 'missing'}" for name in LIBRARIES)


def _counts(column: Column, _: RunRecord) -> object:
    found = column.baseline
    told = [(getattr(found, one.name), one.name) for one in fields(Counts)] if found is not None else []
    return ", ".join(f"{number} {word}" for number, word in told if number) or "none"


def _controls(column: Column, _: RunRecord) -> object:
    told = [f"{one.name} {'ok' if one.ok else 'red'} ({one.summary})" for one in column.controls]
    return "; ".join(told) or "none"


_FOUND: tuple[tuple[str, Callable[[Column, RunRecord], object]], ...] = (
    ("what became", _ran),
    ("the mode", _asked),
    ("the versions", _versions),
    ("the unmutated counts", _counts),
    ("the controls", _controls),
)


def _said(value: object) -> str:
    text = str(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


def _joined(named: Sequence[Named], saved_as: str) -> RunRecord:
    """The record of the whole run; its shards agree, are complete and in their order."""
    records = [record for _, record in named]
    first, names = records[0], _shard(records[0]).names
    mutants = {mutant.name: mutant for record in records for mutant in record.mutants}
    last = _last_round(records, names)
    dropped = last is None and any(record.last_round is not None for record in records)
    places = range(len(first.columns))
    return replace(
        first,
        command=_undivided(first.command),
        seconds=sum(record.seconds for record in records),
        columns=tuple(_column(records, place, names, dropped=dropped) for place in places),
        mutants=tuple(mutants[name] for name in names),
        faults=_union(record.faults for record in records),
        faults_elsewhere=_union(record.faults_elsewhere for record in records),
        audit=_audit([record.audit for record in records if record.audit is not None], names),
        saved_as=saved_as,
        files={digest: files for record in records for digest, files in record.files.items()},
        merged=tuple(origin for name, record in named for origin in origins(name, record)),
        shard=None,
        last_round=last,
    )


def _undivided(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command of the whole run."""
    found: list[str] = []
    for word, before in zip(command, ("", *command), strict=False):
        if "--shard" not in (before, word.partition("=")[0]):
            found.append(word)
    return tuple(found)


def _column(records: Sequence[RunRecord], place: int, names: Sequence[str], *, dropped: bool) -> Column:
    columns = [record.columns[place] for record in records]
    reused = {name for column in columns for name in column.reused}
    notes = list(_union(column.notes for column in columns))
    notes += filter(None, (_elsewhere(record, record.columns[place], columns[0]) for record in records))
    if dropped:
        notes.append("what the shards' records say of a last round is not shown here; give --previous again")
    return replace(columns[0], notes=tuple(notes), reused=tuple(name for name in names if name in reused))


def _elsewhere(record: RunRecord, column: Column, first: Column) -> str:
    """That a shard ran on another machine than the first."""
    own, other = column.environment, first.environment
    machines = [(one.cpu, one.device_name) if one is not None else None for one in (own, other)]
    if own is None or machines[0] == machines[1]:
        return ""
    return f"shard {record.shard} ran on {', '.join(word for word in (own.cpu, own.device_name) if word)}"


def _last_round(records: Sequence[RunRecord], names: Sequence[str]) -> LastRound | None:
    """What the shards say of one earlier round; None where it isn't one."""
    rounds = [record.last_round for record in records]
    known = [replace(one, then={}, same_blobs=(), same_source=()) if one is not None else None for one in rounds]
    if known[0] is None or any(other != known[0] for other in known):
        return None
    then = {name: found for one in rounds if one is not None for name, found in one.then.items()}
    assert rounds[0] is not None
    return replace(rounds[0], then={name: then[name] for name in names if name in then})


def _audit(audits: Sequence[Audit], names: Sequence[str]) -> Audit | None:
    if not audits:
        return None
    place = {name: index for index, name in enumerate(names)}
    differences = sorted(chain.from_iterable(a.differences for a in audits), key=lambda one: place.get(one.mutant, -1))
    return Audit(checked=sum(audit.checked for audit in audits), differences=tuple(differences))


def _union(lists: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(lists)))
