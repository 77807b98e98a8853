"""Columns of several trees, run: their counts are those of plain pytest on trees that were put together by hand."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from repositories import commit, git, hashes, new_repository

from fastlora_verify.harness import session
from fastlora_verify.harness.cli import run as command
from fastlora_verify.harness.errors import RedControl
from fastlora_verify.harness.exit_code import ExitCode, of_run
from fastlora_verify.harness.plan import NoEvents, RunOptions
from fastlora_verify.harness.selection import Selection
from fastlora_verify.harness.trees.columns import Wanted
from fastlora_verify.reports.markdown import render
from fastlora_verify.reports.record import Counts, RunRecord, dumps, loads

pytestmark = pytest.mark.slow  # runs of the tool

TINY = Path(__file__).parent.parent / "testdata" / "tiny"
KERNEL = (TINY / "src/tiny/kernel.py").read_text("utf-8")
TESTS = (TINY / "tests/test_tiny.py").read_text("utf-8")
SKIPPED = "guard-skipped@tiny.kernel:patch.forward[must_delegate+x+args+kwargs]"
CHANGE = {
    "src/tiny/kernel.py": KERNEL.replace("return 1\n", "return 2 - 1\n"),
    "src/tiny/extra.py": "N = 3\n",
    "tests/test_tiny.py": TESTS
    + "\n\ndef test_extra():\n    from tiny import extra\n\n    assert extra.N == 3\n"
    + "\n\ndef test_negative():\n    module = Module()\n    patch(module)\n"
    + '    assert getattr(module.forward(-3), "node", None) is None\n',
}


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """No library is imported before the tests: the target needs none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "RunOptions", functools.partial(RunOptions, libraries=()))
        patch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        yield


def repository(folder: Path) -> Path:
    """`main` has the target, `change` adds a module, two tests and another way to say 1; it is checked out."""
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    new_repository(folder)
    commit(folder, {})
    git(folder, "checkout", "-q", "-b", "change")
    commit(folder, CHANGE)
    return folder


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def mutated(top: Path, wanted: Wanted, *names: str, **more: object) -> RunRecord:
    """A run of these mutations, all without a name; its results lie beside the repository."""
    request = session.Request(
        command=("fastlora-verify", "mutate"), target=top, run_dir=top.parent / "run", columns=wanted, oracles=False
    )
    return session.mutate(replace(request, **more), Selection(names), NoEvents())  # type: ignore[arg-type]


def counts(found: Counts | None) -> tuple[int, int, int]:
    assert found is not None
    return found.failed, found.passed, found.skipped


def plain(tree: Path) -> tuple[int, int, int]:
    """What pytest prints in a tree: failed, passed, skipped."""
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    arguments = [sys.executable, "-P", "-B", "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "tests"]
    env["PYTHONPATH"] = str(tree / "src")
    out = subprocess.run(arguments, cwd=tree, env=env, capture_output=True, text=True, check=False).stdout
    numbers = {word: int(number) for number, word in re.findall(r"(\d+) (failed|passed|skipped)", out)}
    return numbers.get("failed", 0), numbers.get("passed", 0), numbers.get("skipped", 0)


def by_hand(top: Path, folder: Path, source: str, tests: str) -> Path:
    """The source of one branch with the tests of another, put together with nothing but git."""
    tree = folder / f"{source}-{tests}"
    git(top.parent, "clone", "-q", "-b", source, str(top), str(tree))
    shutil.rmtree(tree / "tests")
    git(tree, "checkout", "-q", f"origin/{tests}", "--", "tests")
    return tree


@dataclass(frozen=True)
class Against:
    top: Path
    record: RunRecord
    before: dict[str, tuple[str, int, int]]


@pytest.fixture(scope="module")
def against(tmp_path_factory: pytest.TempPathFactory, quick: None) -> Against:
    """Every mutant of `change` against `main`."""
    top = repository(tmp_path_factory.mktemp("against") / "repo")
    before = hashes(top)
    return Against(top, mutated(top, Wanted(against="main")), before)


PAIRS = {"head:cpu": ("change", "change"), "tests=main:cpu": ("change", "main"), "source=main:cpu": ("main", "change")}


def test_the_unmutated_suites_are_those_of_plain_pytest(against: Against, tmp_path: Path) -> None:
    assert [column.id for column in against.record.columns] == list(PAIRS)
    for column in against.record.columns:
        assert counts(column.baseline) == plain(by_hand(against.top, tmp_path, *PAIRS[column.id])), column.id


@pytest.mark.parametrize("column", ["head:cpu", "tests=main:cpu"])
def test_the_mutants_are_those_of_plain_pytest(against: Against, tmp_path: Path, column: str) -> None:
    tree = by_hand(against.top, tmp_path, *PAIRS[column])
    killed = [mutant for mutant in against.record.mutants if mutant.results[column].status == "killed"]
    survived = [mutant for mutant in against.record.mutants if mutant.results[column].status == "survived"]
    for mutant in (killed[0], killed[-1], survived[0]):
        subprocess.run(["git", "apply", "-"], cwd=tree, input=mutant.diff, text=True, check=True)
        assert counts(mutant.results[column]) == plain(tree)
        git(tree, "checkout", "-q", "--", "src")


def test_the_repository_is_byte_for_byte_as_it_was(against: Against) -> None:
    assert hashes(against.top) == against.before


def test_a_red_suite_on_another_source_is_a_finding(against: Against) -> None:
    red = against.record.columns[2]
    assert red.not_run == "the unmutated suite is red there"
    assert {mutant.results[red.id].status for mutant in against.record.mutants} == {"not-run"}
    assert not red.controls[-1].ok
    assert "tests/test_tiny.py::test_extra" in red.controls[-1].summary
    text = render(against.record)
    told = "the tests of the working tree on the source of main: 1 failed, 4 passed, 1 skipped"
    assert f"**{told}** (they fail there, so they hold something that the change does; the first:" in text
    assert of_run(against.record) is ExitCode.SURVIVORS


def test_the_record_says_which_trees_they_were(against: Against) -> None:
    head, main = (git(against.top, "rev-parse", name) for name in ("change", "main"))
    revisions = [(c.source, c.source_rev, c.tests, c.tests_rev, c.beside) for c in against.record.columns]
    own = "working tree"
    assert revisions == [
        (own, head, own, head, False),
        (own, head, "main", main, True),
        ("main", main, own, head, True),
    ]
    assert len({column.tree_digest for column in against.record.columns}) == 3
    assert loads(dumps(against.record)) == against.record
    assert f"main `{main[:9]}`" in render(against.record)


def test_the_tree_under_review_decides(against: Against) -> None:
    (mutant,) = [found for found in against.record.mutants if found.name == SKIPPED]
    assert (mutant.results["head:cpu"].status, mutant.results["tests=main:cpu"].status) == ("killed", "survived")
    assert "3 of 15 mutants survive" in render(against.record)


def test_a_survivor_that_the_other_tests_kill_is_loud(top: Path) -> None:
    git(top, "checkout", "-q", "main")
    commit(top, {"tests/test_tiny.py": CHANGE["tests/test_tiny.py"].replace("test_extra():", "other():")})
    git(top, "checkout", "-q", "change")
    commit(top, {"tests/test_tiny.py": TESTS})
    record = mutated(top, Wanted(("source=head", "tests=main")), SKIPPED)
    assert of_run(record) is ExitCode.SURVIVORS
    assert "**1 of these is killed in `tests=main:cpu`.**" in render(record)


def test_a_kernel_that_the_other_source_lacks_has_no_site_there(top: Path) -> None:
    git(top, "checkout", "-q", "main")
    commit(top, {"src/tiny/kernel.py": None, "tests/test_tiny.py": "def test_nothing():\n    pass\n"})
    git(top, "checkout", "-q", "change")
    record = mutated(top, Wanted(("source=head", "source=main", "source=main,tests=main")), SKIPPED)
    head, red, main = record.columns
    assert counts(red.baseline) == (1, 0, 0) or red.baseline is None or red.baseline.errors == 1
    (mutant,) = record.mutants
    assert mutant.results[head.id].status == "killed"
    assert mutant.results[red.id].status == mutant.results[main.id].status == "no-site"
    assert mutant.results[main.id].note == "not in the source of main"
    assert main.baseline is not None and main.baseline.passed == 1
    assert "main: module tiny.kernel is not in the tree" in main.notes


def test_what_tests_that_run_no_kernel_let_pass_survives(top: Path) -> None:
    git(top, "checkout", "-q", "main")
    commit(top, {"tests/test_tiny.py": "def test_nothing():\n    pass\n"})
    git(top, "checkout", "-q", "change")
    record = mutated(top, Wanted(("source=head", "tests=main")), SKIPPED)
    (mutant,) = record.mutants
    assert mutant.results["tests=main:cpu"].status == "survived"
    assert counts(mutant.results["tests=main:cpu"]) == (0, 1, 0)
    assert record.columns[1].notes[0].startswith("no test runs a kernel in src/tiny/kernel.py")
    assert of_run(record) is ExitCode.OK


def test_a_mutant_of_the_other_source_alone_is_shown_with_its_diff(top: Path) -> None:
    commit(top, {"src/tiny/kernel.py": KERNEL.replace("must_delegate(x) or args or kwargs", "must_delegate(x)")})
    record = mutated(top, Wanted(("source=head", "source=main,tests=main")), "guard-skipped")
    statuses = {m.name: [m.results[c.id].status for c in record.columns] for m in record.mutants}
    assert statuses[SKIPPED] == ["no-site", "survived"]
    own = statuses[SKIPPED.replace("+args+kwargs", "")]
    assert own[1] == "no-site"
    assert all("must_delegate(x)" in mutant.diff for mutant in record.mutants)


def test_equal_trees_are_run_once_and_it_is_said(top: Path) -> None:
    record = mutated(top, Wanted(("source=head", "source=change,tests=change")), SKIPPED)
    first, again = record.columns
    assert again.baseline == first.baseline
    (mutant,) = record.mutants
    assert mutant.results[again.id].killers == mutant.results[first.id].killers
    assert again.notes[-1].startswith("the same blobs as head:cpu, file by file")


def test_an_earlier_run_of_the_same_content_still_holds(top: Path) -> None:
    mutated(top, Wanted(), SKIPPED)
    record = mutated(top, Wanted(("source=head", "source=change,tests=change")), SKIPPED)
    assert any(note.startswith("1 of 1 results are those of an earlier run") for note in record.columns[0].notes)
    commit(top, {"PAGE.md": "a page\n"})
    record = mutated(top, Wanted(), SKIPPED)
    assert re.match(
        r"source and tests have the same blobs as \S+ in the run of .*still holds", record.columns[0].notes[-1]
    )
    commit(top, {"src/tiny/extra.py": "N = 3 + 0\n"})
    assert not mutated(top, Wanted(), SKIPPED).columns[0].notes


def test_tests_that_the_other_tree_lacks_are_left_out(top: Path) -> None:
    commit(top, {"tests/test_more.py": "def test_more():\n    pass\n"})
    wanted = Wanted(("tests=head", "tests=main"))
    record = mutated(top, wanted, SKIPPED, tests=("tests/test_more.py", "tests/test_tiny.py::test_agrees"))
    assert counts(record.columns[1].baseline) == (0, 1, 0)
    assert "main has no tests/test_more.py" in record.columns[1].notes
    record = mutated(top, wanted, SKIPPED, tests=("tests/test_more.py",))
    assert record.columns[1].not_run == "none of the tests is in main"


def test_the_only_column_must_be_green(top: Path) -> None:
    with pytest.raises(RedControl, match=r"'unmutated' is red in column source=main:cpu: 1 failed, 4 passed"):
        mutated(top, Wanted(("source=main",)), SKIPPED)


def test_a_red_tree_of_its_own_is_a_red_control_beside_others_too(top: Path) -> None:
    commit(top, {"src/tiny/extra.py": "N = 4\n"})
    record = mutated(top, Wanted(against="main"), SKIPPED)
    assert [column.not_run is None for column in record.columns] == [False, True, False]
    assert of_run(record) is ExitCode.RED_CONTROL


@pytest.mark.parametrize("option", [("--merged-onto", "main"), ("--rebased-onto", "main")])
def test_conflicts_are_reported_and_nothing_is_run(
    top: Path, option: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(top, "checkout", "-q", "main")
    commit(top, {"src/tiny/kernel.py": KERNEL.replace("return 1\n", "return 0 + 1\n"), "src/tiny/extra.py": "N = 4\n"})
    git(top, "checkout", "-q", "change")
    before = hashes(top)
    monkeypatch.chdir(top.parent)
    assert command(["mutate", "--all", "--target", "repo", *option, "--json", "r.json"]) == ExitCode.RED_CONTROL
    out = capsys.readouterr().out
    assert "| `src/tiny/extra.py` | add/add | Merge conflict in src/tiny/extra.py |" in out
    assert "| `src/tiny/kernel.py` | content |" in out
    assert "**2 paths in conflict; nothing was run.**" in out
    record = loads(Path("r.json").read_text())
    assert record.stopped is not None and not record.columns
    assert hashes(top) == before


def test_the_merge_is_what_is_run(top: Path) -> None:
    git(top, "checkout", "-q", "main")
    commit(top, {"tests/test_main.py": "def test_main():\n    pass\n"})
    git(top, "checkout", "-q", "change")
    record = mutated(top, Wanted(merged_onto=("main",)), SKIPPED)
    assert counts(record.columns[0].baseline) == (0, 6, 1)
    assert record.columns[0].source.startswith("HEAD (") and " merged onto main (" in record.columns[0].source


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--target", "repo", "--against", "nothing"], "'nothing' is no revision of"),
        (["--target", "repo", "--column", "main"], "--column main: 'main' is none of source=, tests= and device="),
        (["--target", "repo", "--column", "source=main+none.diff"], "there is no file none.diff"),
        (["--target", "repo", "--column", "source=main+bad.diff"], "does not apply: patch failed: src/tiny/kernel.py"),
        (["--target", "repo", "--merged-onto", "main", "--rebased-onto", "main"], "give one of them"),
        (["--target", "bare", "--against", "main"], "bare is in no git repository"),
        (["--against", "main"], "has no root, only placed folders"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("of", [["mutate", "--all"], ["oracle"]])
def test_bad_input_is_one_line_and_status_2(
    top: Path,
    of: list[str],
    argv: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(top.parent)
    shutil.copytree(TINY, "bare")
    diff = git(top, "diff", "main", "change", "--", "src/tiny/kernel.py").replace(" class Context", " class Other")
    Path("bad.diff").write_text(re.sub(r"@@ -\d+", "@@ -1", diff) + "\n", encoding="utf-8")
    assert command([*of, *argv]) == ExitCode.USAGE
    told = capsys.readouterr()
    assert not told.out
    assert len(told.err.splitlines()) == 1
    assert problem in told.err
