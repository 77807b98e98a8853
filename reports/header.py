"""The top of the report: the verdict, and what was run on what."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fastlora_verify.reports.cells import baseline_cell
from fastlora_verify.reports.columns import crossings, lost_to, origin
from fastlora_verify.reports.escape import code, prose
from fastlora_verify.reports.findings import Classified, is_killed, is_stopped, sightings
from fastlora_verify.reports.gates import GateCount, gate_counts
from fastlora_verify.reports.last_round import alarm, summary
from fastlora_verify.reports.names import counted
from fastlora_verify.reports.record import LIBRARIES, Column, Environment, RunOrigin, RunRecord
from fastlora_verify.reports.same_tree import origins
from fastlora_verify.reports.tables import table
from fastlora_verify.reports.trees import tree_name


def heading(record: RunRecord, found: Classified) -> str:
    """Title and verdict of a run with mutants."""
    total, alive = len(record.mutants), len(found.survivors)
    killed = len(found.killed) + len(found.by_exception)
    title = (
        f"{alive} of {counted(total, 'mutant')} survive{'s' if alive == 1 else ''}"
        if alive
        else f"{killed} of {counted(total, 'mutant')} killed"
    )
    title += f" (shard {record.shard})" if record.shard is not None else ""
    verdict = _verdict(record, found) if total else "**None had to be judged here.**"
    told = [_part(record), alarm(record), verdict, *(_gates(count, record) for count in gate_counts(record))]
    return f"## fastlora-verify: {prose(record.target.name, 80)}: {title}\n\n{' '.join(filter(None, told))}"


def _part(record: RunRecord) -> str:
    """That this is not the whole run, and how to get it."""
    shard = record.shard
    if shard is None:
        return ""
    return (
        f"**Shard {shard.number} of {shard.of}: {len(record.mutants)} of {counted(len(shard.names), 'mutant')}, not "
        f"the whole run.** `fastlora-verify report` over the records of all {shard.of} gives that."
    )


def _gates(count: GateCount, record: RunRecord) -> str:
    """What CI sees and what only a card shows, in figures."""
    several = len({tree_name(column) for column in record.columns}) > 1
    tree = f"{prose(count.tree, 60)}: killed" if several else "Killed"
    how = " (told by the gpu marker, without a CPU column)" if count.by_marker else ""
    rest = f" ({count.left_out} more have too few verdicts to be counted)" if count.left_out else ""
    return (
        f"**{tree} by what CI runs{how}: {count.by_ci} of {count.total}; "
        f"by a card too: {count.by_card_too} of {count.total}**{rest}."
    )


def _verdict(record: RunRecord, found: Classified) -> str:
    total, alive = len(record.mutants), len(found.survivors)
    killed = len(found.killed) + len(found.by_exception)
    if killed + alive + len(found.allowed) == 0:
        return f"**Nothing was judged:** none of the {counted(total, 'mutant')} has a verdict."
    first = (
        f"**{alive} of {counted(total, 'mutant')} survive{'s' if alive == 1 else ''} the tests.**"
        if alive
        else "**No mutant survives unexplained.**"
    )
    more = [
        f"{counted(killed, 'is', 'are')} killed: {len(found.killed)} by an assertion of the tests, "
        f"{len(found.by_exception)} by an exception {_only(found)}."
    ]
    if found.allowed:
        more.append(f"{counted(len(found.allowed), 'survives and is', 'survive and are')} allowed, with a reason.")
    if found.no_verdict:
        more.append(f"**{counted(len(found.no_verdict), 'has', 'have')} no verdict.**")
    if lost_to(found.survivors):
        more.append(lost_to(found.survivors))
    if alive:
        seen = sum(bool(sightings(mutant)) for mutant in found.survivors)
        asked = any(mutant.oracles for mutant in found.survivors)
        more.append(_seen(seen, alive) if asked else "The oracles were not asked.")
    return " ".join([first, *more])


def _only(found: Classified) -> str:
    """Whether no assertion failed, or only none before the tests were stopped."""
    return "first, the tests then stopped" if any(map(is_stopped, found.by_exception)) else "only"


def _seen(seen: int, alive: int) -> str:
    """How many of the survivors the oracles see."""
    if alive == 1:
        return "The oracles see the survivor." if seen else "The oracles don't see the survivor."
    return f"The oracles see {seen} of the {alive}."


def what_ran(record: RunRecord, *, suite: bool = True) -> str:
    """The columns with their controls, the notes, the environment and the audit; without `suite`, no tests ran."""
    headers = ["column", "source", "device", *(["tests", "unmutated", "controls"] if suite else [])]
    rows = [[*_tree(column), *(_suite(column) if suite else [])] for column in record.columns]
    notes = [*crossings(record), *_verdict_only(record.columns), *_notes(record.columns)]
    notes += [f"a fault of fastlora-verify, this mutant was not run: {prose(fault)}" for fault in record.faults]
    notes += [f"a mutation from elsewhere is broken, it was not run: {prose(f)}" for f in record.faults_elsewhere]
    stale = [mutant for mutant in record.mutants if mutant.allowed is not None and is_killed(mutant)]
    notes += [f"allowed but killed, the allowance can go: {code(mutant.name)}" for mutant in stale]
    parts = (
        table(headers, rows) if rows else "",
        _runs(record),
        summary(record),
        "\n".join(f"- {note}" for note in notes),
    )
    return "\n\n".join(text for text in parts if text)


def _verdict_only(columns: Sequence[Column]) -> list[str]:
    """What is not known of columns that were asked for the verdict alone."""
    ids = [prose(column.id, 60) for column in columns if column.asked == "verdict"]
    told = (
        "asked for the verdict alone (`--mode verdict`): a mutant's tests stop at its first kill, so `≥` stands before "
        "their counts, and what hangs or crashes in a later test is told as killed"
    )
    return [f"{', '.join(ids)}: {told}"] if ids else []


def _notes(columns: Sequence[Column]) -> list[str]:
    """Every note of the columns once, with the columns that have it."""
    found: dict[str, list[str]] = {}
    for column in columns:
        for note in column.notes:
            found.setdefault(note, []).append(prose(column.id, 60))
    return [f"{', '.join(dict.fromkeys(ids))}: {prose(note)}" for note, ids in found.items()]


def _tree(column: Column) -> list[str]:
    device = f"{column.device} {column.device_name or ''}".strip()
    missing = f" (not run: {prose(column.not_run, 120)})" if column.not_run is not None else ""
    return [prose(column.id, 60), origin(column.source, column.source_rev), prose(device, 60) + missing]


def _suite(column: Column) -> list[str]:
    seconds = f" in {column.baseline.seconds:.1f} s" if column.baseline else ""
    controls = [f"{prose(c.name, 40)} {'ok' if c.ok else '**red**'}" for c in column.controls]
    return [origin(column.tests, column.tests_rev), baseline_cell(column) + seconds, ", ".join(controls) or "none"]


def _runs(record: RunRecord) -> str:
    """Each run with its command, then machines and versions: a table where they differ between columns."""
    machines = [_machine(column.environment or record.environment) for column in record.columns]
    same = len(set(machines)) <= 1
    if record.merged:
        lines = [f"- {code(one.file, 200)} ({_ids(one)}): {_run(one)}." for one in record.merged]
        told = ["\n".join(lines), f"All with {_versions(record)}." if same else "", _audit(record)]
        text = "\n\n".join(part for part in told if part)
    else:
        run = _run(origins("", record)[0]) + (f"; {_versions(record)}." if same else ".")
        text = " ".join(part for part in (run, _audit(record)) if part)
    return text if same else f"{text}\n\n{_machines(record, machines)}"


def _run(one: RunOrigin) -> str:
    started = prose(one.started_at[:16].replace("T", " "))
    return (
        f"Ran {code(shlex.join(one.command), 300)} on {started} UTC in {one.seconds:.0f} s "
        f"with fastlora-verify {prose(one.tool_version, 40)}"
    )


def _ids(one: RunOrigin) -> str:
    return ", ".join(prose(id_, 60) for id_ in one.columns) or "no column"


def _versions(record: RunRecord) -> str:
    own = [column.environment for column in record.columns if column.environment is not None]
    machine = own[0] if own else record.environment
    told = [f"{name} {prose(version, 40)}" for name in LIBRARIES if (version := getattr(machine, name))]
    names = (machine.cpu, record.environment.device_name)
    return ", ".join([*told, *(prose(name, 80) for name in names if name)])


def _machine(own: Environment) -> tuple[str, ...]:
    return (own.cpu or "", *(getattr(own, name) or "" for name in LIBRARIES))


def _machines(record: RunRecord, machines: Sequence[tuple[str, ...]]) -> str:
    """A table of machines and versions, a row a column."""
    known = [index for index in range(len(LIBRARIES) + 1) if any(machine[index] for machine in machines)]
    headers = ("machine", *LIBRARIES)
    rows = [
        [prose(column.id, 60), *(prose(machine[index], 80) for index in known)]
        for column, machine in zip(record.columns, machines, strict=True)
    ]
    return table(["column", *(headers[index] for index in known)], rows)


def _audit(record: RunRecord) -> str:
    if record.audit is None:
        return ""
    wrong = record.audit.differences
    told = f"Audit: {counted(record.audit.checked, 'mutant')} again as plain pytest on edited copies: "
    if not wrong:
        return told + "no difference."
    first, differ = wrong[0], counted(len(wrong), "differs", "differ")
    return (
        f"{told}**{differ}, do not trust this report**; the first is {code(first.mutant)} in "
        f"{prose(first.column, 40)}: recorded {prose(first.recorded, 80)}, plain {prose(first.plain, 80)}."
    )
