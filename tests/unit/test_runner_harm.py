"""A killed mutant that also harms tests which don't run it is counted as plain pytest counts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_trees import mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import KILLED, ColumnOutcome, Counts
from fastlora_verify.harness.runner.judging import Judging

MOD = '''\
"""Patches layers."""
import layers

PATCHED = []


def patch(kind):
    PATCHED.append(kind)
    kind.was, kind.forward = kind.forward, lambda self: 2


def unpatch(kind):
    PATCHED.remove(kind)
    kind.forward = kind.was
    del kind.was


def f(x, box):
    return x + 1
'''
LAYERS = """\
NAMES = []


class Layer:
    def forward(self):
        return 1
"""
CONFTEST = """\
import pytest
@pytest.fixture(scope="session")
def box(): return [0]
"""
TESTS = """\
import os, sys, threading, time
import layers

LISTED = os.listdir(os.path.dirname(os.path.dirname(__file__)))

def test_f(box):
    import mod
    assert mod.f(1, box) == 2

def test_unpatched():
    import mod
    mod.patch(layers.Layer)
    assert layers.Layer().forward() == 2
    mod.unpatch(layers.Layer)
    assert not hasattr(layers.Layer, "was")

def test_layer(): assert layers.Layer().forward() == 1
def test_names(): assert not layers.NAMES
def test_patched(): assert not getattr(sys.modules.get("mod"), "PATCHED", [])
def test_environment(): assert "HARM" not in os.environ
def test_folder(): assert os.path.isdir("tests")
ROOT = os.path.dirname(os.path.dirname(__file__))
def test_files(): assert os.listdir(ROOT) == LISTED and os.path.exists(layers.__file__)
def test_python(): assert time.sleep is not None
def test_threads(): assert threading.active_count() == 1
def test_box(box): assert box == [0]
def test_switch(): assert sys.flags and "/harm" not in sys.path
"""
LEFT_PATCHED = "    kind.forward = kind.was\n    del kind.was\n"
HARM = {
    "test_names": "layers.NAMES.append(1)",
    "test_patched": "PATCHED.append(1)",
    "test_environment": "import os; os.environ['HARM'] = '1'",
    "test_folder": "import os; os.chdir('src')",
    "test_files": "open('harm.txt', 'w').close()",
    "test_files ": "import os; os.remove('src/layers.py')",
    "test_python": "import time; time.sleep = None",
    "test_threads": "import threading as t, time; t.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "test_box": "box.append(1)",
    "test_switch": "import sys; sys.path.append('/harm')",
}


def tree(tmp_path: Path, **files: str) -> Path:
    root = tmp_path / "tree"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def small_tree(tmp_path: Path) -> Path:
    files = {"src/mod.py": MOD, "src/layers.py": LAYERS, "tests/conftest.py": CONFTEST, "tests/test_it.py": TESTS}
    return tree(tmp_path, **files)


def killers(column: ColumnOutcome) -> list[list[str]]:
    return [[killer.test.partition("::")[2] for killer in mutant.killers] for mutant in column.mutants]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Every run of a mutant: its name, and whether it was one of all tests."""
    found: list[tuple[str, bool]] = []
    task_of = Judging._task

    def noted(self: Judging, mutant: object, reach: object, *rest: object, **named: object) -> object:
        task = task_of(self, mutant, reach, *rest, **named)  # type: ignore[arg-type]
        found.append((task.name, task.stages[0].only is None))
        return task

    monkeypatch.setattr(Judging, "_task", noted)
    return found


def test_a_class_that_is_left_patched_fails_the_tests_that_plain_pytest_fails(
    tmp_path: Path, runs: list[tuple[str, bool]]
) -> None:
    root = small_tree(tmp_path)
    mutants = [
        mutant_of(root, "src/mod.py", LEFT_PATCHED, "    pass\n", name="left"),
        mutant_of(root, "src/mod.py", "x + 1", "x + 2", name="clean"),
        mutant_of(root, "src/mod.py", "x + 1", "1 + x", name="survives"),
    ]
    column, events = run_one(target_of(root, "mod"), mutants, options_for(tmp_path, workers=1, audit=3))
    assert {"selection", "collected-once"} <= set(events.controls)
    assert killers(column) == [["test_unpatched", "test_layer"], ["test_f"], []]
    assert [(m.counts.passed, m.counts.failed) for m in column.mutants] == [(10, 2), (11, 1), (12, 0)]
    assert column.audit_differences == ()
    assert runs == [("left", False), ("clean", False), ("survives", False), ("left", True)]


@pytest.mark.parametrize("collect_once", [True, False], ids=["hosted", "forked"])
def test_whatever_is_left_behind_is_seen(tmp_path: Path, runs: list[tuple[str, bool]], collect_once: bool) -> None:
    root = small_tree(tmp_path)
    mutants = [
        mutant_of(root, "src/mod.py", "return x + 1", f"{code}; return x + 2", name=test) for test, code in HARM.items()
    ]
    column, events = run_one(
        target_of(root, "mod"), mutants, options_for(tmp_path, workers=1, collect_once=collect_once)
    )
    assert ("collected-once" in events.controls) is collect_once
    assert {"selection"} <= set(events.controls)
    assert [m.status for m in column.mutants] == [KILLED] * len(HARM)
    assert dict(zip(HARM, killers(column), strict=True)) == {test: ["test_f", test.strip()] for test in HARM}
    assert {m.counts for m in column.mutants} == {Counts(passed=10, failed=2)}
