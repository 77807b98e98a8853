"""Tests that fail now and then without any mutation are named, and their failures kill nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.errors import RedControl
from fastlora_verify.harness.plan import KILLED, SURVIVED, Counts
from fastlora_verify.harness.runner.evidence import Case, SuiteFacts
from fastlora_verify.harness.runner.flaky import MOST, flaky_among
from fastlora_verify.harness.runner.jobs import Chosen

COUNTING = """
from pathlib import Path

def test_flaky():
    count = Path({count!r})
    count.write_text(count.read_text() + "x" if count.exists() else "x")
    import mod
    mod.f(1)
    assert len(count.read_text()) % {every} not in {fails}

def test_f():
    import mod
    assert mod.f(1) == 2

def test_g():
    import mod
    assert mod.g(1) == 2
"""
MOD = "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x * 2\n"


def tree(tmp_path: Path, every: int, *fails: int) -> Path:
    root = tmp_path / "tree"
    tests = COUNTING.format(count=str(tmp_path / "count"), every=every, fails=fails)
    for name, text in {"src/mod.py": MOD, "tests/test_it.py": tests}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["count", "verdict"])
@pytest.mark.parametrize(
    ("every", "fails"),
    [(2, (0,)), (2, (1,)), (4, (2, 3))],
    ids=["found alone", "fails first", "passes where the others are compared with it"],
)
def test_a_flaky_test_is_named_and_kills_nothing(tmp_path: Path, every: int, fails: tuple[int, ...], mode: str) -> None:
    root = tree(tmp_path, every, *fails)
    mutants = [mutant_of(root, "src/mod.py", "x + 1", new, name=new) for new in ("1 + x", "1 + x + 0", "x + 2")]
    options = options_for(tmp_path, workers=1, audit=1, mode=mode)
    column, events = run_one(target_of(root, "mod"), mutants, options)
    note = "1 test fails now and then without any mutation, so no failure there kills a mutant: "
    assert f"{note}tests/test_it.py::test_flaky" in column.notes
    assert f"{note}tests/test_it.py::test_flaky" in events.notes
    assert {"selection", "collected-once"} <= set(events.controls)
    assert [outcome.status for outcome in column.mutants] == [SURVIVED, SURVIVED, KILLED]
    assert [[killer.test for killer in outcome.killers] for outcome in column.mutants] == [
        [], [], ["tests/test_it.py::test_f"],
    ]  # fmt: skip
    assert column.audit_differences == ()


@pytest.mark.slow
def test_a_test_that_always_fails_is_red(tmp_path: Path) -> None:
    with pytest.raises(RedControl, match=r"'unmutated' is red .* the first: tests/test_it\.py::test_flaky"):
        run_one(target_of(tree(tmp_path, 1, 0)), [], options_for(tmp_path, workers=1))


def facts(**categories: str) -> SuiteFacts:
    tests = {name: Case(name, category) for name, category in categories.items()}
    return SuiteFacts(tests=tests, ended=True, collected_digest="d", counts=Counts())


def test_a_test_is_flaky_if_runs_of_one_kind_differ() -> None:
    """Alone a test may fare otherwise than among all: that is no flakiness."""
    asked: list[Chosen | None] = []
    first = facts(a="failed", b="failed", c="failed", d="passed")

    def run(each: list[Chosen | None]) -> list[SuiteFacts]:
        asked.extend(each)
        if each == [None]:
            return [facts(a="passed", b="failed", c="failed", d="passed")]
        return [facts(b="passed", c=("passed", "failed")[n % 2]) for n in range(len(each))]

    assert flaky_among(["a", "b", "c"], first, run) == {"a", "c"}  # type: ignore[arg-type]
    assert asked[1] == Chosen(("b", "c"), "d")


def test_many_failures_are_no_flakiness() -> None:
    first = facts(**{f"t{n}": "failed" for n in range(MOST + 1)})
    assert flaky_among(first.tests, first, lambda _: [replace(first)]) == set()
