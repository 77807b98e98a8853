"""The catalogue in words: its list, one entry explained, and the table of sites. Data of mutations in, text out."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from fastlora_verify.mutations.base import Example, Mutation
from fastlora_verify.mutations.plan import Plan
from fastlora_verify.reports.escape import code, own, prose
from fastlora_verify.reports.names import counted

LIST_FORMATS = ("table", "json", "markdown")
WIDTH = 100

Rows = Sequence[Sequence[str]]


def listed(mutations: Sequence[Mutation], how: str) -> str:
    """All entries, a line each."""
    if how == "json":
        return json.dumps([_entry(mutation) for mutation in mutations], indent=1)
    name, said = (code, own) if how == "markdown" else (str, str)
    rows = [[name(m.id), m.family, _kinds(m), said(m.fault)] for m in mutations]
    headers = ["mutation", "family", "kinds", "fault"]
    if not any(mutation.origin for mutation in mutations):
        return _table(how)(headers, rows)
    rows = [[*row, said(mutation.origin)] for row, mutation in zip(rows, mutations, strict=True)]
    return f"{_table(how)([*headers, 'from'], rows)}\n\nThose from elsewhere are part of --all, too."


def _kinds(mutation: Mutation) -> str:
    return "all" if len(mutation.kinds) == 4 else ", ".join(sorted(mutation.kinds))


def explained(mutation: Mutation) -> str:
    """One entry whole: what is wrong in the mutant, what it imitates, who sees it, examples."""
    kinds = _kinds(mutation)
    facts = {
        "family": mutation.family,
        "fault": mutation.fault,
        "imitates": mutation.imitates,
        "seen by": mutation.seen_by,
        "kernels": "of every kind" if kinds == "all" else f"of kind {kinds}",
        "no site if": mutation.absent,
        "shows": "on a card only" if mutation.needs == "cuda" else "without a card",
    }
    if mutation.origin:
        facts["from"] = f"{mutation.origin}; part of --all as the catalogue's own are"
    lines = [mutation.id, *(_fact(name, value) for name, value in facts.items())]
    return "\n".join([*lines, *map(_example, mutation.examples)])


def sites(mutations: Sequence[Mutation], kernels: Sequence[str], plan: Plan, how: str) -> str:
    """The table mutation x kernel: how many mutants, and for each empty cell the reason."""
    cells = _cells(mutations, kernels, plan)
    if how == "json":
        return json.dumps(cells, indent=1)
    columns = [*kernels, *(["instruments"] if _has_instruments(plan) else [])]
    is_markdown = how == "markdown"
    name, foreign = (code, prose) if is_markdown else (str, str)
    reasons: dict[str, int] = {}
    rows = [[name(m.id), *(_cell(cells[m.id].get(kernel, {}), reasons) for kernel in columns)] for m in mutations]
    notes = [f"({number}) {reason(text) if is_markdown else text}" for text, number in reasons.items()]
    total = f"{counted(len(plan.mutants), 'mutant')} of {counted(len(mutations), 'mutation')}"
    headers = ("mutation", *map(foreign, columns))
    return "\n".join([_table(how)(headers, rows), "", *(f"{note}  " for note in notes), "", total])


def reason(text: str) -> str:
    """Why there is no site, in Markdown; a twin's name is the target's text."""
    same = "the same edit as "
    return f"{same}{code(text[len(same) :])}" if text.startswith(same) else own(text)


def _cells(mutations: Sequence[Mutation], kernels: Sequence[str], plan: Plan) -> dict[str, dict[str, Any]]:
    cells: dict[str, dict[str, Any]] = {mutation.id: {} for mutation in mutations}
    for mutant in plan.mutants:
        for kernel in mutant.kernels or ("instruments",):
            cells[mutant.mutation].setdefault(kernel, {"mutants": []})["mutants"].append(mutant.name)
    for no in plan.no_sites:
        cells[no.mutation].setdefault(no.kernel, {"mutants": [], "reason": no.reason})
    return cells


def _cell(found: Mapping[str, Any], reasons: dict[str, int]) -> str:
    """The number of mutants, or the number of the reason for there being none."""
    if found.get("mutants"):
        return str(len(found["mutants"]))
    reason = found.get("reason")
    return f"({reasons.setdefault(reason, len(reasons) + 1)})" if reason else ""


def _has_instruments(plan: Plan) -> bool:
    return any(not mutant.kernels for mutant in plan.mutants)


def _entry(mutation: Mutation) -> dict[str, Any]:
    return {
        "id": mutation.id,
        "family": mutation.family,
        "fault": mutation.fault,
        "imitates": mutation.imitates,
        "seen_by": mutation.seen_by,
        "absent": mutation.absent,
        "kinds": sorted(mutation.kinds),
        "needs": mutation.needs,
        "origin": mutation.origin,
    }


def _table(how: str) -> Callable[[Sequence[str], Rows], str]:
    if how == "markdown":
        from fastlora_verify.reports.tables import table

        return table
    return lambda headers, rows: tabulate(rows, headers, tablefmt="simple", disable_numparse=True)


def _fact(name: str, value: str) -> str:
    indent = " " * 14
    filled = textwrap.fill(value, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return f"  {name + ':':<12}{filled.lstrip()}"


def _example(example: Example) -> str:
    before = textwrap.indent(example.before.strip("\n"), "  - ")
    if example.after is None:
        return f"\nleaves alone ({example.where}):\n{before}"
    after = textwrap.indent(example.after.strip("\n"), "  + ")
    return f"\nexample ({example.where}):\n{before}\n{after}"
