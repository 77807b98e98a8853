"""`mutate --shard K/N` and `report` over the shards, from the command line."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from runner_trees import TESTDATA

from fastlora_verify.harness.cli import run
from fastlora_verify.reports.record import MutantRecord, RunRecord, loads

NAMES = ("delegates-always", "delegates-on-cuda", "guard-*")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(TESTDATA / "tiny", tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words: str) -> int:
    return run(["mutate", "--target", "tiny", "--no-oracles", "--workers", "1", *words])


def read(name: str) -> RunRecord:
    return loads(Path(name).read_text(encoding="utf-8"))


def untimed(mutants: tuple[MutantRecord, ...]) -> list[MutantRecord]:
    def results(mutant: MutantRecord) -> dict[str, object]:
        return {column: dataclasses.replace(result, seconds=0.0) for column, result in mutant.results.items()}

    return [dataclasses.replace(mutant, results=results(mutant)) for mutant in mutants]  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0/3", "4/3", "x", "1", "1/0", "-1/3", "1/3/3", "1/", "", "²/3"])
def test_what_is_no_shard_is_told_in_one_line(tiny: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("--all", f"--shard={text}") == 2
    err = capsys.readouterr().err
    assert f"--shard {text}: not a shard; give K/N" in err
    assert err.count("\n") == 1
    assert not list(tiny.glob(".fastlora-verify"))


@pytest.mark.slow  # runs of the tool
def test_shards_merged_are_the_one_run(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(*NAMES[:2], "--json", "old.json", "--run-dir", "old") in (0, 1)
    asked = (*NAMES, "--audit", "1", "--previous", "old.json")
    status = ask(*asked, "--json", "whole.json", "--run-dir", "whole")
    assert status == 1
    for number in (1, 2):
        own = ("--shard", f"{number}/2", "--json", f"{number}.json", "--run-dir", "shards")
        assert ask(*asked, *own) in (0, 1)
    capsys.readouterr()
    assert run(["report", "1.json", "2.json", "--format", "json"]) == status
    (tiny / "merged.json").write_text(capsys.readouterr().out, encoding="utf-8")
    whole, merged = read("whole.json"), read("merged.json")
    assert untimed(merged.mutants) == untimed(whole.mutants)
    assert [len(read(f"{number}.json").mutants) for number in (1, 2)] == [len(whole.mutants[n::2]) for n in (0, 1)]
    assert (merged.no_sites, merged.shard, merged.last_round) == (whole.no_sites, None, whole.last_round)
    for mine, other in zip(merged.columns, whole.columns, strict=True):
        assert [(one.name, one.summary) for one in mine.controls] == [(one.name, one.summary) for one in other.controls]
    assert merged.audit is not None and merged.audit.checked > 1 and not merged.audit.differences
    _reports(status, capsys)


def _reports(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What `report` says of the two shards here."""
    assert run(["report", "1.json", "2.json", "--previous", "1.json"]) == 2
    assert "give the records of all 2" in capsys.readouterr().err
    assert run(["report", "1.json", "2.json", "--previous", "1.json", "--previous", "2.json"]) == status
    assert "no verdict changed" in capsys.readouterr().out
    assert run(["report", "2.json", "--previous", "2.json"]) == 0
    assert "Shard 2 of 2" in capsys.readouterr().out
    assert run(["report", "1.json", "2.json", "--separate"]) == 0
    assert "Shard 1 of 2" in capsys.readouterr().out
    assert run(["report", "1.json", "whole.json"]) == 2
    assert "shard 2/2 is missing" in capsys.readouterr().err
    assert run(["report", "1.json", "1.json", "2.json"]) == 2
    assert "are both shard 1/2" in capsys.readouterr().err


@pytest.mark.slow  # runs of the tool
def test_more_shards_than_mutants(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("delegates-always",)
    status = ask(*names, "--json", "whole.json", "--run-dir", "one")
    found = [
        ask(*names, "--shard", f"{number}/3", "--json", f"{number}.json", "--run-dir", "one") for number in (1, 2, 3)
    ]
    assert found == [status, 0, 0]
    capsys.readouterr()
    assert run(["report", "2.json"]) == 0
    assert "Shard 2 of 3: 0 of 1 mutant, not the whole run" in capsys.readouterr().out
    assert run(["report", "1.json", "2.json", "3.json"]) == status
    assert "shard 2" not in capsys.readouterr().out.partition("Ran `")[0]
