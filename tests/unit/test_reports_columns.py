"""The report of several trees: what differs between oracles' answers is marked, conflicts stand by path and kind."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from fastlora_verify.harness.exit_code import ExitCode, of_oracles, of_run
from fastlora_verify.reports import junit
from fastlora_verify.reports.columns import crossings
from fastlora_verify.reports.markdown import render
from fastlora_verify.reports.record import (
    Baseline,
    Column,
    ConflictRecord,
    Control,
    Environment,
    Figure,
    OracleRecord,
    RunRecord,
    Stopped,
    TargetRecord,
)

HEAD = Column(id="head:cpu", device="cpu", source="working tree", tests="working tree", source_rev="1" * 40)
MAIN = Column(id="main:cpu", device="cpu", source="main", tests="main", source_rev="2" * 40, beside=True)
CARD = Column(id="head:cuda", device="cuda", source="working tree", tests="working tree")


def answer(column: Column, ok: bool | None = True, **figures: float | str) -> OracleRecord:
    found = tuple(Figure(name=name, value=value) for name, value in figures.items())
    return OracleRecord(oracle="node-taken", kernel="swiglu", ok=ok, summary="said", figures=found, column=column.id)


def record(*columns: Column, oracles: tuple[OracleRecord, ...] = ()) -> RunRecord:
    return RunRecord(
        tool_version="0",
        command=("fastlora-verify", "oracle"),
        started_at="2026-01-02T03:04:05+00:00",
        target=TargetRecord(name="t", file="t.toml", kernels=("swiglu",), tests=("tests",)),
        environment=Environment(),
        columns=columns,
        oracles=oracles,
    )


def rows(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_figures_that_differ_between_trees_are_marked_and_come_first() -> None:
    asked = (answer(HEAD, ok=False, bytes=7, dtype="torch.float32"), answer(MAIN, bytes=7, dtype="torch.bfloat16"))
    text = render(record(HEAD, MAIN, oracles=asked))
    assert "`head:cpu`: **1 answer of 1 objects.** `main:cpu`: **No oracle objects.**" in text
    assert "| node-taken | swiglu | **objects**: said | no objection: said | **differs** |" in text
    assert "#### 1 figure differs between trees" in text
    assert "| node-taken | swiglu | dtype | torch.float32 | torch.bfloat16 | **differs** |" in text
    assert "#### 1 figure is the same" in text
    assert "| node-taken | swiglu | bytes | 7 | 7 |  |" in text
    assert text.index("dtype") < text.index("bytes")


def test_a_figure_that_one_tree_lacks_differs() -> None:
    text = render(record(HEAD, MAIN, oracles=(answer(HEAD, error="raised"), answer(MAIN))))
    assert "| node-taken | swiglu | error | raised | not there | **differs** |" in text


def test_devices_differ_anyway() -> None:
    text = render(record(HEAD, CARD, oracles=(answer(HEAD, ratio=1.25), answer(CARD, ratio=1.5))))
    assert "#### No figure differs between trees" in text
    assert "| node-taken | swiglu | ratio | 1.25 | 1.5 |  |" in text


def test_the_tree_under_review_decides_the_status_of_oracles() -> None:
    assert of_oracles(record(HEAD, MAIN, oracles=(answer(HEAD), answer(MAIN, ok=False)))) is ExitCode.OK
    assert of_oracles(record(HEAD, MAIN, oracles=(answer(HEAD, ok=False), answer(MAIN)))) is ExitCode.SURVIVORS


def test_conflicts_stand_by_path_and_kind() -> None:
    conflict = ConflictRecord(path="tests/test_a|b.py", kind="add/add", text="Merge conflict in @somebody")
    stopped = replace(record(), stopped=Stopped(step="merging HEAD onto main", conflicts=(conflict,)))
    text = render(stopped)
    assert text.startswith("## fastlora-verify: t: merging HEAD onto main: conflict\n")
    assert "**1 path in conflict; nothing was run.**" in text
    (row,) = rows(text, "| <code>tests")
    assert row.count("|") == 4
    assert "| add/add |" in row
    assert "@somebody" not in text.replace("`@somebody`", "")
    assert of_run(stopped) is of_oracles(stopped) is ExitCode.RED_CONTROL


def crossed(red: bool, source: str = "main", tests: str = "working tree") -> str:
    control = Control(name="unmutated", ok=not red, summary="88 failed, 1 passed; the first: tests/a.py::b")
    baseline = Baseline(failed=88 if red else 0, passed=1)
    column = replace(MAIN, source=source, tests=tests, baseline=baseline, controls=(control,))
    (told,) = crossings(record(replace(HEAD, baseline=Baseline(passed=89)), column))
    return told


def test_new_tests_must_fail_on_the_old_source() -> None:
    what = "**the tests of the working tree on the source of main: "
    assert crossed(red=True).startswith(f"{what}88 failed, 1 passed** (they fail there, so they hold something")
    assert crossed(red=True).count("88 failed") == 1
    assert crossed(red=False) == f"{what}1 passed: none of them sees what the change does**"


def test_old_tests_on_the_new_source_may_pass() -> None:
    assert crossed(red=False, source="working tree", tests="main") == (
        "the tests of main on the source of the working tree: 1 passed"
    )
    assert "they hold" not in crossed(red=True, source="working tree", tests="main")


def test_a_change_of_tests_alone_has_nothing_to_hold() -> None:
    column = replace(MAIN, tests="working tree", baseline=Baseline(passed=3), source_digest="sha256:1")
    (told,) = crossings(record(replace(HEAD, baseline=Baseline(passed=3), source_digest="sha256:1"), column))
    assert told == "the tests of the working tree on the source of main: 3 passed"


def ends(record: RunRecord) -> list[tuple[str, str]]:
    """(case's name, what it ends with) of the JUnit report."""
    cases = ET.fromstring(junit.render(record)).iter("testcase")
    return [(case.get("name", ""), end.tag) for case in cases for end in case]


def test_junit_fails_for_a_red_control_and_not_for_what_stands_beside() -> None:
    red = Control(name="unmutated", ok=False, summary="1 failed")
    assert ends(record(replace(HEAD, controls=(red,)))) == [("unmutated", "error")]
    assert ends(record(replace(MAIN, controls=(red,)))) == [("unmutated", "skipped")]
    assert ends(record(HEAD, oracles=(answer(HEAD, ok=False),))) == [("node-taken", "failure")]
    assert ends(record(MAIN, oracles=(answer(MAIN, ok=False),))) == [("node-taken", "skipped")]


def test_junit_fails_for_conflicts() -> None:
    conflict = ConflictRecord(path="a.py", kind="content")
    stopped = replace(record(), stopped=Stopped(step="merging HEAD onto main", conflicts=(conflict,)))
    assert ends(stopped) == [("a.py", "error")]
    assert 'tests="1" failures="0" errors="1"' in junit.render(stopped)
