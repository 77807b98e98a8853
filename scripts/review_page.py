"""docs/reviews.md: the entries beside what was recorded of them. Text from data, nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from review_entries import KINDS, Entry, Round, planned
from review_results import chosen_figures
from tabulate import tabulate

from fastlora_verify.harness.selection import matches
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.mutations.plan import Plan
from fastlora_verify.reports.names import short_name

BREAK = "<br>"
FILES = 3  # test files that are named
SINGLY = 6  # mutants or figures up to this number are shown one by one
HEAD = """# The two reviews, entry by entry

<!-- Made by scripts/reviews.py from reviews.toml and reviews-results.json. Edit those; a test compares. -->

Two reviews of fused-LoRA kernels are this project's specification by example: one of a SwiGLU MLP kernel
(`swiglu-mlp`), one of a test that pins that a kernel ran at all (`kernel-taken-pin`). This page goes through both in
their order. For every edit that they made, every table, every figure and everything that they asked for it gives the
command that answers it on the reference kernels, and what that command said; or the reason why it doesn't apply.

The two columns of results are not meant to be equal: kernels and suites are others, and a suite of another size fails
another number of tests. Equal should be what follows from arithmetic (bytes, weights, ratios of the published fixture).
"""
TAIL = """
Counts are of the whole suite ({baseline} unmutated; skipped tests need a card). "killed" is by an assertion of a test
unless it says otherwise. In brackets stand the test files that killed, with their number of failures. A mutant's name
is `mutation@scope[what]`; `fastlora-verify diff NAME` shows its edit. Recorded with {versions}, on {device}.
"""


def page(rounds: Sequence[Round], plan: Plan, results: Mapping[str, Any]) -> str:
    """The whole page, ending in a newline."""
    run = results["run"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    tail = TAIL.format(baseline=counts(results["baseline"]), versions=versions, device=run["device"])
    parts = [HEAD, overview(rounds), tail]
    thread = ""
    for each in rounds:
        if each.thread != thread:
            parts.append(f"## {each.thread}\n")
            thread = each.thread
        parts.append(f"### {each.id}: {heading(each)}\n\n{entry_table(each, plan, results)}\n")
    return "\n".join(parts).rstrip() + "\n"


def heading(each: Round) -> str:
    """Title and head of a round."""
    return f"{each.title} (`{each.head}`)" if each.head else each.title


def overview(rounds: Sequence[Round]) -> str:
    """A row a round: how many entries of each kind, how many have a command, how many don't apply."""
    rows: list[list[str | int]] = []
    totals = [0] * (len(KINDS) + 2)
    for each in rounds:
        kinds = [sum(entry.kind == kind for entry in each.entries) for kind in KINDS]
        commands = sum(entry.has_command for entry in each.entries)
        numbers = [*kinds, commands, len(each.entries) - commands]
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        rows.append([each.id, each.thread, heading(each), *numbers])
    rows.append(["", "", f"all: {sum(totals[: len(KINDS)])} entries", *totals])
    headers = ("round", "thread", "what", *(f"{kind}s" for kind in KINDS), "with a command", "not applicable")
    return narrow(tabulate(rows, headers, tablefmt="github"))


def entry_table(each: Round, plan: Plan, results: Mapping[str, Any]) -> str:
    """A round's entries: what, the review's result, ours, and the command."""
    rows = [
        (entry.id, entry.kind, plain(entry.what), plain(entry.theirs), ours(entry, plan, results), commands(entry))
        for entry in each.entries
    ]
    headers = ("", "kind", "what", "the review", "here", "command")
    return narrow(tabulate(rows, headers, tablefmt="github", disable_numparse=True))


def narrow(table: str) -> str:
    """The table without the blanks that align it: its longest cell would pad every row to a page's width."""
    return re.sub(r"-{4,}", "---", re.sub(r" {2,}", " ", table))


def ours(entry: Entry, plan: Plan, results: Mapping[str, Any]) -> str:
    """Results of an entry, or why there are none, and its note."""
    lines: list[str] = []
    if entry.applies:
        lines.append(f"doesn't apply: {plain(entry.applies)}")
    if entry.baseline:
        lines.append(f"unmutated: {counts(results['baseline'])}")
    if entry.mutants:
        lines += mutant_lines(entry, planned(entry, plan), results["mutants"])
    lines += figure_lines(chosen_figures(entry, results), with_kernel="--kernel" not in entry.oracle)
    for test in entry.tests:
        lines.append(f"`{test.partition('::')[2]}`: {counts(results['tests'].get(test, {}))}")
    if entry.note:
        lines.append(f"*{plain(entry.note)}*")
    return BREAK.join(lines)


def commands(entry: Entry) -> str:
    """Every command of an entry, each as code."""
    found: list[str] = []
    if entry.mutants:
        found.append(
            shlex.join(
                ["fastlora-verify", "mutate", *entry.mutants, *(["--kernel", entry.kernel] if entry.kernel else [])]
            )
        )
    elif entry.baseline:
        found.append("fastlora-verify mutate --all")
    found += [entry.oracle] if entry.oracle else []
    if entry.measure:
        found.append(shlex.join(["python", "scripts/review_figures.py", *entry.measure]))
    if entry.tests:
        found.append(shlex.join(["python", "-P", "-m", "pytest", *entry.tests]))
    return BREAK.join(map(code, found))


def mutant_lines(entry: Entry, mutants: Sequence[Mutant], recorded: Mapping[str, Any]) -> list[str]:
    """One line a mutant, or for many one line for all and one for each that isn't killed."""
    told = {mutant.name: outcome(recorded.get(mutant.name, {})) for mutant in mutants}
    lines = []
    if len(mutants) == 1:
        lines += list(told.values())
    elif len(mutants) <= SINGLY:
        lines += [f"{code(short_name(name))}: {text}" for name, text in told.items()]
    else:
        found = [recorded.get(mutant.name, {}) for mutant in mutants]
        killed = [failures(result) for result in found if result.get("status") == "killed"]
        spread = f", by {' to '.join(map(str, sorted({min(killed), max(killed)})))} failures each" if killed else ""
        lines.append(f"{len(killed)} of {len(mutants)} killed{spread}")
        lines += [
            f"{code(short_name(n))}: {t}" for n, t in told.items() if recorded.get(n, {}).get("status") != "killed"
        ]
    for mutant in mutants:
        lines += seen_lines(entry, mutant, recorded.get(mutant.name, {}), several=len(mutants) > 1)
    return lines


def seen_lines(entry: Entry, mutant: Mutant, result: Mapping[str, Any], *, several: bool) -> list[str]:
    """What an oracle says of a mutant, as far as the entry asks."""
    figures = [
        figure
        for figure in result.get("figures", ())
        if (not entry.kernel or figure["kernel"] == entry.kernel)
        and any(matches(pattern, figure["name"]) for pattern in entry.sees)
    ]
    lead = f"{code(short_name(mutant.name))}, " if several else ""
    return [f"{lead}oracle {line}" for line in figure_lines(figures, with_kernel=not entry.kernel)]


def outcome(result: Mapping[str, Any]) -> str:
    """A mutant's result in words."""
    status = result.get("status", "no result")
    if status == "killed":
        how = "" if result.get("how", "assertion") == "assertion" else f", by an {result['how']} only"
        return f"killed{how}: {failures(result)} failed{killing_files(result.get('files', {}))}"
    if status == "survived" and result.get("allowed"):
        return f"survives, allowed: {plain(result['allowed'])}"
    return f"**{status}**" + (f": {counts(result)}" if result else "")


def killing_files(files: Mapping[str, int]) -> str:
    """` (test_node 12, test_swiglu 3, 4 more in 2 others)`: files with most failures first, as recorded."""
    told = [f"{plain(name.removesuffix('.py'))} {number}" for name, number in list(files.items())[:FILES]]
    rest = list(files.values())[FILES:]
    if rest:
        told.append(f"{sum(rest)} more in {len(rest)} other{'s' if len(rest) > 1 else ''}")
    return f" ({', '.join(told)})" if told else ""


def failures(result: Mapping[str, Any]) -> int:
    """Tests that failed or broke."""
    return int(result.get("failed", 0)) + int(result.get("errors", 0))


def figure_lines(figures: Sequence[Mapping[str, Any]], *, with_kernel: bool) -> list[str]:
    """One line a figure, or for many that were judged one line for all."""
    judged = [figure for figure in figures if "ok" in figure]
    if len(figures) > 2 * SINGLY and len(judged) == len(figures):
        return [f"{sum(figure['ok'] for figure in judged)} of {len(judged)} figures within their limit"]
    return list(_figure_lines(figures, with_kernel))


def _figure_lines(figures: Sequence[Mapping[str, Any]], with_kernel: bool) -> Iterator[str]:
    for figure in figures:
        unit = f" {figure['unit']}" if figure.get("unit") else ""
        limit = f" (limit {number(figure['limit'])})" if "limit" in figure else ""
        lead = f"{figure['kernel']}: " if with_kernel and figure.get("kernel") else ""
        bad = "" if figure.get("ok", True) else " **over**"
        yield plain(f"{lead}{figure['name']}: {number(figure['value'])}{unit}{limit}") + bad


def counts(found: Mapping[str, Any]) -> str:
    """`12 passed, 2 skipped`."""
    names = ("passed", "failed", "errors", "skipped")
    return ", ".join(f"{found[name]} {name}" for name in names if found.get(name)) or "no result"


def number(value: object) -> str:
    """A number as it is read: thousands parted, three digits of a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def plain(text: str) -> str:
    """Text that Markdown and a table take as it is. What stands between backticks stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(code(part[1:-1]) if i % 2 else _escaped(part) for i, part in enumerate(parts))


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_|\[\]])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """Code in a table cell."""
    return "`" + text.replace("|", r"\|") + "`"
