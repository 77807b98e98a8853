"""What passing tests print is kept, bounded, and shown; nothing else changes by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_text import HOSTILE, assert_harmless
from runner_trees import copy_of, mutant_of, options_for, run_one, target_of
from synthetic_record import synthetic_record

from fastlora_verify.harness.plan import ColumnOutcome, Counts
from fastlora_verify.harness.runner.evidence import Case, SuiteFacts
from fastlora_verify.harness.runner.printed import TOTAL, printed_by
from fastlora_verify.reports import record as rec
from fastlora_verify.reports.markdown import LIMIT, render

pytestmark = pytest.mark.slow  # runs of the tool

TAGS = {"h2", "h3", "h4", "p", "strong", "em", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "pre"}
TAGS |= {"details", "summary"}

PRINTING = """
import logging
import os
import sys

import pytest


@pytest.fixture
def loud():
    print("before")
    yield
    print("after", file=sys.stderr)


def test_ratio(loud):
    print("ratio 1.23")


def test_log():
    logging.getLogger("kernel").warning("7 bytes")


def test_taken(capsys):
    print("taken")
    assert capsys.readouterr().out == "taken\\n"


def test_descriptor(capfd):
    os.write(1, b"taken too")
    assert capfd.readouterr().out == "taken too"


def test_silent():
    pass


def test_skipped():
    print("in vain")
    pytest.skip("no")


@pytest.mark.xfail
def test_expected():
    print("wrong")
    raise AssertionError


def test_long():
    for line in range(10_000):
        print(f"line {line}")
"""


def printing(tmp_path: Path, *arguments: str) -> ColumnOutcome:
    root = copy_of("one-survivor", tmp_path)
    (root / "tests" / "test_printing.py").write_text(PRINTING)
    module = next((root / "src").glob("*.py"))
    line = next(line for line in module.read_text().splitlines() if line.strip().startswith("return"))
    mutant = mutant_of(root, f"src/{module.name}", line, line + "  # the same", name="same")
    target = replace(target_of(root, module.stem), pytest_args=arguments)
    column, _ = run_one(target, [mutant], options_for(tmp_path))
    return column


def test_passing_tests_texts_are_kept_by_phase_and_the_outcomes_are_plain_pytests(tmp_path: Path) -> None:
    column = printing(tmp_path)
    assert column.mode == "fork"
    assert column.baseline is not None
    assert column.baseline.counts.skipped == 1
    assert column.baseline.counts.xfailed == 1
    kept = {found.test.partition("::")[2]: dict(found.sections) for found in column.baseline.printed}
    assert set(kept) == {"test_ratio", "test_log", "test_long"}
    assert kept["test_ratio"] == {
        "Captured stdout setup": "before",
        "Captured stdout call": "ratio 1.23",
        "Captured stderr teardown": "after",
    }
    assert "7 bytes" in kept["test_log"]["Captured log call"]
    text = kept["test_long"]["Captured stdout call"]
    assert len(text) < 5000
    assert text.startswith("line 0\n")
    assert text.endswith("line 9999")
    assert "characters left out" in text
    assert column.baseline.printed_note == ""


def test_a_suite_without_capture_is_run_so_and_that_nothing_is_kept_is_said(tmp_path: Path) -> None:
    column = printing(tmp_path, "--capture=no", "-p", "no:logging", "-k", "ratio or silent or descriptor")
    assert column.baseline is not None
    assert column.baseline.counts == Counts(passed=3)
    assert column.baseline.printed == ()
    assert column.baseline.printed_note == "what tests print is not kept: the suite runs without pytest's capture"


def facts_of(texts: list[str], category: str = "passed") -> SuiteFacts:
    cases = [
        Case(f"t.py::test_{n}", category, printed=(("Captured stdout call", text),)) for n, text in enumerate(texts)
    ]
    return SuiteFacts(tests={case.test: case for case in cases})


def test_a_record_grows_by_a_bounded_number_of_bytes_and_says_what_is_missing() -> None:
    for sign in ("x", "\u00e9", "\U0001f600", "\ud800", "\n"):
        kept, note = printed_by(facts_of([sign * 4000] * 400))
        assert kept
        printed = [
            rec.Printed(test=p.test, sections=(rec.Section(title=t, text=x),)) for p in kept for t, x in p.sections
        ]
        column = replace(synthetic_record().columns[0], printed=tuple(printed))
        record = replace(synthetic_record(), columns=(column,))
        empty = replace(record, columns=(replace(column, printed=()),))
        assert len(rec.dumps(record)) - len(rec.dumps(empty)) < 1.3 * TOTAL
        assert note == f"{400 - len(kept)} more tests print something that found no room in the record"


def test_a_text_that_finds_no_room_leaves_the_later_ones_theirs() -> None:
    kept, note = printed_by(facts_of(["a" * (TOTAL - 500), "b" * 1000, "ratio 1.0"]))
    assert [found.test[-1] for found in kept] == ["0", "2"]
    assert note == "1 more test prints something that found no room in the record"


def test_only_tests_that_pass_are_kept() -> None:
    for category in ("failed", "error", "skipped", "xfailed"):
        assert printed_by(facts_of(["ratio 1.0"], category)) == ((), "")
    assert len(printed_by(facts_of(["ratio 1.0"], "xpassed"))[0]) == 1


def with_output(*printed: rec.Printed, note: str = "") -> rec.RunRecord:
    record = synthetic_record()
    first, *rest = record.columns
    return replace(record, columns=(replace(first, printed=printed, printed_note=note), *rest))


def test_it_is_shown_folded_and_only_when_asked_for() -> None:
    section = rec.Section(title="Captured stdout call", text="ratio 1.23\nbytes 7")
    record = with_output(rec.Printed(test="a.py::test_b", sections=(section,)), note="2 more tests print something")
    assert rec.loads(rec.dumps(record)) == record
    assert "ratio 1.23" not in render(record)
    text = render(record, output=True)
    assert "### What passing tests print" in text
    assert (
        "</summary>\n\n`a.py::test_b`\n\nCaptured stdout call:\n\n```\nratio 1.23\nbytes 7\n```\n\n*2 more tests"
        in text
    )
    assert "no passing test prints anything" in render(with_output(), output=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_tests_print_is_harmless(text: str) -> None:
    printed = rec.Printed(test=text, sections=(rec.Section(title=text, text=text),))
    plain = assert_harmless(render(with_output(), output=True), TAGS)
    reader = assert_harmless(render(with_output(printed, note=text), output=True), TAGS)
    assert reader.tags.count("details") == plain.tags.count("details") + 1


def test_a_report_with_much_output_stays_within_a_comment() -> None:
    section = rec.Section(title="Captured stdout call", text="ratio 1.0\n" * 300)
    many = [rec.Printed(test=f"a.py::test_{n}", sections=(section,)) for n in range(60)]
    text = render(with_output(*many), output=True)
    assert len(text.encode()) <= LIMIT
    assert "tests' output left out to fit into a comment" in text
    assert json.loads(rec.dumps(with_output(*many)))["columns"][0]["printed"][59]["test"] == "a.py::test_59"
