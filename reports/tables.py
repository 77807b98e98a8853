"""Markdown tables: of mutants against columns, of columns, of anything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from fastlora_verify.reports.cells import baseline_cell, cell, context_of, last_round_cell, last_round_control
from fastlora_verify.reports.escape import code, gist, prose
from fastlora_verify.reports.findings import sightings
from fastlora_verify.reports.names import short_name
from fastlora_verify.reports.record import MutantRecord, RunRecord


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub table. The cells are Markdown already, on one line and without a bare pipe."""
    frame = pd.DataFrame(list(rows), columns=list(headers), dtype=str)
    # Without alignment no cell is padded: padding would double the size of a table with one long row.
    text = frame.to_markdown(index=False, tablefmt="github", stralign=None, disable_numparse=True)
    heading, rule, *body = text.split("\n")
    return "\n".join([heading, re.sub(r"-+", "---", rule), *body])


@dataclass(frozen=True)
class MutantTable:
    """Rows of mutants against the columns of one record."""

    headers: tuple[str, ...]
    control: tuple[str, ...]  # the first row: the unmutated suite
    row: Callable[[MutantRecord], tuple[str, ...]]

    def text(self, rows: Iterable[Sequence[str]]) -> str:
        """The table of these rows under the one of the unmutated control."""
        return table(self.headers, [self.control, *rows])


def mutant_table(record: RunRecord, *, named: bool = False) -> MutantTable:
    """The record's table; with `named` the first column gives the mutant's name beside its gist.

    The kernel's column is left out where there is one kernel, the oracle's where none looked at a mutant.
    """
    context = context_of(record)
    kernels = len({name for mutant in record.mutants for name in mutant.kernels}) > 1
    oracles = any(mutant.oracles for mutant in record.mutants)
    rounds = [last_round_cell] if record.last_round is not None else []
    same = Counter((mutant.gist, mutant.kernels) for mutant in record.mutants)

    def row(mutant: MutantRecord) -> tuple[str, ...]:
        label = gist(mutant.gist, 140) or code(short_name(mutant.name), 120)
        if named:
            label = f"{code(short_name(mutant.name), 120)} {gist(mutant.gist, 110)}"
        elif same[mutant.gist, mutant.kernels] > 1 and mutant.scope:  # one edit in several places of a kernel
            label = f"{label} in {code(mutant.scope.rpartition('.')[2], 40)}"
        cells = [cell(mutant, column, context) for column in record.columns]
        return (
            label,
            *([prose(", ".join(mutant.kernels), 60)] if kernels else []),
            *cells,
            *(told(mutant, record) for told in rounds),
            *([oracle_cell(mutant, 50 if named else 90)] if oracles else []),
        )

    ids = [*(prose(column.id, 60) for column in record.columns), *("last round" for _ in rounds)]
    headers = ("mutation", *(["kernel"] if kernels else []), *ids, *(["oracle"] if oracles else []))
    control = (
        "none",
        *([""] if kernels else []),
        *map(baseline_cell, record.columns),
        *(last_round_control(record) for _ in rounds),
    )
    return MutantTable(headers, (*control, *([_unmutated(record)] if oracles else [])), row)


def oracle_cell(mutant: MutantRecord, limit: int) -> str:
    """What the oracles say of a mutant: the first that sees it, with its figure."""
    seen = sightings(mutant)
    if seen:
        more = f" (and {len(seen) - 1} more)" if len(seen) > 1 else ""
        return f"sees it: {prose(seen[0].summary, limit)}{more}"
    if any(answer.ok for answer in mutant.oracles):
        return "does not see it"
    return "could not say" if mutant.oracles else "not asked"


def _unmutated(record: RunRecord) -> str:
    red = [answer for answer in record.oracles if answer.ok is False]
    if red:
        return f"**objects**: {prose(red[0].summary, 90)}"
    return "no objection" if any(answer.ok for answer in record.oracles) else "could not say"
