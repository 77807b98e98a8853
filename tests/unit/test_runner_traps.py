"""What made fast runners wrong: each trap as a small target, and what plain pytest says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runner_trees import Recorder, mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import KILLED, NOT_VIABLE, SURVIVED, ColumnOutcome, Counts, MutantOutcome

pytestmark = pytest.mark.slow  # runs of the tool


def tree(tmp_path: Path, mod: str, tests: str, **more: str) -> Path:
    root = tmp_path / "tree"
    for name, text in {"src/mod.py": mod, "tests/test_it.py": tests, **more}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run(tmp_path: Path, root: Path, *edits: tuple[str, str], **changes: Any) -> tuple[ColumnOutcome, Recorder]:
    """Each edit a mutant, on one worker, everything checked against a plain pytest on an edited copy."""
    mutants = [mutant_of(root, "src/mod.py", old, new, name=new) for old, new in edits]
    options = options_for(tmp_path, workers=1, audit=len(mutants), **changes)
    column, events = run_one(target_of(root, "mod"), mutants, options)
    assert column.audit_differences == ()
    assert set(column.audited) == {outcome.mutant for outcome in column.mutants if outcome.status in (KILLED, SURVIVED)}
    return column, events


def named(outcome: MutantOutcome) -> list[str]:
    return [killer.test.partition("::")[2] for killer in outcome.killers]


CACHED = """\
_FUNCTION = None


def function():
    global _FUNCTION
    if _FUNCTION is None:
        class Function:
            def forward(self, x):
                return x + 1
        _FUNCTION = Function
    return _FUNCTION


def use(x):
    return function()().forward(x)
"""


def test_a_class_that_is_kept_when_it_is_first_used_is_the_mutated_one(tmp_path: Path) -> None:
    tests = (
        "def test_first():\n    import mod\n    assert mod.use(1) == 2\n\n"
        "def test_second():\n    import mod\n    assert mod.use(3) == 4\n\ndef test_other(): pass\n"
    )
    column, events = run(tmp_path, tree(tmp_path, CACHED, tests), ("x + 1", "x - 1"), ("(x)\n", "(x + 1)\n"))
    assert {"collected-once", "selection"} <= set(events.controls)
    assert [named(outcome) for outcome in column.mutants] == [["test_first", "test_second"]] * 2


def test_lines_that_run_at_import_are_every_tests(tmp_path: Path) -> None:
    """The first test that imports the module runs them, and every test may see what they made."""
    mod = "TABLE = [1, 2]\n\n\ndef f(x):\n    return x\n"
    tests = (
        "def test_first():\n    import mod\n    assert mod.f(1) == mod.TABLE[0]\n\n"
        "def test_second():\n    import mod\n    assert mod.TABLE[1] == 2\n\ndef test_other(): pass\n"
    )
    column, events = run(tmp_path, tree(tmp_path, mod, tests), ("[1, 2]", "[2, 3]"), ("[1, 2]", "[1, 2] + 1"))
    assert {"collected-once", "selection"} <= set(events.controls)
    assert [outcome.status for outcome in column.mutants] == [KILLED, NOT_VIABLE]
    assert named(column.mutants[0]) == ["test_first", "test_second"]
    assert column.mutants[0].counts == Counts(passed=1, failed=2)
    assert column.mutants[1].counts == Counts(passed=1, failed=2)


COLLECTING = {
    "in the tests": "import mod, pytest\n\n@pytest.mark.parametrize('n', mod.numbers())\ndef test_n(n): assert n\n",
    "in a conftest": "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_n(n): assert n\n",
}
CONFTEST = """\
def pytest_collection_modifyitems(items):
    import mod
    items[:] = [items[n - 1] for n in mod.numbers()]
"""


@pytest.mark.parametrize("where", COLLECTING)
def test_a_mutant_that_changes_what_is_collected(tmp_path: Path, where: str) -> None:
    mod = "def numbers():\n    return [1, 2]\n\n\ndef f(x):\n    return x\n"
    tests = COLLECTING[where] + "\ndef test_f():\n    import mod\n    assert mod.f(1) == 1\n"
    conftest = CONFTEST.replace("numbers()", "numbers() + [3]") if where == "in a conftest" else ""
    root = tree(tmp_path, mod, tests, **{"tests/conftest.py": conftest})
    edits = [("[1, 2]", "[2, 1]"), ("[1, 2]", "[1]"), ("return x", "return -x")]
    column, events = run(tmp_path, root, *edits)
    assert "collected-once" not in events.controls
    assert [outcome.status for outcome in column.mutants] == [SURVIVED, SURVIVED, KILLED]
    assert [outcome.counts for outcome in column.mutants] == [
        Counts(passed=3),
        Counts(passed=2),
        Counts(passed=2, failed=1),
    ]
    assert column.mutants[1].differences == (("tests/test_it.py::test_n[2]", "vanished"),)


def test_a_test_that_starts_python_or_xdist_sees_the_mutant(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    tests = """
import subprocess, sys

def test_f():
    import mod
    assert mod.f(1) == 2

def test_python():
    code = "import mod; print(mod.f(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"

def test_xdist(tmp_path):
    (tmp_path / "test_inner.py").write_text("def test_inner():\\n    import mod\\n    assert mod.f(1) == 2\\n")
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", str(tmp_path)]
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0

def test_other(): pass
"""
    root = tree(tmp_path, "def f(x):\n    return x + 1\n", tests)
    column, events = run(tmp_path, root, ("x + 1", "x + 2"), ("x + 1", "1 + x"))
    assert {"collected-once", "selection"} <= set(events.controls)
    assert [named(outcome) for outcome in column.mutants] == [["test_f", "test_python", "test_xdist"], []]


def test_no_traceback_is_made_of_a_failure(tmp_path: Path) -> None:
    """pytest's own cost ten times the tests where many fail."""
    told = tmp_path / "told"
    conftest = f"""
def pytest_runtest_logreport(report):
    if report.failed:
        with open({str(told)!r}, "a") as file:
            file.write(str(report.longrepr))
"""
    tests = "def test_f():\n    import mod\n    assert mod.f(1) == 2\n"
    root = tree(tmp_path, "def f(x):\n    return x + 1\n", tests, **{"tests/conftest.py": conftest})
    mutant = mutant_of(root, "src/mod.py", "x + 1", "x + 2")
    column, events = run_one(target_of(root, "mod"), [mutant], options_for(tmp_path, pytest_extra=("--tb=long",)))
    assert {"collected-once", "selection"} <= set(events.controls)
    assert column.mutants[0].killers[0].message.startswith("assert 3 == 2")
    assert "AssertionError" in told.read_text()
    assert "import mod" not in told.read_text()


def test_a_weakened_assertion_turns_its_verdict(tmp_path: Path) -> None:
    tests = (
        "def test_f():\n    import mod\n    assert mod.f(1) == 2\n\n"
        "def test_g():\n    import mod\n    assert mod.g(1) == 2\n"
    )
    root = tree(tmp_path, "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x * 2\n", tests)
    edits = ("x + 1", "x + 2"), ("x * 2", "x * 3")
    first, _ = run(tmp_path, root, *edits)
    (root / "tests" / "test_it.py").write_text(tests.replace("mod.f(1) == 2", "mod.f(1) >= 2"))
    second, _ = run(tmp_path, root, *edits)
    assert [outcome.status for outcome in first.mutants] == [KILLED, KILLED]
    assert [outcome.status for outcome in second.mutants] == [SURVIVED, KILLED]


# -- PyTorch ----------------------------------------------------------------------------------------------

TORCH_TESTS = """
import torch
BEFORE = torch.get_default_dtype(), torch.get_num_threads()

def test_f():
    import mod
    assert mod.f(torch.ones(2)).tolist() == [2.0, 2.0]

def test_dtype(): assert torch.ones(1).dtype == torch.float32 and torch.get_default_dtype() == BEFORE[0]
def test_grad(): assert torch.ones(1, requires_grad=True).mul(2).requires_grad
def test_deterministic(): assert not torch.are_deterministic_algorithms_enabled()
def test_threads(): assert torch.get_num_threads() == BEFORE[1]
def test_linear(): assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).shape == (1, 2)
def test_functional(): assert torch.nn.functional.silu(torch.zeros(1)) == 0
"""
TORCH_HARM = {
    "test_dtype": "torch.set_default_dtype(torch.float64); return x",
    "test_grad": "torch.set_grad_enabled(False); return x",
    "test_deterministic": "torch.use_deterministic_algorithms(True); return x",
    "test_threads": "torch.set_num_threads(3); return x",
    "test_linear": "torch.nn.Linear.forward = lambda self, x: x[0]; return x",
    "test_functional": "torch.nn.functional.silu = lambda x: x + 1; return x",
}


@pytest.mark.parametrize("collect_once", [True, False])
def test_what_a_mutant_does_to_torch_is_counted_and_gone_for_the_next(tmp_path: Path, collect_once: bool) -> None:
    pytest.importorskip("torch")
    root = tree(tmp_path, "import torch\n\n\ndef f(x):\n    return x + 1\n", TORCH_TESTS)
    edits = []
    for body in TORCH_HARM.values():
        edits += [("return x + 1", body), ("return x + 1", f"return x + {len(edits) + 2}")]
    mutants = [mutant_of(root, "src/mod.py", old, new, name=new) for old, new in edits]
    options = options_for(tmp_path, workers=1, collect_once=collect_once, libraries=("torch",))
    column, events = run_one(target_of(root, "mod"), mutants, options)
    assert ("collected-once" in events.controls) is collect_once
    assert "selection" in events.controls
    assert [named(outcome) for outcome in column.mutants[::2]] == [["test_f", test] for test in TORCH_HARM]
    assert {outcome.counts for outcome in column.mutants[1::2]} == {Counts(passed=6, failed=1)}


def test_an_openmp_region_before_the_fork_hangs_no_child(tmp_path: Path) -> None:
    """With more than one thread: the tests multiply matrices while they are collected, and again when they are run."""
    pytest.importorskip("torch")
    tests = """
import torch
A = torch.ones(600, 600)
B = (A @ A).sum()

def test_f():
    import mod
    assert mod.f(A).sum() == B

def test_other(): assert (A @ A).sum() == B
"""
    root = tree(tmp_path, "def f(x):\n    return x @ x\n", tests)
    mutants = [mutant_of(root, "src/mod.py", "x @ x", f"x @ x * {n}") for n in (2, 3)]
    options = options_for(tmp_path, workers=1, threads=2, libraries=("torch",), wall_floor=8.0)
    column, events = run_one(target_of(root, "mod"), mutants, options)
    assert [(outcome.status, named(outcome)) for outcome in column.mutants] == [(KILLED, ["test_f"])] * 2
    assert "collected-once" not in events.controls and "collected anew" in events.notes[0]
