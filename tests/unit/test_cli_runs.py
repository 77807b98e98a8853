"""Whole runs of the command line on a target of one kernel without torch."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fastlora_verify.reports import record as rec
from fastlora_verify.reports.markdown import render

pytestmark = pytest.mark.slow  # runs of the tool

TINY = Path(__file__).parent.parent / "testdata" / "tiny"
COMMAND = (sys.executable, "-P", "-c", "from fastlora_verify.harness.cli import main; main()")


@dataclass(frozen=True)
class Run:
    """A finished command and the folder that it ran in; the target is in `tiny` there."""

    folder: Path
    status: int
    out: str
    err: str


def run(folder: Path, *argv: str) -> Run:
    done = subprocess.run([*COMMAND, *argv], cwd=folder, capture_output=True, text=True, check=False)
    return Run(folder, done.returncode, done.stdout, done.stderr)


def content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(autouse=True, scope="module")
def no_card() -> Iterator[None]:
    """The same on a machine with a card."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(TINY, tmp_path / "tiny")
    return tmp_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, str]]:
    """Every mutant on both devices, audited; and what the target's files were before."""
    place = tmp_path_factory.mktemp("whole")
    shutil.copytree(TINY, place / "tiny")
    before = content(place / "tiny")
    files = ("--json", "run.json", "--report", "report.md")
    done = run(place, "mutate", "--all", "--target", "tiny", "--device", "cpu", "cuda", "--audit", "1", *files)
    return done, before


def test_a_run_prints_the_report_of_its_record_and_nothing_else(whole: tuple[Run, dict[str, str]]) -> None:
    done, _ = whole
    assert done.status == 1, done.err
    record = rec.loads((done.folder / "run.json").read_text())
    assert done.out == render(record) == (done.folder / "report.md").read_text()
    assert record.saved_as == "run.json"
    assert record.command[:3] == ("fastlora-verify", "mutate", "--all")
    assert record.schema_version == 1
    kept = rec.loads((done.folder / ".fastlora-verify/tiny/record.json").read_text())
    assert kept == record


def test_stderr_tells_the_controls_the_survivors_and_the_end(whole: tuple[Run, dict[str, str]]) -> None:
    done, _ = whole
    for name in ("unmutated", "warm-equals-cold", "identity", "raise"):
        assert f"control {name}: green" in done.err
    assert "survived: forward-left-behind@tiny.kernel:unpatch (head:cpu)" in done.err
    assert "no oracle was asked: no kernel of the target has a patcher and a kind with sample models" in done.out
    assert re.search(r"head:cpu: (\d+)/\1: ", done.err)


def test_the_record_has_both_columns_and_the_cards_says_why_it_did_not_run(
    whole: tuple[Run, dict[str, str]],
) -> None:
    record = rec.loads((whole[0].folder / "run.json").read_text())
    cpu, cuda = record.columns
    assert (cpu.id, cpu.not_run) == ("head:cpu", None)
    assert cpu.baseline is not None
    assert (cpu.baseline.passed, cpu.baseline.failed, cpu.baseline.skipped) == (3, 0, 1)
    assert [control.name for control in cpu.controls] == [
        "unmutated", "warm-equals-cold", "identity", "raise", "selection",
    ]  # fmt: skip
    assert cpu.needs_card == ("tests/test_tiny.py::test_on_a_card",)
    assert cpu.source_rev.startswith("sha256:")
    assert cpu.source_rev != cpu.tests_rev
    assert cuda.not_run
    assert "CUDA" in cuda.not_run
    assert all(mutant.results["head:cuda"].status == "not-run" for mutant in record.mutants)
    assert f"not run: {cuda.not_run[:20]}".replace("`", "") in whole[0].out.replace("`", "")
    assert record.environment.python
    assert record.environment.pytest


def test_a_kill_has_its_killers_and_a_survivor_the_tests_that_reached_it(
    whole: tuple[Run, dict[str, str]],
) -> None:
    record = rec.loads((whole[0].folder / "run.json").read_text())
    by_name = {mutant.name: mutant for mutant in record.mutants}
    killed = by_name["delegates-always@tiny.kernel:patch.forward"].results["head:cpu"]
    assert (killed.status, killed.how, killed.failed, killed.passed) == ("killed", "assertion", 2, 1)
    assert {killer.test for killer in killed.killers} == {
        "tests/test_tiny.py::test_the_kernel_is_taken[1]",
        "tests/test_tiny.py::test_the_kernel_is_taken[3]",
    }
    survived = by_name["forward-left-behind@tiny.kernel:unpatch"].results["head:cpu"]
    assert survived.status == "survived"
    assert [test.test for test in survived.reached_tests] == ["tests/test_tiny.py::test_agrees"]
    assert "nearest test: `tests/test_tiny.py::test_agrees`" in whole[0].out


def test_the_audit_ran_again_and_agrees(whole: tuple[Run, dict[str, str]]) -> None:
    record = rec.loads((whole[0].folder / "run.json").read_text())
    survivors = sum(mutant.results["head:cpu"].status == "survived" for mutant in record.mutants)
    assert record.audit is not None
    assert record.audit.checked >= survivors
    assert record.audit.differences == ()


def test_the_targets_tree_is_as_it_was_and_the_runs_folder_is_ignored_by_git(
    whole: tuple[Run, dict[str, str]],
) -> None:
    done, before = whole
    assert content(done.folder / "tiny") == before
    assert (done.folder / ".fastlora-verify/.gitignore").read_text() == "*\n"


def test_apply_and_the_command_that_it_prints_give_the_records_counts(whole: tuple[Run, dict[str, str]]) -> None:
    folder = whole[0].folder
    record = rec.loads((folder / "run.json").read_text())
    for mutant in (record.mutants[0], record.mutants[-1]):
        to = f"by-hand-{mutant.mutation}"
        applied = run(folder, "apply", mutant.name, "--to", to, "--target", "tiny")
        assert applied.status == 0, applied.err
        told, command = applied.out.splitlines()
        assert told.endswith(f"is in {to}/{mutant.file}")
        done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
        printed = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
        result = mutant.results["head:cpu"]
        assert printed.get("passed", 0) == result.passed
        assert printed.get("failed", 0) == result.failed
        assert printed.get("skipped", 0) == result.skipped


def test_apply_writes_one_file_into_a_copy_that_is_there_and_refuses_another_one(folder: Path) -> None:
    shutil.copytree(folder / "tiny", folder / "copy")
    name = "delegates-always@patch.forward"  # the short name, as the report gives it
    argv = ("apply", name, "--to", "copy", "--target", "tiny")
    assert run(folder, *argv).status == 0
    changed = [path for path, digest in content(folder / "copy").items() if content_of(folder, path) != digest]
    assert [Path(path).name for path in changed] == ["kernel.py"]
    again = run(folder, *argv)
    assert again.status == 2
    assert "is not the target's unmutated file; give a fresh copy" in again.err
    Path(changed[0]).write_bytes(b"\xff\x00")
    assert run(folder, *argv).status == 2
    (folder / "other").mkdir()
    (folder / "other/file").touch()
    other = run(folder, "apply", name, "--to", "other", "--target", "tiny")
    assert other.status == 2
    assert "other has no src/tiny/kernel.py" in other.err


def content_of(folder: Path, path: str) -> str:
    twin = folder / "tiny" / Path(path).relative_to(folder / "copy")
    return hashlib.sha256(twin.read_bytes()).hexdigest()


def test_diff_prints_the_name_the_gist_and_the_change(folder: Path) -> None:
    done = run(folder, "diff", "forward-left-behind@unpatch", "--target", "tiny")
    assert done.status == 0
    assert done.out.startswith("# forward-left-behind@tiny.kernel:unpatch: ")
    assert "\n-    del module.forward\n+    pass\n" in done.out


def test_allowed_survivors_are_status_0_and_told_with_their_reasons(folder: Path) -> None:
    with (folder / "tiny/fastlora-verify.toml").open("a") as file:
        file.write('\n[[allow]]\nmutant = "guard-*"\nreason = "the second lock of a door"\n')
    done = run(folder, "mutate", "delegates-always", "guard-skipped", "--target", "tiny")
    assert done.status == 0, done.err
    assert "**No mutant survives unexplained.**" in done.out
    assert "| the second lock of a door |" in done.out


def test_a_red_suite_is_status_4_and_one_line(folder: Path) -> None:
    with (folder / "tiny/tests/test_tiny.py").open("a") as file:
        file.write("\n\ndef test_red():\n    assert False\n")
    done = run(folder, "mutate", "delegates-always", "--target", "tiny")
    assert done.status == 4
    assert done.out == ""
    last = done.err.splitlines()[-1]
    assert last.startswith("fastlora-verify: control 'unmutated' is red in column head:cpu: 1 failed, 3 passed")
    assert "test_red" in last


def test_a_missing_card_alone_is_status_2_and_says_what_is_missing(folder: Path) -> None:
    done = run(folder, "mutate", "delegates-always", "--target", "tiny", "--device", "cuda")
    assert done.status == 2
    assert done.out == ""
    says = r"fastlora-verify: --device cuda: torch .*CUDA.*, so nothing can run; add --device cpu.*\n"
    assert re.fullmatch(says, done.err)


def test_tests_can_be_chosen_as_they_lie_on_disk(folder: Path) -> None:
    test = "tiny/tests/test_tiny.py::test_agrees"
    done = run(folder, "mutate", "delegates-always", "--target", "tiny", "--tests", test)
    assert done.status == 1, done.err
    record = rec.loads((folder / ".fastlora-verify/tiny/record.json").read_text())
    assert record.target.tests == ("tests/test_tiny.py::test_agrees",)
    assert record.mutants[0].results["head:cpu"].passed == 1


def test_an_interpreter_without_pytest_is_status_2(folder: Path) -> None:
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    done = run(folder, "mutate", "delegates-always", "--target", "tiny", "--python", "bare/bin/python")
    assert done.status == 2
    assert "it has no pytest; give an interpreter that has pytest" in done.err
    assert len(done.err.splitlines()[-1:]) == 1
