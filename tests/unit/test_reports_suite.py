"""The suite's section: its one line, the exceptions first, and nothing of the target's that Markdown could read."""

from __future__ import annotations

from typing import Any

import pytest

from fastlora_verify.reports.markdown import render
from fastlora_verify.reports.record import Environment, RunRecord, TargetRecord, dumps, loads
from fastlora_verify.reports.suite import verdict
from fastlora_verify.reports.suite_record import SuiteFinding, SuiteKind, SuiteRecord, SuiteSide


def suite(*findings: SuiteFinding, **changes: Any) -> SuiteRecord:
    sides = {"base": SuiteSide(rev="main", collected=27), "head": SuiteSide(rev="working tree", collected=39)}
    return SuiteRecord(**{**sides, "findings": findings, **changes})


def record(compared: SuiteRecord) -> RunRecord:
    return RunRecord(
        tool_version="0",
        command=("fastlora-verify", "suite"),
        started_at="2026-01-01T00:00:00+00:00",
        target=TargetRecord(name="some", file="some.toml", kernels=(), tests=("tests",)),
        environment=Environment(),
        columns=(),
        suite=compared,
        saved_as="suite.json",
    )


def found(kind: SuiteKind, text: str = "what", **fields: Any) -> SuiteFinding:
    return SuiteFinding(kind=kind, text=text, **fields)


ARMS = ("t.py::x[a]", "t.py::x[b]")


@pytest.mark.parametrize(
    ("compared", "line"),
    [
        (suite(), "Nothing was deleted or loosened: 27 to 39, the original ids survive; no new skip."),
        (
            suite(found("arm-continued"), continued=4),
            "Nothing was deleted or loosened: 27 to 39, the original ids survive, 4 of them under a new id or as an "
            "arm of a new parameter; no new skip.",
        ),
        (
            suite(found("tightened"), found("marker-changed")),
            "Nothing was deleted or loosened: 27 to 39, the original ids survive; no new skip.",
        ),
        (
            suite(base=SuiteSide(rev="main")),
            "Nothing was deleted or loosened: 0 to 39, the base has none of these tests; no new skip.",
        ),
        (
            suite(found("rewritten"), found("rewritten")),
            "Nothing is seen deleted or loosened: 27 to 39, the original ids survive; no new skip. "
            "2 changes are for a reader to judge: 2 assertions rewritten.",
        ),
        (
            suite(found("not-collected")),
            "The suites can't be compared in full: 1 not collected (27 to 39 collected).",
        ),
        (
            suite(found("loosened"), found("test-removed"), found("loosened")),
            "3 exceptions: 1 test deleted, 2 assertions loosened (27 to 39; no new skip).",
        ),
        (suite(found("skip-added")), "1 exception: 1 new skip (27 to 39)."),
        (suite(found("arm-removed", tests=ARMS)), "1 exception: 2 arms removed (27 to 39; no new skip)."),
    ],
)
def test_the_line(compared: SuiteRecord, line: str) -> None:
    assert verdict(compared) == line
    assert f"**{line}**" in render(record(compared)).splitlines()


def test_exceptions_come_first_each_with_its_place() -> None:
    text = render(
        record(
            suite(
                found("tightened", head="t.py:9"),
                found("rewritten", head="t.py:8"),
                found("loosened", "`1` is now `2`", base="t.py:3", head="t.py:5", tests=ARMS),
                found("test-removed", base="t.py:7"),
            )
        )
    )
    lines = [line for line in text.splitlines() if line.startswith("- **")]
    assert [line.partition("**")[2].partition("**")[0] for line in lines] == [
        "test deleted",
        "assertion loosened",
        "assertion rewritten",
        "assertion tightened",
    ]
    assert lines[0] == "- **test deleted** `t.py:7` of the base: what"
    assert lines[1] == (
        "- **assertion loosened** `t.py:5` (base: `t.py:3`): `1` is now `2` (in 2 tests: `t.py::x[a]`, `t.py::x[b]`)"
    )


def test_what_comes_from_the_target_is_harmless() -> None:
    nasty = "`a | b </details>` closes #12 @somebody ![x](http://x) <b>"
    text = render(
        record(suite(found("loosened", nasty, head="t.py:1", tests=("t.py::x[@all|#1]",)), added=("t.py::<b>",)))
    )
    outside = "".join(
        part
        for index, part in enumerate(text.replace("<code>", "`").replace("</code>", "`").split("`"))
        if index % 2 == 0
    )
    for sign in ("@somebody", "#12", "http", "<b>", "@all"):
        assert sign not in outside, sign


def test_a_long_one_fits_and_says_what_is_left_out() -> None:
    many = [found("loosened", f"`{i}` is now `{i + 1}`", head=f"t.py:{i}", tests=ARMS) for i in range(3000)]
    text = render(record(suite(*many, added=tuple(f"t.py::x[{i}]" for i in range(5000)))))
    assert len(text.encode()) <= 65_000
    assert "left out to fit into a comment; all of them are in `suite.json`" in text
    assert "3000 exceptions" in text


def test_the_record_keeps_it() -> None:
    kept = record(suite(found("loosened", tests=ARMS), added=ARMS, notes=("said",)))
    assert loads(dumps(kept)) == kept


def test_arms_that_the_sentence_names_are_not_listed_again() -> None:
    text = render(record(suite(found("arm-removed", "`t.py::x` has lost 2 arms: `a, b`", head="t.py:1", tests=ARMS))))
    assert "- **arm removed** `t.py:1`: `t.py::x` has lost 2 arms: `a, b`" in text.splitlines()
