"""The record as CSV, JUnit and HTML: the same verdicts, for other readers, and harmless there too."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import xml.etree.ElementTree as ET

import pytest
from hostile_text import HOSTILE, Reader, generated
from machines import KILLED, KILLED_BY_MARKED, SURVIVED, SURVIVED_ON_CARD, of_a_card, of_ci
from report_text import ALLOWED_TAGS, hostile, many
from synthetic_record import cpu, synthetic_record

from fastlora_verify.reports import record as rec
from fastlora_verify.reports.merge import merge
from fastlora_verify.reports.registry import FORMATS
from fastlora_verify.reports.rounds import with_last_round

BOTH = merge(
    [
        ("cpu.json", of_ci({"a": KILLED, "b": SURVIVED, "c": SURVIVED})),
        ("card.json", of_a_card({"a": KILLED, "b": KILLED_BY_MARKED, "c": SURVIVED_ON_CARD})),
    ]
)


def rows(record: rec.RunRecord) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(FORMATS["csv"](record))))


def suites(record: rec.RunRecord) -> list[ET.Element]:
    return list(ET.fromstring(FORMATS["junit"](record)).iter("testsuite"))


def end_of(case: ET.Element) -> str:
    """`passed`, or the one element that says otherwise, with its message."""
    assert len(case) <= 1
    return f"{case[0].tag}: {case[0].get('message')}" if len(case) else "passed"


# -- CSV ---------------------------------------------------------------------------------------------------


def test_csv_has_a_row_a_mutant_and_column_with_the_records_figures() -> None:
    found = {(row["mutation"][-1], row["column"]): row for row in rows(BOTH)}
    assert list(found) == [(what, column) for what in "abc" for column in ("head:cpu", "head:cuda")]
    killed = found["b", "head:cuda"]
    assert [killed[name] for name in ("status", "how", "passed", "failed", "skipped", "killers")] == [
        "killed", "assertion", "38", "1", "0", "1",
    ]  # fmt: skip
    assert (killed["only_on_a_card"], killed["machine"], killed["device"]) == ("yes", "A Card", "cuda")
    assert killed["first_killer"].endswith("TestNf4::test_the_node_is_the_kernels")
    survived = found["b", "head:cpu"]
    assert (survived["status"], survived["only_on_a_card"], survived["machine"]) == ("survived", "", "CI's CPU")
    assert found["c", "head:cpu"]["class"] == "survives"


def test_csv_has_a_row_also_where_nothing_ran_and_counts_nothing_there() -> None:
    ran = {row["column"]: row for row in rows(synthetic_record()) if row["mutation"] == "delegates-dense-saved"}
    assert (ran["head:cpu"]["status"], ran["head:cpu"]["passed"]) == ("timeout", "")
    assert ran["head:cpu"]["note"] == "no end after 20 s of wall time"
    assert (ran["head:cuda"]["status"], ran["head:cuda"]["failed"]) == ("not-run", "")


def test_csv_tells_the_last_round() -> None:
    beside = with_last_round(of_ci({"a": SURVIVED, "b": KILLED}), of_ci({"a": KILLED}, started_at="then"), "old.json")
    assert [row["last_round"] for row in rows(beside)] == ["killed", ""]


@pytest.mark.parametrize("text", [*HOSTILE, *generated(25), "=1+1", "@SUM(A1)", "+1", "-2+3", "\t=1", "\r=1"])
def test_csv_stays_one_row_a_line_and_holds_no_formula(text: str) -> None:
    record = hostile(text)
    told = FORMATS["csv"](record)
    assert len(told.splitlines()) == 1 + len(record.mutants) * len(record.columns)
    for row in rows(record):
        assert None not in row
        assert None not in row.values()
        assert not any(value.lstrip().startswith(("=", "+", "-", "@")) for value in row.values())
        assert all(sign.isprintable() for value in row.values() for sign in value)


# -- JUnit -------------------------------------------------------------------------------------------------


def test_junit_has_a_suite_a_column_and_survivors_are_failures() -> None:
    on_cpu, on_card = suites(BOTH)
    assert [suite.get("name") for suite in (on_cpu, on_card)] == ["head:cpu", "head:cuda"]
    assert [on_cpu.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "2", "0", "0"]
    assert [on_card.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "0"]
    a, b, c = on_cpu.iter("testcase")
    assert end_of(a) == "passed"
    message = "failure: survives: if x is b: return original_forward(x) (37 passed, 2 skipped; killed in head:cuda)"
    assert end_of(b) == message
    assert "killed in" not in end_of(c)
    assert "+    if x is b:" in (b[0].text or "")
    assert b.get("name") == "delegates-b@pkg.kernels.linear:patch.forward[b]"
    properties = {p.get("name"): p.get("value") for p in on_card.iter("property")}
    assert (properties["device_name"], properties["torch"]) == ("A Card", "2.13.0+cu130")


def test_junit_tells_no_verdict_from_a_failure() -> None:
    results: dict[str, rec.Result] = {
        "timeout": cpu(status="timeout", note="no end"),
        "crash": cpu(status="crash", note="signal 11"),
        "not-viable": cpu(status="not-viable", note="NameError"),
        "not-run": cpu(status="not-run", note="no device"),
        "unreached": dataclasses.replace(KILLED, reached=0),
        "allowed": SURVIVED,
    }
    record = of_ci(results)
    allowed = dataclasses.replace(record.mutants[-1], allowed="a second guard")
    (suite,) = suites(dataclasses.replace(record, mutants=(*record.mutants[:-1], allowed)))
    assert [end_of(case) for case in suite.iter("testcase")] == [
        "error: timeout: no end",
        "error: crash: signal 11",
        "error: not-viable: NameError",
        "skipped: no device",
        "error: killed: no test is known to have run the changed code",
        "skipped: survives, allowed: a second guard",
    ]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["6", "0", "4", "2"]


def test_junit_of_oracles_has_their_answers() -> None:
    base = synthetic_record().oracles[0]
    answers = tuple(
        dataclasses.replace(base, oracle=name, ok=ok) for name, ok in (("yes", True), ("no", False), ("silent", None))
    )
    (suite, _) = suites(dataclasses.replace(synthetic_record(), mutants=(), oracles=answers))
    told = {case.get("name"): end_of(case) for case in suite.iter("testcase")}
    assert told["yes"] == "passed"
    assert told["no"].startswith("failure: worst of 3")
    assert told["silent"].startswith("skipped: could not say: worst of 3")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    only = (dataclasses.replace(base, ok=None, summary="told, not judged: products: 3"),)
    (suite, _) = suites(dataclasses.replace(synthetic_record(), mutants=(), oracles=only))
    assert end_of(next(suite.iter("testcase"))).startswith("skipped: told, not judged: products: 3")


@pytest.mark.parametrize("text", [*HOSTILE, *generated(25), "\ufffe\uffff", "]]>", "<!DOCTYPE x>", "\x0b\x1f"])
def test_junit_is_xml_whatever_the_target_writes(text: str) -> None:
    record = hostile(text)
    told = FORMATS["junit"](record)
    assert len(suites(record)) == len(record.columns)
    ET.fromstring(told.encode())
    assert not re.search(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", told)


# -- HTML --------------------------------------------------------------------------------------------------

PAGE = ALLOWED_TAGS | {"html", "head", "meta", "title", "style", "body"}


def page(record: rec.RunRecord) -> Reader:
    reader = Reader()
    reader.feed(re.sub(r"<(!doctype html|meta [^>]*)>|<style>.*?</style>", "", FORMATS["html"](record), flags=re.S))
    reader.close()
    assert not reader.open
    return reader


def test_html_is_the_whole_report_as_one_page_that_loads_nothing() -> None:
    text = FORMATS["html"](many(500, survivors=40))
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in text
    assert "left out to fit" not in text
    assert text.count("<h4>") == 40
    assert text.count("<td><code>delegates-number-") >= 500
    assert not re.search(r"<script|src=|href=|url\(", text)


@pytest.mark.parametrize("text", [*HOSTILE, *generated(25), "</title><script>", "{body}"])
def test_html_holds_no_markup_of_the_target(text: str) -> None:
    assert set(page(hostile(text)).tags) <= PAGE
