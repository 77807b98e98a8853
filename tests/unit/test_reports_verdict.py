"""Records of runs that were asked for the verdict alone: no format prints their counts as if they were full."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from synthetic_record import PIN, killers, synthetic_record

from fastlora_verify.reports import csv_text, html_page, junit, markdown
from fastlora_verify.reports.cells import cell, context_of, then_text
from fastlora_verify.reports.findings import class_word
from fastlora_verify.reports.gates import dies_only_on_a_card
from fastlora_verify.reports.merge import merge
from fastlora_verify.reports.record import Killer, MutantRecord, Result, RunRecord, dumps, loads
from fastlora_verify.reports.rounds import with_last_round

STOPPED = Result(
    status="killed",
    how="assertion",
    passed=3,
    failed=1,
    reached=4,
    triggered=4,
    killers=killers("bf16-2d-T"),
    stopped=True,
)


def of(result: Result, asked: str = "verdict", **fields: object) -> RunRecord:
    """A record of one mutant in one column."""
    whole = synthetic_record()
    mutant = replace(whole.mutants[0], results={"head:cpu": result})
    column = replace(next(c for c in whole.columns if c.id == "head:cpu"), asked=asked)  # type: ignore[arg-type]
    return replace(whole, columns=(column,), mutants=(mutant,), last_round=None, audit=None, **fields)  # type: ignore[arg-type]


def cell_of(record: RunRecord) -> str:
    return cell(record.mutants[0], record.columns[0], context_of(record))


def rows(record: RunRecord) -> dict[str, str]:
    return next(csv.DictReader(io.StringIO(csv_text.render(record))))


def test_a_stopped_count_is_a_lower_bound_and_names_no_arms() -> None:
    assert cell_of(of(STOPPED)).startswith("≥ 1 failed (first `")
    assert "bf16" in cell_of(of(STOPPED))
    full = replace(STOPPED, stopped=False)
    assert cell_of(of(full)).startswith("1 failed (")


def test_an_exception_that_came_first_may_not_be_the_only_one() -> None:
    stopped = of(replace(STOPPED, how="exception"))
    assert "by exception so far" in cell_of(stopped)
    assert class_word(stopped.mutants[0]) == "killed by exception so far"
    text = markdown.render(stopped)
    assert "by an exception first, the tests then stopped" in text
    assert "Killed by an exception only" not in text
    assert "by exception only" not in text.partition("How to read this")[0]


@pytest.mark.parametrize("render", [markdown.render, html_page.render])
def test_the_report_says_what_was_not_asked(render: object) -> None:
    assert "asked for the verdict alone" in render(of(STOPPED))  # type: ignore[operator]
    assert "how many more fail is not known" in render(of(STOPPED))  # type: ignore[operator]
    whole = render(of(replace(STOPPED, stopped=False), "count"))  # type: ignore[operator]
    assert "≥" not in whole
    assert "verdict alone" not in whole


def test_csv_leaves_the_counts_out() -> None:
    row = rows(of(STOPPED))
    assert [row[name] for name in ("passed", "failed", "errors", "reached", "killers")] == [""] * 5
    assert (row["status"], row["stopped"]) == ("killed", "yes")
    assert row["first_killer"].startswith(PIN)
    row = rows(of(replace(STOPPED, stopped=False)))
    assert (row["failed"], row["stopped"]) == ("1", "")


def test_junit_says_which_mode_a_suite_was_run_in() -> None:
    assert '<property name="mode" value="verdict"' in junit.render(of(STOPPED))


def test_a_later_round_shows_the_bound() -> None:
    later = with_last_round(of(replace(STOPPED, stopped=False, failed=12), "count"), of(STOPPED), "earlier.json")
    assert later.last_round is not None
    then = later.last_round.then[later.mutants[0].name]["head:cpu"]
    assert then_text(then) == "≥ 1 failed"


def test_columns_of_both_modes_are_kept_apart() -> None:
    count = of(replace(STOPPED, stopped=False, failed=12), "count", started_at="2026-01-01T00:00:00+00:00")
    merged = merge([("count.json", count), ("verdict.json", of(STOPPED))])
    assert sorted(column.id for column in merged.columns) == ["head:cpu", "head:cpu (verdict only)"]
    assert [merged.mutants[0].results[column.id].stopped for column in merged.columns] == [False, True]


def test_whether_ci_sees_a_kill_is_not_told_by_the_first_killers() -> None:
    record = of(STOPPED)
    column = replace(record.columns[0], id="head:cuda", device="cuda")

    def only_on_a_card(*, stopped: bool) -> bool:
        marked = (Killer(test=PIN, gpu=True),)
        result = replace(STOPPED, killers=marked, stopped=stopped)
        mutant: MutantRecord = replace(record.mutants[0], results={"head:cuda": result})
        return dies_only_on_a_card(mutant, column, (column,))

    assert only_on_a_card(stopped=False)
    assert not only_on_a_card(stopped=True)


def test_synthetic_record_keeps_it() -> None:
    again = loads(dumps(of(STOPPED)))
    assert again.columns[0].asked == "verdict"
    assert again.mutants[0].results["head:cpu"].stopped


def test_by_hand_stops_as_well() -> None:
    survivor = Result(status="survived", passed=3, reached=3, triggered=3)
    assert "--to DIR -x`" in markdown.render(of(survivor))
    assert "--to DIR`" in markdown.render(of(survivor, "count"))


def test_by_hand_has_the_target_the_interpreter_and_the_tests_of_the_run() -> None:
    survivor = Result(status="survived", passed=3, reached=3, triggered=3)
    words = (
        "fastlora-verify",
        "mutate",
        "--tests",
        "a.py",
        "--all",
        "--tests=b c.py",
        "--python",
        "p",
        "--target",
        "t",
    )
    text = markdown.render(of(survivor, "count", command=words))
    assert "--to DIR --target t --python p --tests a.py --tests 'b c.py'`" in text
