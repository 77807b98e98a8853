"""The record as CSV: one row a mutant and column, for spreadsheets and scripts.

A text that a spreadsheet would take for a formula gets an apostrophe before it; line ends and control characters
are made visible, so that a row is a line.
"""

from __future__ import annotations

import csv

import pandas as pd

from fastlora_verify.reports.escape import one_line
from fastlora_verify.reports.findings import class_word
from fastlora_verify.reports.gates import dies_only_on_a_card
from fastlora_verify.reports.record import Column, MutantRecord, Result, RunRecord

NAME = "csv"
COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")
HEADERS = (
    *("mutant", "mutation", "family", "kernels", "file", "line", "scope", "gist", "class", "allowed"),
    *("column", "device", "machine", "source_rev", "tests_rev", "status", "how", *COUNTS),
    *("reached", "triggered", "killers", "first_killer", "only_on_a_card", "last_round", "oracles_against"),
    *("seconds", "note", "stopped"),
)
_FORMULA = ("=", "+", "-", "@")


def render(record: RunRecord) -> str:
    """The rows in the order of the record, mutants before columns, under a line of names."""
    rows = [_row(mutant, column, record) for mutant in record.mutants for column in record.columns]
    frame = pd.DataFrame([[_cell(value) for value in row] for row in rows], columns=list(HEADERS), dtype=object)
    return frame.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)


def _row(mutant: MutantRecord, column: Column, record: RunRecord) -> list[object]:
    result = mutant.results.get(column.id) or Result(status="not-run", note=column.not_run or "")
    verdict = result.status in ("killed", "survived")
    whole = verdict and not result.stopped  # else the counts are of some tests only, and no cell says so
    own = column.environment or record.environment
    last = record.last_round.then.get(mutant.name, {}).get(column.id) if record.last_round else None
    against = [answer for answer in mutant.oracles if answer.ok is False and answer.column in ("", column.id)]
    return [
        *(mutant.name, mutant.mutation, mutant.family, ", ".join(mutant.kernels), mutant.file, mutant.line),
        *(mutant.scope, mutant.gist, class_word(mutant), mutant.allowed or ""),
        *(column.id, column.device, (column.device_name if column.device != "cpu" else own.cpu) or ""),
        *(column.source_rev, column.tests_rev, result.status, result.how or ""),
        *(getattr(result, name) if whole else "" for name in COUNTS),
        *((result.reached, result.triggered, len(result.killers)) if whole else ("", "", "")),
        result.killers[0].test if result.killers else "",
        "yes" if dies_only_on_a_card(mutant, column, record.columns) else "",
        last.status if last is not None else "",
        ", ".join(dict.fromkeys(answer.oracle for answer in against)),
        *(round(result.seconds, 3) if verdict else "", result.note, "yes" if result.stopped else ""),
    ]


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = one_line(value, 4000)
    return f"'{text}" if text.startswith(_FORMULA) else text
