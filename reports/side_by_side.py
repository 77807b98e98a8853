"""The oracles' answers on the unmutated kernels of several trees: verdicts and figures beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastlora_verify.reports import sections
from fastlora_verify.reports.escape import prose
from fastlora_verify.reports.fit import Part
from fastlora_verify.reports.names import counted
from fastlora_verify.reports.record import Column, OracleRecord, RunRecord
from fastlora_verify.reports.tables import table

MARK = "**differs**"
_VERDICTS = {True: "no objection", False: "**objects**", None: "could not say"}
_NONE = "not there"


@dataclass(frozen=True)
class Row:
    """One thing that was asked of every tree."""

    name: tuple[str, ...]
    cells: tuple[str, ...]  # a column's each
    differs: bool

    def told(self) -> tuple[str, ...]:
        """The row's cells, what differs marked."""
        return (*self.name, *self.cells, MARK if self.differs else "")


def is_several(record: RunRecord) -> bool:
    """True if more than one column has answers."""
    return len({answer.column for answer in record.oracles}) > 1


def side_by_side(record: RunRecord, *, opened: bool) -> list[Part]:
    """Verdicts, then the figures that differ between trees on one device, then the others; `opened`: not folded."""
    columns = [column for column in record.columns if any(a.column == column.id for a in record.oracles)]
    ids = [prose(column.id, 60) for column in columns]
    answers, figures = verdict_rows(record, columns), figure_rows(record, columns)
    differing, same = ([row for row in figures if row.differs is wanted] for wanted in (True, False))
    verdicts = "### Oracles on the unmutated kernels"
    told = counted(len(differing), "figure differs", "figures differ") if differing else "No figure differs"
    return [
        _part(verdicts, ("oracle", "kernel", *ids, ""), answers, record, 2),
        _part(f"#### {told} between trees", ("oracle", "kernel", "figure", *ids, ""), differing, record, 2, keep=True),
        _rest(("oracle", "kernel", "figure", *ids, ""), same, record, opened=opened),
    ]


def verdict_rows(record: RunRecord, columns: Sequence[Column]) -> list[Row]:
    """A row an oracle and kernel, those that differ first."""
    by_name: dict[tuple[str, str], dict[str, OracleRecord]] = {}
    for answer in record.oracles:
        by_name.setdefault((answer.oracle, answer.kernel), {})[answer.column] = answer
    texts = {name: {column: _verdict(answer) for column, answer in found.items()} for name, found in by_name.items()}
    return _rows({(prose(o, 40), prose(k, 40)): cells for (o, k), cells in texts.items()}, columns)


def figure_rows(record: RunRecord, columns: Sequence[Column]) -> list[Row]:
    """A row a figure, those that differ first."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for answer in record.oracles:
        for figure in answer.figures:
            name = (prose(answer.oracle, 40), prose(answer.kernel, 40), prose(figure.name, 80))
            found.setdefault(name, {})[answer.column] = sections.value_of(figure)
    return _rows(found, columns)


def _rows(cells: Mapping[tuple[str, ...], Mapping[str, str]], columns: Sequence[Column]) -> list[Row]:
    rows = []
    for name, by_column in cells.items():
        shown = tuple(by_column.get(column.id, _NONE) for column in columns)
        rows.append(Row(name, shown, _differs(shown, columns)))
    return sorted(rows, key=lambda row: not row.differs)


def _differs(cells: Sequence[str], columns: Sequence[Column]) -> bool:
    """Whether two trees on one device differ: between devices figures do anyway."""
    by_device: dict[str, set[str]] = {}
    for cell, column in zip(cells, columns, strict=True):
        by_device.setdefault(column.device, set()).add(cell)
    return any(len(values) > 1 for values in by_device.values())


def _verdict(answer: OracleRecord) -> str:
    return f"{_VERDICTS[answer.ok]}: {prose(answer.summary, 120)}" if answer.summary else _VERDICTS[answer.ok]


def _part(
    title: str, headers: Sequence[str], rows: Sequence[Row], record: RunRecord, expendable: int, *, keep: bool = False
) -> Part:
    def text(number: int) -> str:
        if not rows:
            return title if keep else ""
        shown = table(headers, [row.told() for row in rows[:number]])
        return sections.paragraphs(title, shown, sections.left_out(len(rows) - number, record))

    return Part(text, len(rows), expendable)


def _rest(headers: Sequence[str], rows: Sequence[Row], record: RunRecord, *, opened: bool) -> Part:
    def text(number: int) -> str:
        if not rows:
            return ""
        body = (table(headers, [row.told() for row in rows[:number]]), sections.left_out(len(rows) - number, record))
        title = f"{counted(len(rows), 'figure is', 'figures are')} the same"
        return sections.paragraphs(f"#### {title}", *body) if opened else sections.folded(title, *body)

    return Part(text, len(rows), 7)
