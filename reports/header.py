"""The top of the report: the verdict, and what was run on what."""

from __future__ import annotations

import shlex

from fastlora_verify.reports.cells import baseline_cell
from fastlora_verify.reports.escape import code, prose
from fastlora_verify.reports.findings import Classified, sightings, split_columns
from fastlora_verify.reports.record import Column, RunRecord
from fastlora_verify.reports.tables import table


def heading(record: RunRecord, found: Classified) -> str:
    """Title and verdict of a run with mutants."""
    total, alive = len(record.mutants), len(found.survivors)
    killed = len(found.killed) + len(found.by_exception)
    title = (
        f"{alive} of {total} mutants survive{'s' if alive == 1 else ''}"
        if alive
        else f"{killed} of {total} mutants killed"
    )
    return f"## fastlora-verify: {prose(record.target.name, 80)}: {title}\n\n{_verdict(record, found)}"


def _verdict(record: RunRecord, found: Classified) -> str:
    total, alive = len(record.mutants), len(found.survivors)
    killed = len(found.killed) + len(found.by_exception)
    if killed + alive + len(found.allowed) == 0:
        return f"**Nothing was judged:** none of the {total} mutants has a verdict."
    first = (
        f"**{alive} of {total} mutants survive{'s' if alive == 1 else ''} the tests.**"
        if alive
        else "**No mutant survives unexplained.**"
    )
    more = [
        f"{_are(killed, 'is', 'are')} killed: {len(found.killed)} by an assertion of the tests, "
        f"{len(found.by_exception)} by an exception only."
    ]
    if found.allowed:
        more.append(f"{_are(len(found.allowed), 'survives and is', 'survive and are')} allowed, with a reason.")
    if found.no_verdict:
        more.append(f"**{_are(len(found.no_verdict), 'has', 'have')} no verdict.**")
    if alive:
        seen = sum(bool(sightings(mutant)) for mutant in found.survivors)
        asked = any(mutant.oracles for mutant in found.survivors)
        more.append(f"The oracles see {seen} of the {alive}." if asked else "The oracles were not asked.")
    return " ".join([first, *more])


def what_ran(record: RunRecord, *, suite: bool = True) -> str:
    """The columns with their controls, the notes, the environment and the audit; without `suite`, no tests ran."""
    headers = ["column", "source", "device", *(["tests", "unmutated", "controls"] if suite else [])]
    rows = [[*_tree(column), *(_suite(column) if suite else [])] for column in record.columns]
    notes = [f"{prose(column.id, 40)}: {prose(note)}" for column in record.columns for note in column.notes]
    notes += [f"a fault of fastlora-verify, this mutant was not run: {prose(fault)}" for fault in record.faults]
    stale = [mutant for mutant in record.mutants if mutant.allowed is not None and split_columns(mutant)[0]]
    notes += [f"allowed but killed, the allowance can go: {code(mutant.name)}" for mutant in stale]
    lines = [table(headers, rows), "", _environment(record), *(f"\n- {note}" for note in notes)]
    return "\n".join(lines)


def _tree(column: Column) -> list[str]:
    device = f"{column.device} {column.device_name or ''}".strip()
    missing = f" (not run: {prose(column.not_run, 120)})" if column.not_run is not None else ""
    return [prose(column.id, 40), code(column.source_rev[:19], 40), prose(device, 60) + missing]


def _suite(column: Column) -> list[str]:
    seconds = f" in {column.baseline.seconds:.1f} s" if column.baseline else ""
    controls = [f"{prose(c.name, 40)} {'ok' if c.ok else '**red**'}" for c in column.controls]
    return [code(column.tests_rev[:19], 40), baseline_cell(column) + seconds, ", ".join(controls) or "none"]


def _environment(record: RunRecord) -> str:
    env = record.environment
    libraries = ("python", "torch", "peft", "bitsandbytes", "transformers", "pytest")
    versions = [f"{name} {prose(getattr(env, name), 40)}" for name in libraries if getattr(env, name)]
    machine = [prose(name, 80) for name in (env.cpu, env.device_name) if name]
    started = prose(record.started_at[:16].replace("T", " "))
    parts = [
        f"Ran {code(shlex.join(record.command), 300)} on {started} UTC in {record.seconds:.0f} s",
        f"with fastlora-verify {prose(record.tool_version, 40)}; {', '.join([*versions, *machine])}.",
        _audit(record),
    ]
    return " ".join(part for part in parts if part)


def _audit(record: RunRecord) -> str:
    if record.audit is None:
        return ""
    wrong = record.audit.differences
    told = f"Audit: {record.audit.checked} mutants again as plain pytest on edited copies: "
    if not wrong:
        return told + "no difference."
    first, differ = wrong[0], _are(len(wrong), "differs", "differ")
    return (
        f"{told}**{differ}, do not trust this report**; the first is {code(first.mutant)} in "
        f"{prose(first.column, 40)}: recorded {prose(first.recorded, 80)}, plain {prose(first.plain, 80)}."
    )


def _are(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
