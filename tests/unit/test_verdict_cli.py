"""`mutate --mode verdict`, and the command that `apply` prints, from the command line."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from runner_trees import TESTDATA

from fastlora_verify.harness.cli import run
from fastlora_verify.reports.record import loads


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(TESTDATA / "tiny", tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words: str) -> int:
    return run(["mutate", "--all", "--target", "tiny", "--no-oracles", "--workers", "1", *words])


@pytest.mark.slow  # runs of the tool
def test_both_modes_give_the_same_verdicts_and_one_the_counts(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = ask("--json", "count.json", "--run-dir", "one")
    capsys.readouterr()
    assert ask("--mode", "verdict", "--json", "verdict.json", "--run-dir", "two", "--previous", "count.json") == status
    told = capsys.readouterr().out
    assert "asked for the verdict alone" in told
    assert "≥ 1 failed" in told
    count, verdict = (loads((tiny / f"{mode}.json").read_text()) for mode in ("count", "verdict"))
    assert [column.asked for column in (*count.columns, *verdict.columns)] == ["count", "verdict"]
    results = [
        (one.results["head:cpu"], other.results["head:cpu"])
        for one, other in zip(count.mutants, verdict.mutants, strict=True)
    ]
    assert [a.status for a, _ in results] == [b.status for _, b in results]
    assert any(b.stopped for _, b in results)
    for full, stopped in results:
        assert not full.stopped
        assert stopped.failed <= full.failed
        if stopped.stopped:  # the earlier round knows what kills it
            assert stopped.passed == 0


def test_apply_prints_a_command_that_stops(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "delegates-always@tiny.kernel:patch.forward"
    for words, told in (([], "-m pytest -W ignore tests"), (["-x"], "-m pytest -x -W ignore tests")):
        assert run(["apply", name, "--target", "tiny", "--to", f"to{len(words)}", *words]) == 0
        assert told in capsys.readouterr().out


def test_apply_prints_a_command_with_the_tests_and_the_interpreter_asked_for(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "delegates-always@tiny.kernel:patch.forward"
    one = "tests/test_tiny.py"
    assert run(["apply", name, "--target", "tiny", "--to", "to", "--tests", one, "--python", sys.executable]) == 0
    assert f"{sys.executable} -P -m pytest -W ignore {one}\n" in capsys.readouterr().out
    assert run(["apply", name, "--target", "tiny", "--to", "other", "--tests", "tests/no.py"]) == 2
    assert "tests/no.py" in capsys.readouterr().err
