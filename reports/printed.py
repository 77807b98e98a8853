"""The report's section on what passing tests print: their ratios and bytes, as `pytest -rA` shows them."""

from __future__ import annotations

from fastlora_verify.reports.escape import code, fence, html_code, prose
from fastlora_verify.reports.fit import Part
from fastlora_verify.reports.record import Column, Printed, RunRecord
from fastlora_verify.reports.sections import folded, left_out, paragraphs

_EXPENDABLE = 5  # asked for by name, so it outlasts the lists that come unasked


def printed_parts(record: RunRecord) -> list[Part]:
    """A folded part a column; one sentence for a column whose tests print nothing."""
    columns = [column for column in record.columns if column.baseline is not None]
    if not columns:
        return [Part(lambda _: "*No suite ran, so nothing was printed.*")]
    return [Part(lambda _: "### What passing tests print"), *(_part(column, record) for column in columns)]


def _part(column: Column, record: RunRecord) -> Part:
    name = prose(column.id, 40)
    note = f"*{prose(column.printed_note)}.*" if column.printed_note else ""
    told = [_told(found) for found in column.printed]

    def text(number: int) -> str:
        if not told:
            return note or f"{name}: no passing test prints anything."
        count = f"{len(told)} test{'' if len(told) == 1 else 's'}"
        rest = left_out(len(told) - number, record, "tests' output")
        return folded(f"{html_code(column.id, 40)}: {count}", *told[:number], rest, note)

    return Part(text, len(told), _EXPENDABLE)


def _told(found: Printed) -> str:
    blocks = [part for section in found.sections for part in (f"{prose(section.title, 80)}:", fence(section.text))]
    return paragraphs(code(found.test, 240), *blocks)
