"""Reverts in words: every hunk that is a mutant, and those that are none, with the reason. Data in, text out."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tabulate import tabulate

from fastlora_verify.harness.loading import Loaded
from fastlora_verify.reports.escape import code, gist, one_line, prose
from fastlora_verify.reports.names import counted
from fastlora_verify.reports.tables import table as markdown_table

MADE = ("mutant", "where", "edit")
NOT_MADE = ("not made", "because")
GIST = 110  # characters; the whole edit is what `diff` is for


def own_list(loaded: Loaded, how: str) -> str:
    """Mutants and what is none, as "table", "json" or "markdown"."""
    if how == "json":
        names = ("name", "scope", "gist", "diff", "path", "line")
        made = [{name: getattr(mutant, name) for name in names} for mutant in loaded.mutants]
        return json.dumps({"mutants": made, "not_made": [vars(no) for no in loaded.not_made]}, indent=1)
    mark = how == "markdown"
    rows = [
        (code(m.name), code(f"{m.path}:{m.line}"), gist(m.gist, GIST))
        if mark
        else (m.name, f"{m.path}:{m.line}", one_line(m.gist, GIST))
        for m in loaded.mutants
    ]
    others = [
        (code(no.mutation), prose(no.reason)) if mark else (no.mutation, one_line(no.reason, 300))
        for no in loaded.not_made
    ]
    tables = [_table(MADE, rows, mark=mark)] if rows else []
    tables += [_table(NOT_MADE, others, mark=mark)] if others else []
    return "\n\n".join([f"{counted(len(rows), 'mutant')}, {len(others)} not made", *tables])


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, mark: bool) -> str:
    if mark:
        return markdown_table(headers, rows)
    return tabulate(rows, headers, tablefmt="simple", disable_numparse=True)
