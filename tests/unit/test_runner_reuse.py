"""What is known from an earlier run isn't run again, and what could have changed is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runner_trees import mutant_of, options_for, outcome_of, run_one, target_of

from fastlora_verify.harness.plan import ColumnOutcome
from fastlora_verify.harness.runner import executor
from fastlora_verify.mutations.base import Mutant

SOURCE = '''\
"""Two functions."""


def double(x):
    return 2 * x


def half(x):
    """Half of it."""
    return x / 2
'''
DOUBLE = "import m\n\n\ndef test_double():\n    assert m.double(3) == 6\n"
HALF = "import m\n\n\ndef test_half():\n    assert m.half(4) == 2\n    assert m.half(0) == 0\n"
EDITS = {"doubled": ("2 * x", "3 * x"), "halved": ("x / 2", "x / 3"), "same": ("return x / 2", "return x * 0.5")}

pytestmark = pytest.mark.slow


class Tree:
    """A small target and its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "target"
        self.options = options_for(folder, workers=1)
        for path, text in {
            "src/m.py": SOURCE,
            "src/other.py": "LIMIT = 3  # of something\n",
            "tests/test_double.py": DOUBLE,
            "tests/test_half.py": HALF,
            "README.md": "A page.\n",
        }.items():
            self.write(path, text)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text()
        assert old in text
        self.write(path, text.replace(old, new))

    def mutants(self, *names: str) -> list[Mutant]:
        return [mutant_of(self.folder, "src/m.py", *EDITS[name], name=name) for name in names or EDITS]

    def run(self, *names: str, **options: Any) -> tuple[ColumnOutcome, list[str], list[str]]:
        """The column, the controls that were run, the mutants that were run."""
        target = target_of(self.folder, "m")
        column, events = run_one(target, self.mutants(*names), replace(self.options, **options))
        known = events.started[0][2]
        assert len(events.done) in (len(column.mutants), len(column.mutants) - known)
        return column, events.controls, [name for name, _, _ in events.done if name not in _reused(column)]


def _reused(column: ColumnOutcome) -> tuple[str, ...]:
    return column.reused


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def statuses(column: ColumnOutcome) -> dict[str, str]:
    return {outcome.mutant: outcome.status for outcome in column.mutants}


ALL = ["doubled", "halved", "same"]
VERDICTS = {"doubled": "killed", "halved": "killed", "same": "survived"}


def test_a_second_run_runs_nothing(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    first, controls, ran = tree.run()
    assert (statuses(first), ran) == (VERDICTS, ALL)
    assert "unmutated" in controls
    monkeypatch.setattr(executor, "Pool", None)  # no warm process
    second, controls, ran = tree.run()
    assert (controls, ran) == ([], [])
    assert replace(second, notes=(), reused=()) == replace(first, notes=(), reused=())
    assert second.reused == tuple(ALL)
    assert any("3 of 3 results are those of an earlier run, and so are the controls" in note for note in second.notes)


def test_new_mutants_run_without_the_controls(tree: Tree) -> None:
    tree.run("doubled")
    column, controls, ran = tree.run()
    assert (controls, ran) == ([], ["halved", "same"])
    assert statuses(column) == VERDICTS
    assert any("1 of 3 results are those of an earlier run" in note for note in column.notes)


def comments(tree: Tree) -> None:
    tree.edit("src/m.py", "def half", "# A remark\n# of two lines.\ndef half")
    tree.edit("src/m.py", "Half of it", "One half of it,\n\n    in more words")
    tree.edit("tests/test_half.py", "def test", "# Why.\n\n\ndef test")


def page(tree: Tree) -> None:
    tree.edit("README.md", "page", "good page")


@pytest.mark.parametrize("change", [comments, page])
def test_what_only_explains_changes_nothing(tree: Tree, change: Callable[[Tree], None]) -> None:
    first, _, _ = tree.run()
    change(tree)
    second, controls, ran = tree.run()
    assert (controls, ran) == ([], [])
    assert second.mutants == first.mutants


def code(tree: Tree) -> None:
    tree.edit("src/other.py", "LIMIT = 3", "LIMIT = 4")


def setting(tree: Tree) -> None:
    tree.write("pytest.ini", "[pytest]\n")


def conftest(tree: Tree) -> None:
    tree.write("tests/conftest.py", "import m\n")


@pytest.mark.parametrize("change", [code, setting, conftest])
def test_what_could_matter_changes_everything(tree: Tree, change: Callable[[Tree], None]) -> None:
    tree.run("doubled")
    change(tree)
    _, controls, ran = tree.run("doubled")
    assert "unmutated" in controls
    assert ran == ["doubled"]


READS = """\
import inspect
import pathlib
import subprocess
import sys

import m

ROOT = pathlib.Path(__file__).parent.parent


def test_read():
    {}
"""


@pytest.mark.parametrize(
    ("statement", "change"),
    [
        ("assert (ROOT / 'README.md').read_text()", page),
        ("assert 'return' in inspect.getsource(m.double)", comments),
        ("subprocess.run([sys.executable, '-c', 'pass'], check=True)", page),
    ],
    ids=["a page", "a source", "a process"],
)
def test_a_file_that_a_test_may_read_counts_with_every_byte(
    tree: Tree, statement: str, change: Callable[[Tree], None]
) -> None:
    tree.write("tests/test_read.py", READS.format(statement))
    tree.run("doubled")
    _, controls, ran = tree.run("doubled")
    assert (controls, ran) == ([], [])
    change(tree)
    _, controls, ran = tree.run("doubled")
    assert "unmutated" in controls
    assert ran == ["doubled"]


def test_one_weaker_assertion_runs_again_what_it_can_see_and_the_survivors(tree: Tree) -> None:
    tree.run()
    tree.edit("tests/test_half.py", "m.half(4) == 2", "m.half(4) > 1")
    column, controls, ran = tree.run()
    assert "unmutated" in controls
    assert ran == ["halved", "same"]
    assert statuses(column) == {**VERDICTS, "halved": "survived"}
    assert column.reused == ("doubled",)
    _, controls, ran = tree.run()
    assert (controls, ran) == ([], [])


def test_a_new_test_may_kill_what_survived(tree: Tree) -> None:
    tree.run("same")
    tree.write("tests/test_new.py", "import m\n\n\ndef test_new():\n    assert m.half(10**400)\n")
    with pytest.raises(Exception, match="unmutated"):
        tree.run("same")  # too large for a float: the suite is red
    tree.write(
        "tests/test_new.py", "import m\n\n\ndef test_new():\n    assert m.half(3 + 0j).imag.hex() == '0x0.0p+0'\n"
    )
    column, _, ran = tree.run("same")
    assert ran == ["same"]
    assert outcome_of(column, "same").counts.passed == 3


def test_the_environment_counts_but_for_the_terminal(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.run("doubled")
    monkeypatch.setenv("TERM", "another")
    assert tree.run("doubled")[2] == []
    monkeypatch.setenv("KERNEL_SWITCH", "1")
    assert tree.run("doubled")[2] == ["doubled"]


def test_everything_runs_anew_where_that_is_asked_for(tree: Tree) -> None:
    tree.run("doubled")
    _, controls, ran = tree.run("doubled", resume=False)
    assert "unmutated" in controls
    assert ran == ["doubled"]
