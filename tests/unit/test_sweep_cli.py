"""`sweep` and `--show-output` on the command line: statuses, files, one line where something is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fastlora_verify.harness import cli

pytestmark = pytest.mark.slow  # runs of the tool

TESTDATA = Path(__file__).parent.parent / "testdata"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    shutil.copytree(TESTDATA / "tiny", tmp_path / "swept")
    shutil.copytree(TESTDATA / "swept", tmp_path / "swept", dirs_exist_ok=True)
    return tmp_path


def sweep(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = cli.run(["sweep", *argv, "--target", "swept"])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_failing_seed_is_status_1_and_the_record_shows_the_same_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("swept/tests/test_swept.py::TestInside::test_helper", "--seeds", "0,4", "--json", "s.json")
    status, out, err = sweep(capsys, *argv, "--report", "s.md", "--show-output")
    assert status == 1, err
    assert (
        "`tests/test_swept.py::TestInside::test_helper`: **1 of 2** seeds pass; seed 4 fails at" in out.splitlines()[2]
    )
    assert out == (folder / "s.md").read_text()
    assert "head:cpu: 2/2" in err
    assert json.loads((folder / "s.json").read_text())["kind"] == "sweep"
    assert cli.run(["report", "s.json", "--show-output"]) == 0
    assert capsys.readouterr().out == out
    assert cli.run(["report", "s.json", "--format", "json"]) == 0
    assert capsys.readouterr().out == (folder / "s.json").read_text()
    assert sorted(path.name for path in folder.iterdir()) == [".fastlora-verify", "s.json", "s.md", "swept"]


def test_runs_that_all_pass_are_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = sweep(capsys, "test_environment", "--runs", "2")
    assert (status, "**2 of 2** runs pass" in out) == (0, True), err


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (
            ["test_helpers"],
            5,
            "no test test_helpers among the 12 collected; nearest: tests/test_swept.py::TestInside::test_h",
        ),
        (["tests/none.py::test_helper"], 5, "nearest: tests/test_swept.py::TestInside::test_helper"),
        (["tests/test_swept.py::test_rows[z]"], 5, "it has tests/test_swept.py::test_rows[x-3-1]"),
        (["tests/test_swept.py"], 2, "holds 9 tests"),
    ],
)
def test_a_test_that_is_not_there_is_one_line_with_the_nearest(
    capsys: pytest.CaptureFixture[str], argv: list[str], status: int, says: str
) -> None:
    found, out, err = sweep(capsys, *argv)
    assert (found, out) == (status, "")
    (line,) = err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["test_rows", "--seeds", "3", "--runs", "2"], "--runs repeats the test as it is"),
        (["test_rows", "--seeds", "0"], "--seeds 0: not a number of seeds"),
        (["test_rows", "--seeds", "x"], "--seeds x: not a number of seeds"),
        (["test_rows", "--runs", "-1"], "--runs"),
        (["test_rows", "--device", "gpu"], "unknown device 'gpu'"),
        (["test_rows", "--device", "cuda"], "--device cuda: "),
        (["test_rows", "--mutant", "no-such"], "unknown mutation 'no-such'"),
        (["test_rows", "--json", "no/such/place.json"], "no/such"),
        ([], "Missing argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], argv: list[str], says: str
) -> None:
    status, out, err = sweep(capsys, *argv)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert says in line


def test_output_is_shown_in_markdown_only_and_sweeps_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.json").write_text('{"kind": "sweep", "schema_version": 1}')
    (folder / "r.json").write_text("{}")
    for argv, says in (
        (["s.json"], "s.json: cannot be read as the record of a sweep: record has no 'tool_version'"),
        (["s.json", "r.json"], "s.json is the record of a sweep and r.json is none; show them one at a time"),
        (["r.json", "--show-output", "--format", "json"], "--show-output is of the Markdown report"),
    ):
        assert cli.run(["report", *argv]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"fastlora-verify: {err.removeprefix('fastlora-verify: ')}"
        assert says in err
