"""The report of a sweep: how many runs pass, where it fails and by how much, and how near the others came."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Protocol

from fastlora_verify.reports.columns import origin
from fastlora_verify.reports.escape import code, fence, html_code, prose
from fastlora_verify.reports.fit import Part, fit, fixed
from fastlora_verify.reports.sections import folded, paragraphs
from fastlora_verify.reports.sweep_record import GOOD, SKIPPED, Arm, Measured, Run, SweepColumn, SweepRecord, dumps
from fastlora_verify.reports.tables import table

LIMIT = 65_000  # bytes; GitHub takes 65,536 characters in a comment
_NAMED = 6  # failing runs that a summary names

_WAYS = {
    "argument": "each seed is the value of its argument {argument}",
    "shift": "its arguments hold no seed, so each seed is added to those that it sets itself ({given}); seed 0 is the "
    "test as written",
    "streams": "it sets no seed, so Python's, NumPy's and torch's global streams start at each seed",
    "environment": "each seed is given in the environment, and nothing else is changed",
    "repeat": "each run is a pytest of its own, and nothing is changed",
    "": "",
}


def render(record: SweepRecord, limit: int = LIMIT, *, output: bool = False) -> str:
    """The report in at most `limit` bytes of UTF-8; with `output` also what each run printed."""
    parts = [fixed(_heading(record)), fixed(_what_ran(record))]
    for column in record.columns:
        parts += _column(column, record)
        if output:
            parts += [_output(arm, record) for arm in column.arms]
    whole = fit(parts, limit)
    return whole if whole is not None else f"{_heading(record)}\n\nThe rest does not fit into {limit:,} bytes.\n"


def json_text(record: SweepRecord, *, output: bool = False) -> str:
    """The record itself; what each run printed is in it anyway."""
    return dumps(record)


class _Format(Protocol):
    def __call__(self, record: SweepRecord, *, output: bool = False) -> str: ...


FORMATS: Mapping[str, _Format] = {"markdown": render, "json": json_text}


def summary(arm: Arm, unit: str) -> str:
    """One line: `19 of 20 seeds pass; seed 5 fails at 2.07x (limit 2x)`."""
    run = [one for one in arm.runs if one.outcome not in (SKIPPED, "not-run")]
    if not run:
        why = next((one.message for one in arm.runs if one.message), "")
        return f"not run{f': {prose(why, 160)}' if why else ''}"
    passing = [one for one in run if one.outcome in GOOD]
    failing = [one for one in run if one.outcome not in GOOD]
    told = [f"**{len(passing)} of {len(run)}** {unit}s pass"]
    told += [_failed(one, unit) for one in failing[:_NAMED]]
    if len(failing) > _NAMED:
        told.append(f"{len(failing) - _NAMED} more fail")
    if len(run) < len(arm.runs):
        told.append(f"{len(arm.runs) - len(run)} skipped or not run")
    return "; ".join(told)


def _failed(run: Run, unit: str) -> str:
    word = {"failed": "fails", "error": "errors", "timeout": "times out", "crash": "crashes"}.get(run.outcome, "fails")
    return f"{unit} {run.number} {word}{f' at {figure(run.measured)}' if run.measured else ''}"


def figure(measured: Measured | None) -> str:
    """`2.07x (limit 2x)`, `0.95 (at least 0.9)`; empty without one."""
    if measured is None:
        return ""
    value = f"{_number(measured.value)}{measured.unit}"
    if measured.limit is None:
        return value
    if _number(measured.value) == _number(measured.limit) and measured.value != measured.limit:
        value = f"{measured.value:.6g}{measured.unit}"
    return f"{value} ({'at least' if measured.least else 'limit'} {_number(measured.limit)}{measured.unit})"


def _heading(record: SweepRecord) -> str:
    arms = [(column, arm) for column in record.columns for arm in column.arms]
    title = f"## fastlora-verify: sweep of {code(record.test, 200)}"
    several = len(record.columns) > 1
    lines = [
        f"{code(arm.label, 240)}{f' on {prose(column.id, 40)}' if several else ''}: {summary(arm, record.unit)}."
        for column, arm in arms
    ]
    if len(lines) > 1:
        lines = [f"- {line}" for line in lines[:40]]
    return paragraphs(title, "\n".join(lines))


def _what_ran(record: SweepRecord) -> str:
    env = record.environment
    libraries = ("python", "torch", "peft", "bitsandbytes", "transformers", "pytest")
    versions = [f"{name} {prose(getattr(env, name), 40)}" for name in libraries if getattr(env, name)]
    machine = [prose(name, 80) for name in (env.cpu, env.device_name) if name]
    where = f"on {prose(record.target, 80)}"
    if record.mutant:
        where += f" with the mutant {code(record.mutant, 200)}"
    started = prose(record.started_at[:16].replace("T", " "))
    ran = f"Ran {code(shlex.join(record.command), 300)} {where} on {started} UTC in {record.seconds:.0f} s"
    notes = [f"- {prose(column.id, 40)}: {prose(note)}" for column in record.columns for note in column.notes]
    notes += [f"- {prose(c.id, 40)}: not run: {prose(c.not_run)}" for c in record.columns if c.not_run is not None]
    whole = ", ".join([*versions, *machine])
    trees = [_tree(column, several=len(record.columns) > 1) for column in record.columns]
    return paragraphs(
        f"{ran} with fastlora-verify {prose(record.tool_version, 40)}; {whole}.", "\n".join([*trees, *notes])
    )


def _tree(column: SweepColumn, *, several: bool) -> str:
    tests = f", tests of {prose(column.tests, 80)}" if column.tests != column.source else ""
    where = f"- {prose(column.id, 40)}: " if several else "Source: "
    return f"{where}{origin(column.source, column.source_rev)}{tests}"


def _column(column: SweepColumn, record: SweepRecord) -> list[Part]:
    parts = []
    for arm in column.arms:
        if any(run.outcome not in (SKIPPED, "not-run") for run in arm.runs):
            head = f"### {code(arm.label, 240)}" + (f" on {prose(column.id, 40)}" if len(record.columns) > 1 else "")
            parts.append(fixed(paragraphs(head, _way(arm, record), _nearest(arm, record.unit))))
            parts += [_runs(arm, record), _assertions(arm, record), _printed(arm, record)]
    return parts


def _way(arm: Arm, record: SweepRecord) -> str:
    given = ", ".join(code(seed, 80) for seed in arm.given[:4]) + (", …" if len(arm.given) > 4 else "")
    told = _WAYS[arm.way].format(argument=code(arm.argument, 40), given=given)
    edited = [run for run in arm.runs if run.edited_line_ran is not None]
    ran = sum(bool(run.edited_line_ran) for run in edited)
    more = f" The edited code ran in {ran} of {len(edited)} runs." if edited and record.mutant else ""
    return f"How: {told}.{more}" if told else ""


def _nearest(arm: Arm, unit: str) -> str:
    """The worst run and the median one, by how near their comparisons came to their limits."""
    known = [(run.measured.close, run) for run in arm.runs if run.measured and run.measured.close is not None]
    if len(known) < 2:
        return ""
    known.sort(key=lambda pair: pair[0] or 0.0)
    worst, middle = known[-1][1], known[(len(known) - 1) // 2][1]
    source = middle.measured.source if middle.measured else ""
    where = f", in {code(f'assert {source}', 200)}" if source else ""
    how = "Farthest over a limit" if (known[-1][0] or 0.0) > 1.0 else "Nearest to a limit"
    return (
        f"{how}: {unit} {worst.number} at {figure(worst.measured)}; the median of {len(known)} runs: "
        f"{figure(middle.measured)}{where}."
    )


def _runs(arm: Arm, record: SweepRecord) -> Part:
    shown = sorted(arm.runs, key=lambda run: run.outcome in (*GOOD, SKIPPED))
    rows = [
        (str(run.number), _outcome(run), f"{run.seconds:.2f}", _figure(run), code(_first(run), 200)) for run in shown
    ]
    headers = (record.unit, "outcome", "seconds", "figure", "message")

    def text(number: int) -> str:
        return paragraphs(table(headers, rows[:number]) if number else "", _left_out(len(rows) - number, record))

    return Part(text, len(rows), 2)


def _figure(run: Run) -> str:
    """What an assertion measured; where none did, the highest of what the run printed."""
    if run.measured is not None or run.highest is None:
        return figure(run.measured)
    return f"{_number(run.highest)} ({code(run.highest_label, 60)})"


def _outcome(run: Run) -> str:
    word = run.outcome.replace("-", " ")
    return word if run.outcome in (*GOOD, SKIPPED) else f"**{word}**"


def _first(run: Run) -> str:
    """The failure's first line."""
    if run.outcome in GOOD:
        return ""
    lines = run.message.strip().splitlines()
    return f"{run.exception}: {lines[0]}" if run.exception and lines else (lines or [run.exception])[0]


def _assertions(arm: Arm, record: SweepRecord) -> Part:
    """How near each assertion came in the runs in which it held, where there are several."""
    found: dict[str, list[tuple[float, Run, Measured]]] = {}
    for run in arm.runs:
        for held in run.held:
            found.setdefault(held.source, []).append((held.close or 0.0, run, held))
    rows = []
    for source, seen in found.items() if len(found) > 1 else ():
        seen.sort(key=lambda one: one[0])
        _, run, worst = seen[-1]
        middle = seen[(len(seen) - 1) // 2][2]
        rows.append((code(source, 160), str(len(seen)), figure(middle), f"{figure(worst)}, {record.unit} {run.number}"))
    headers = ("assertion", f"{record.unit}s", "median", "nearest")

    def text(number: int) -> str:
        return paragraphs(table(headers, rows[:number]) if number else "", _left_out(len(rows) - number, record))

    return Part(text, len(rows), 3)


def _printed(arm: Arm, record: SweepRecord) -> Part:
    """What the passing runs print under the same label each."""
    rows = [
        (
            code(d.label, 80),
            _number(d.lowest),
            _number(d.median),
            f"{_number(d.highest)} ({record.unit} {d.highest_at})",
        )
        for d in arm.printed
    ]
    headers = ("printed by every passing run", "lowest", "median", "highest")

    def text(number: int) -> str:
        return paragraphs(table(headers, rows[:number]) if number else "", _left_out(len(rows) - number, record))

    return Part(text, len(rows), 3)


def _output(arm: Arm, record: SweepRecord) -> Part:
    printing = [run for run in arm.runs if run.printed]
    told = [_blocks(run, record.unit) for run in printing]

    def text(number: int) -> str:
        if not told:
            return f"{code(arm.label, 240)} prints nothing."
        rest = _left_out(len(told) - number, record)
        return folded(f"{html_code(arm.label, 240)}: what {len(told)} runs print", *told[:number], rest)

    return Part(text, len(told), 5)


def _blocks(run: Run, unit: str) -> str:
    blocks = [part for section in run.printed for part in (f"{prose(section.title, 80)}:", fence(section.text))]
    return paragraphs(f"{unit} {run.number} ({run.outcome})", *blocks)


def _left_out(number: int, record: SweepRecord) -> str:
    return (
        f"*{number:,} more left out to fit into a comment; all of them are in {code(record.saved_as, 300)}.*"
        if number
        else ""
    )


def _number(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.3g}"
