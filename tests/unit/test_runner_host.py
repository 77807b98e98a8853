"""Tests collected once: a mutant's run goes on from there only where it would be the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_trees import Recorder, mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import CRASH, KILLED, ColumnOutcome, Counts, RunOptions

pytestmark = pytest.mark.slow  # runs of the tool

MOD = "def f(x):\n    return x + 1\n"
LAZY = "def test_f():\n    import mod\n    assert mod.f(1) == 2\n\ndef test_other(): pass\n"


def tree(tmp_path: Path, tests: str, **more: str) -> Path:
    root = tmp_path / "tree"
    for name, text in {"src/mod.py": MOD, "tests/test_it.py": tests, **more}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run(tmp_path: Path, root: Path, *edits: tuple[str, str], **options: object) -> tuple[ColumnOutcome, Recorder]:
    mutants = [mutant_of(root, "src/mod.py", old, new) for old, new in edits]
    return run_one(target_of(root, "mod"), mutants, options_for(tmp_path, **options))


def hosted(events: Recorder) -> bool:
    return "collected-once" in events.controls


def test_tests_that_import_late_are_collected_once(tmp_path: Path) -> None:
    column, events = run(tmp_path, tree(tmp_path, LAZY), ("x + 1", "x + 2"), ("x + 1", "x - 1"))
    assert hosted(events)
    assert [m.status for m in column.mutants] == [KILLED, KILLED]
    assert [m.counts for m in column.mutants] == [Counts(passed=1, failed=1)] * 2


@pytest.mark.parametrize(
    "tests",
    [
        "import mod\n\ndef test_f():\n    assert mod.f(1) == 2\n",
        "TEXT = open('src/mod.py').read()\n\ndef test_f():\n    assert '+ 1' in TEXT\n"
        "\ndef test_g():\n    import mod\n    assert mod.f(1) == 2\n",
        "import subprocess, sys\nOUT = subprocess.run([sys.executable, '-c', 'import mod; print(mod.f(1))'],"
        " capture_output=True, text=True).stdout\n\ndef test_f():\n    assert OUT.strip() == '2'\n"
        "\ndef test_g():\n    import mod\n    assert mod.f(1) == 2\n",
    ],
    ids=["imports", "reads", "starts a process"],
)
def test_tests_that_see_the_mutant_while_they_are_collected_are_not(tmp_path: Path, tests: str) -> None:
    column, events = run(tmp_path, tree(tmp_path, tests), ("x + 1", "x + 2"))
    assert not hosted(events)
    assert column.mutants[0].status == KILLED
    assert column.mutants[0].counts.passed == 0


def test_a_mutated_file_that_was_in_memory_only_for_a_while_counts_too(tmp_path: Path) -> None:
    """A conftest asks the target, then forgets it: what it was told is in the fork's memory."""
    conftest = (
        "def pytest_sessionstart(session):\n"
        "    import sys, mod\n    session.told = mod.f(1)\n    del sys.modules['mod']\n"
    )
    tests = LAZY + "\ndef test_told(request): assert request.session.told == 2\n"
    root = tree(tmp_path, tests, **{"tests/conftest.py": conftest})
    column, _ = run(tmp_path, root, ("x + 1", "x + 2"))
    assert column.mutants[0].counts == Counts(passed=1, failed=2)


def test_what_one_mutant_does_is_gone_for_the_next(tmp_path: Path) -> None:
    """Modules, environment, folders, pytest's cache, printed text: each job goes on from the same place."""
    tests = """
import os, sys, tempfile

def test_f(pytestconfig, tmp_path, capsys):
    assert "mod" not in sys.modules and "SEEN" not in os.environ
    assert pytestconfig.cache.get("seen", None) is None
    assert os.path.isdir(tempfile.gettempdir()) and tempfile.gettempdir() == os.environ["TMPDIR"]
    import mod
    print("printed")
    os.environ["SEEN"] = "1"
    pytestconfig.cache.set("seen", 1)
    assert mod.f(1) == 2
    assert capsys.readouterr().out == "printed\\n"
"""
    edits = [("x + 1", "1 + x"), ("x + 1", "x + 3"), ("x + 1", "1 + x + 0")]
    column, events = run(tmp_path, tree(tmp_path, tests), *edits, workers=1)
    assert hosted(events)
    assert [m.status for m in column.mutants] == ["survived", KILLED, "survived"]


@pytest.mark.parametrize("collect_once", [True, False])
def test_a_crash_is_told_alike_and_the_next_mutant_is_right(tmp_path: Path, collect_once: bool) -> None:
    """Segmentation faults are told by faulthandler, on a copy of the standard error that pytest keeps."""
    edits = [("return x + 1", "import ctypes; ctypes.string_at(0)"), ("x + 1", "x + 2")]
    column, events = run(tmp_path, tree(tmp_path, LAZY), *edits, workers=1, collect_once=collect_once)
    assert hosted(events) is collect_once
    assert [m.status for m in column.mutants] == [CRASH, KILLED]
    (log,) = (tmp_path / "run" / "logs").iterdir()
    assert "Segmentation fault" in log.read_text()


def test_a_host_that_a_mutant_kills_is_done_without(tmp_path: Path) -> None:
    """The leader dies with the host, the job is lost; it is run again, collecting by itself."""
    kill = "import os, signal, psutil; ps = psutil.Process().parents(); ps[1].kill(); import time; time.sleep(5)"
    edits = [("return x + 1", kill), ("x + 1", "x + 2"), ("x + 1", "x - 2")]
    column, events = run(tmp_path, tree(tmp_path, LAZY), *edits, workers=1)
    assert hosted(events)
    assert [m.status for m in column.mutants][1:] == [KILLED, KILLED]
    assert column.mutants[0].status not in (KILLED, "survived")


def test_libraries_that_tests_import_late_are_in_memory(tmp_path: Path) -> None:
    tests = """
import sys
BEFORE = "sqlite3.dump" in sys.modules

def test_f():
    import sqlite3.dump
    import mod
    assert mod.f(1) == 2
    assert not BEFORE or True
"""
    column, events = run(tmp_path, tree(tmp_path, tests), ("x + 1", "x + 2"))
    assert hosted(events)
    assert column.mutants[0].counts == Counts(failed=1)


def test_a_suite_that_minds_what_is_in_memory_collects_each_time(tmp_path: Path) -> None:
    tests = """
import sys
EARLY = "sqlite3.dump" in sys.modules

def test_f():
    assert not EARLY
    import sqlite3.dump
    import mod
    assert mod.f(1) == 2
"""
    column, events = run(tmp_path, tree(tmp_path, tests), ("x + 1", "x + 2"))
    assert not hosted(events)
    assert "collected anew" in events.notes[0]
    assert column.mutants[0].counts == Counts(failed=1)
    assert column.mutants[0].killers[0].message.startswith("assert 3 == 2")


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    _, events = run(tmp_path, tree(tmp_path, LAZY), ("x + 1", "x + 2"), collect_once=False)
    assert not hosted(events)
    assert RunOptions(tmp_path).collect_once
