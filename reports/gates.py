"""Which gate sees a mutant: what CI runs, which has no card, or only a suite with a card in reach.

A tree's CPU columns are CI's answer. Where a tree has none, the target's gpu marker stands in: CI skips the tests
that have it. No text, no Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastlora_verify.reports.findings import is_unexplained
from fastlora_verify.reports.record import Column, Killer, MutantRecord, Result, RunRecord
from fastlora_verify.reports.trees import tree_name


@dataclass(frozen=True)
class GateCount:
    """How many mutants each gate kills in one tree, of those on which there is a verdict.

    What CI kills needs no card; what it doesn't needs the card's verdict.
    """

    tree: str
    by_ci: int
    by_card_too: int
    total: int
    left_out: int  # mutants without such a verdict
    by_marker: bool  # no CPU column: what CI runs is told by the gpu marker


def dies_only_on_a_card(mutant: MutantRecord, column: Column, columns: Sequence[Column]) -> bool:
    """True of a kill in a card's column that CI can't show: CI stays green. False also where it can't be told."""
    result = mutant.results.get(column.id)
    if column.device == "cpu" or result is None or result.status != "killed" or is_unexplained(result):
        return False
    seen = _seen_by_ci(mutant, result, [other for other in columns if tree_name(other) == tree_name(column)])
    return seen is False


def gate_counts(record: RunRecord) -> list[GateCount]:
    """The count of each tree under review that ran on a card; none where the gates can't be told apart."""
    ran = [column for column in record.columns if column.not_run is None and not column.beside]
    trees = dict.fromkeys(tree_name(column) for column in ran if column.device != "cpu")
    counts = [_count(tree, record) for tree in trees]
    return [count for count in counts if count.total]


def _count(tree: str, record: RunRecord) -> GateCount:
    columns = [column for column in record.columns if tree_name(column) == tree]
    cards = [column.id for column in columns if column.device != "cpu"]
    by_ci = by_card = total = 0
    for mutant in record.mutants:
        results = [result for id_ in cards if (result := mutant.results.get(id_)) and _is_verdict(result)]
        on_card = next((result for result in results if result.status == "killed"), results[0] if results else None)
        seen = _seen_by_ci(mutant, on_card, columns)
        if seen is None or not (seen or on_card):
            continue
        total += 1
        by_ci += seen
        by_card += seen or (on_card is not None and on_card.status == "killed")
    left_out = len(record.mutants) - total
    return GateCount(tree, by_ci, by_card, total, left_out, not _on_cpu(columns))


def _seen_by_ci(mutant: MutantRecord, on_card: Result | None, columns: Sequence[Column]) -> bool | None:
    """Whether CI kills the mutant; None where nothing says so. `on_card` is the card's verdict."""
    on_cpu = _on_cpu(columns)
    if on_cpu:
        results = [result for column in on_cpu if (result := mutant.results.get(column.id)) is not None]
        if any(result.status == "killed" and _is_verdict(result) for result in results):
            return True
        return False if results and all(result.status == "survived" for result in results) else None
    if on_card is None or on_card.status == "survived":
        return None if on_card is None else False
    marked = [_is_marked(killer, columns) for killer in on_card.killers]
    if any(mark is False for mark in marked):
        return True
    return False if marked and all(marked) and not on_card.stopped else None  # others may have no marker


def _is_marked(killer: Killer, columns: Sequence[Column]) -> bool | None:
    """Whether a test has the gpu marker: as its record says, or as it was skipped elsewhere for want of a card."""
    if killer.gpu is None and any(killer.test in column.needs_card for column in columns):
        return True
    return killer.gpu


def _on_cpu(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.device == "cpu" and column.not_run is None]


def _is_verdict(result: Result) -> bool:
    return result.status in ("killed", "survived") and not is_unexplained(result)
