"""A mutant that only shows in what one test leaves for another is killed all the same, as plain pytest kills it."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_trees import mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import KILLED, Counts

pytestmark = pytest.mark.slow  # runs of the tool

MOD = "def f(x):\n    return x + 1\n\ndef g(x):\n    return x * 2\n"
BETWEEN = "\ndef test_b():\n    import mod\n    assert mod.g(1) == 2\n"
LEFT = {
    "a list": """
R = []
def test_a():
    import mod
    R.append(mod.f(1))
BETWEEN
def test_c(): assert R in ([], [2])
""",
    "a cache": """
import functools, mod
@functools.lru_cache
def made(): return mod.f(1)
def test_a(): made()
BETWEEN
def test_c(): assert made() == 2
""",
    "a cache of the target": """
import mod
def test_a(): mod.kept()
BETWEEN
def test_c(): assert mod.kept() == 2
""",
    "a file": """
import mod, os
def test_a(): open("left.txt", "w").write(str(mod.f(1)))
BETWEEN
def test_c(): assert not os.path.exists("left.txt") or open("left.txt").read() == "2"
""",
    "the environment": """
import mod, os
def test_a(): os.environ["LEFT"] = str(mod.f(1))
BETWEEN
def test_c(): assert os.environ.get("LEFT", "2") == "2"
""",
    "a generator": """
import mod, random
G = random.Random(0)
def test_a(): [G.random() for _ in range(mod.f(0))]
BETWEEN
def test_c(): assert G.random() in (0.8444218515250481, 0.7579544029403025)
""",
    "an attribute of a helper": """
import mod
def helper(): return getattr(helper, "last", 2)
def test_a(): helper.last = mod.f(1)
BETWEEN
def test_c(): assert helper() == 2
""",
    "an object": """
import mod
class Box:
    last = [2]
BOX = Box()
def test_a(): BOX.last[0] = mod.f(1); BOX.times = 1
BETWEEN
def test_c(): assert BOX.last == [2]
""",
    "a session's fixture": """
import mod, pytest
@pytest.fixture(scope="session")
def seen(): return [2]
def test_0(seen): pass
def test_a(seen): seen.append(mod.f(1))
BETWEEN
def test_c(seen): assert set(seen) == {2}
""",
}


@pytest.mark.parametrize("how", LEFT)
def test_a_mutant_that_shows_in_what_a_test_leaves_is_killed(tmp_path: Path, how: str) -> None:
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    kept = "\nK = {}\n\ndef kept():\n    if not K:\n        K[0] = f(1)\n    return K[0]\n"
    (root / "src" / "mod.py").write_text(MOD + kept)
    (root / "tests" / "test_it.py").write_text(LEFT[how].replace("BETWEEN", BETWEEN))
    mutants = [mutant_of(root, "src/mod.py", "x + 1", "x + 2"), mutant_of(root, "src/mod.py", "x * 2", "x * 3")]
    column, events = run_one(target_of(root, "mod"), mutants, options_for(tmp_path))
    assert "selection" in events.controls
    assert [m.status for m in column.mutants] == [KILLED, KILLED]
    assert [killer.test for killer in column.mutants[0].killers] == ["tests/test_it.py::test_c"]
    passed = 3 if "test_0" in LEFT[how] else 2
    assert [m.counts for m in column.mutants] == [Counts(passed=passed, failed=1)] * 2


HARM = {
    "its tree": "import shutil; shutil.rmtree('tests')",
    "the folder": "import os; os.chdir('/')",
    "a thread": "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a function of Python's": "import time; time.sleep = None",
}


@pytest.mark.parametrize("harmed", HARM)
def test_what_only_the_mutant_leaves_is_noticed_by_tests_that_do_not_run_it(tmp_path: Path, harmed: str) -> None:
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "mod.py").write_text(MOD)
    tests = "import os, threading, time\ndef test_a():\n    import mod\n    assert mod.f(1) == 2\nBETWEEN\n"
    tests += "def test_c():\n    assert os.path.exists('tests') and threading.active_count() == 1 and time.sleep\n"
    (root / "tests" / "test_it.py").write_text(tests.replace("BETWEEN", BETWEEN))
    mutants = [
        mutant_of(root, "src/mod.py", "return x + 1", f"{HARM[harmed]}; return x + 1"),
        mutant_of(root, "src/mod.py", "x * 2", "x * 3"),
    ]
    column, events = run_one(target_of(root, "mod"), mutants, options_for(tmp_path, workers=1))
    assert "selection" in events.controls
    assert [m.status for m in column.mutants] == [KILLED, KILLED]
    killers = [[killer.test.partition("::")[2] for killer in m.killers] for m in column.mutants]
    assert killers == [["test_c"], ["test_b"]]
    assert [m.counts for m in column.mutants] == [Counts(passed=2, failed=1)] * 2


def test_a_state_that_a_test_needs_from_another_of_its_half_is_found(tmp_path: Path) -> None:
    """test_c, whose mutant alone would run, needs test_a; both are in one half of the tests."""
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "mod.py").write_text(MOD)
    tests = "import mod\nS = []\ndef test_a(): S.append(1)\nBETWEEN\ndef test_c(): assert S and mod.f(0) > 0\n"
    (root / "tests" / "test_it.py").write_text(tests.replace("BETWEEN", BETWEEN))
    mutant = mutant_of(root, "src/mod.py", "x + 1", "x + 2")
    column, events = run_one(target_of(root, "mod"), [mutant], options_for(tmp_path))
    assert column.mutants[0].status == "survived"
    assert "test_c is passed after the tests before it and failed without them" in events.notes[0]


def test_what_every_run_changes_may_hold_something_else_on_a_mutant(tmp_path: Path) -> None:
    """A store of the mutated file grows on the unmutated tree as well: what it holds then is what counts."""
    root = tmp_path / "tree"
    mod = "STORE = {}\n\ndef f(x):\n    STORE[x] = x + 1\n    return x\n\ndef g(x):\n    return STORE.get(x, 2)\n"
    tests = "def test_a():\n    import mod\n    mod.f(1)\n\ndef test_b():\n    import mod\n    assert mod.g(1) == 2\n"
    for name, text in {"src/mod.py": mod, "tests/test_it.py": tests}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    mutant = mutant_of(root, "src/mod.py", "x + 1", "x + 2")
    column, _ = run_one(target_of(root, "mod"), [mutant], options_for(tmp_path, workers=1, audit=1))
    assert (column.mutants[0].status, column.mutants[0].counts) == (KILLED, Counts(passed=1, failed=1))
    assert column.audit_differences == ()
