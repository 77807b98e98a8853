"""Which gate sees a mutant: CI, which has no card, or only a card."""

from __future__ import annotations

import dataclasses

import pytest
from machines import (
    CARD_KILLER,
    KILLED,
    KILLED_BY_BOTH,
    KILLED_BY_MARKED,
    ON_CARD,
    ON_CPU,
    PLAIN_KILLERS,
    SURVIVED,
    SURVIVED_ON_CARD,
    column,
    of_a_card,
    of_ci,
    record_of,
)
from report_text import rows_of
from synthetic_record import NF4, cpu

from fastlora_verify.reports import record as rec
from fastlora_verify.reports.gates import GateCount, dies_only_on_a_card, gate_counts
from fastlora_verify.reports.markdown import render
from fastlora_verify.reports.merge import merge

ONLY = "dies only on a card: CI stays green"
KILLED_BY_PLAIN = dataclasses.replace(KILLED_BY_MARKED, killers=PLAIN_KILLERS)
UNKNOWN = dataclasses.replace(CARD_KILLER, gpu=None)
CPU, CUDA = column("head:cpu", ON_CPU), column("head:cuda", ON_CARD)


def only_on_a_card(on_card: rec.Result, *on_cpu: rec.Result, cuda: rec.Column = CUDA) -> bool:
    """Whether the mutant is said to die only on a card."""
    columns = tuple(column("head:cpu", ON_CPU, id=f"head:cpu{' again' * i}") for i in range(len(on_cpu)))
    results = {cuda.id: on_card} | {c.id: result for c, result in zip(columns, on_cpu, strict=True)}
    record = record_of((*columns, cuda), {"m": results})
    return dies_only_on_a_card(record.mutants[0], cuda, record.columns)


@pytest.mark.parametrize(
    ("on_card", "on_cpu", "only"),
    [
        (KILLED_BY_MARKED, (SURVIVED,), True),
        (KILLED_BY_PLAIN, (SURVIVED,), True),  # CI runs these tests, and there they pass
        (KILLED_BY_MARKED, (KILLED,), False),
        (KILLED_BY_BOTH, (KILLED,), False),
        (KILLED_BY_MARKED, (SURVIVED, KILLED), False),
        (KILLED_BY_MARKED, (SURVIVED, SURVIVED), True),
        (KILLED_BY_MARKED, (cpu(status="timeout"),), False),  # CI is not green
        (KILLED_BY_MARKED, (cpu(status="not-viable"),), False),
        (SURVIVED_ON_CARD, (SURVIVED,), False),
        (KILLED_BY_MARKED, (), True),  # without a CPU column the marker tells
        (KILLED_BY_BOTH, (), False),
        (KILLED_BY_PLAIN, (), False),
        (dataclasses.replace(KILLED_BY_MARKED, killers=(UNKNOWN,)), (), False),
        (dataclasses.replace(KILLED_BY_MARKED, killers=(CARD_KILLER, UNKNOWN)), (), False),
        (dataclasses.replace(KILLED_BY_MARKED, reached=0), (SURVIVED,), False),
    ],
)
def test_a_mutant_dies_only_on_a_card_if_nothing_that_ci_runs_kills_it(
    on_card: rec.Result, on_cpu: tuple[rec.Result, ...], only: bool
) -> None:
    assert only_on_a_card(on_card, *on_cpu) is only


def test_a_cpu_column_of_another_tree_says_nothing() -> None:
    base = column("base:cpu", ON_CPU)
    record = record_of((base, CUDA), {"m": {"base:cpu": SURVIVED, "head:cuda": KILLED_BY_PLAIN}})
    assert not dies_only_on_a_card(record.mutants[0], CUDA, record.columns)
    text = render(record)
    assert "need a card" not in text.partition("<summary>How to read")[0].partition("| mutation |")[0]


def test_a_test_of_an_older_record_has_the_marker_if_it_waited_for_a_card_elsewhere() -> None:
    killed = dataclasses.replace(KILLED_BY_MARKED, killers=(UNKNOWN,))
    waiting = column("head:cuda", ON_CARD, needs_card=(NF4,))
    assert only_on_a_card(killed, cuda=waiting)


def test_the_row_says_so_and_a_summary_counts() -> None:
    ci = of_ci({"a": KILLED, "b": SURVIVED, "c": SURVIVED, "d": SURVIVED})
    card = of_a_card({"a": KILLED_BY_BOTH, "b": KILLED_BY_MARKED, "c": SURVIVED_ON_CARD, "d": KILLED_BY_PLAIN})
    text = render(merge([("cpu.json", ci), ("card.json", card)]))
    assert "**Killed by what CI runs: 1 of 4; by a card too: 3 of 4**." in text
    rows = rows_of(text.partition("| mutation |")[2])
    cells = {what: rows[f"`if x is {what}: return original_forward(x)`"] for what in "abcd"}
    assert {what for what, (_, on_card) in cells.items() if ONLY in on_card} == {"b", "d"}
    assert not any(ONLY in on_cpu for on_cpu, _ in cells.values())
    assert cells["b"][0] == "**37 passed, 2 skipped (survives; 1 test needs a card)**"


def test_what_ci_kills_needs_no_verdict_of_a_card_and_what_has_none_is_left_out() -> None:
    ci = of_ci({"a": KILLED, "b": SURVIVED, "c": SURVIVED, "d": cpu(status="timeout")})
    card = of_a_card({"b": KILLED_BY_MARKED, "c": cpu(status="crash"), "d": KILLED_BY_MARKED})
    both = merge([("cpu.json", ci), ("card.json", card)])
    assert gate_counts(both) == [GateCount("head", by_ci=1, by_card_too=2, total=2, left_out=2, by_marker=False)]
    assert "by a card too: 2 of 2** (2 more have too few verdicts to be counted)." in render(both)


def test_on_a_card_alone_the_marker_tells_what_ci_runs() -> None:
    card = of_a_card({"a": KILLED_BY_BOTH, "b": KILLED_BY_MARKED, "c": SURVIVED_ON_CARD})
    text = render(card)
    assert (
        "**Killed by what CI runs (told by the gpu marker, without a CPU column): 1 of 3; by a card too: 2 of 3**"
        in text
    )
    old = dataclasses.replace(KILLED_BY_MARKED, killers=(UNKNOWN,))
    assert gate_counts(of_a_card({"a": old})) == []
    assert "what CI runs" not in render(of_a_card({"a": old}))


def test_without_a_card_there_is_no_word_of_gates() -> None:
    for record in (of_ci({"a": KILLED, "b": SURVIVED}), record_of((CPU, column("base:cpu", ON_CPU)), {})):
        assert gate_counts(record) == []
        assert "what CI runs" not in render(record)
    not_run = column("head:cuda", ON_CPU, not_run="no CUDA device", baseline=None)
    assert gate_counts(record_of((CPU, not_run), {"a": {"head:cpu": KILLED}})) == []


def test_a_tree_that_only_stands_beside_the_one_under_review_is_not_counted() -> None:
    beside = column("main:cuda", ON_CARD, beside=True)
    record = record_of((CPU, CUDA, beside), {"a": {"head:cpu": KILLED, "main:cuda": SURVIVED_ON_CARD}})
    assert [count.tree for count in gate_counts(record)] == ["head"]


def test_each_tree_is_counted_for_itself() -> None:
    columns = (CPU, CUDA, column("base:cpu", ON_CPU), column("base:cuda", ON_CARD))
    on_head = {"head:cpu": SURVIVED, "head:cuda": KILLED_BY_MARKED}
    on_base = {"base:cpu": SURVIVED, "base:cuda": SURVIVED_ON_CARD}
    text = render(record_of(columns, {"a": on_head | on_base}))
    assert "**head: killed by what CI runs: 0 of 1; by a card too: 1 of 1**" in text
    assert "**base: killed by what CI runs: 0 of 1; by a card too: 0 of 1**" in text
