"""Probes: which statement a line means, and that hits are told for the test that made them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from runner_trees import mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.child.probe import HIT, REACHED, TRIGGERED, insert_probe

pytestmark = pytest.mark.slow  # runs of the tool

SOURCE = '''\
"""Module."""
from __future__ import annotations

X = 1

def early(x):
    """Doc."""
    if x: return 2
    return (
        x
        + 1
    )

@staticmethod
def other(x):
    try:
        y = 1 / x
    except ZeroDivisionError:
        y = 0
    match y:
        case 0:
            y = 5
    for i in range(2):
        y += i
    else:
        y -= 1
    return y
'''


def hits(line: int, index: int, call: str) -> tuple[bool, object]:
    """Whether the probe at `line` is hit by `call` (or by the import, for an empty call)."""
    tree = ast.parse(SOURCE)
    assert insert_probe(tree, line, index)
    found: list[int] = []
    space: dict[str, object] = {HIT: found.append}
    exec(compile(tree, "m.py", "exec"), space)
    value = eval(call, space) if call else None
    return found == [index] or (len(found) > 1 and set(found) == {index}), value


@pytest.mark.parametrize(
    ("line", "index", "call", "hit"),
    [
        (8, REACHED, "early(0)", True),
        (8, TRIGGERED, "early(0)", False),
        (8, TRIGGERED, "early(1)", True),
        (7, REACHED, "early(1)", True),
        (11, TRIGGERED, "early(0)", True),
        (11, TRIGGERED, "early(1)", False),
        (18, TRIGGERED, "other(1)", False),
        (18, TRIGGERED, "other(0)", True),
        (21, TRIGGERED, "other(1)", False),
        (21, TRIGGERED, "other(0)", True),
        (26, TRIGGERED, "other(1)", True),
        (14, TRIGGERED, "", True),
        (1, REACHED, "", True),
        (2, REACHED, "", True),
        (4, REACHED, "", True),
    ],
)
def test_a_line_means_the_statement_that_covers_it(line: int, index: int, call: str, hit: bool) -> None:
    assert hits(line, index, call)[0] is hit


def test_values_and_docstrings_stay() -> None:
    for line in range(1, SOURCE.count("\n") + 1):
        tree = ast.parse(SOURCE)
        if not insert_probe(tree, line, TRIGGERED):
            assert line in (3, 5, 13), line
            continue
        space: dict[str, object] = {HIT: lambda _: None}
        exec(compile(tree, "m.py", "exec"), space)
        assert eval("early(0), early(1), other(0), other(2)", space) == (1, 2, 5, 0.5)
        assert (space["__doc__"], eval("early.__doc__", space)) == ("Module.", "Doc.")
        lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == HIT]
        assert len(lines) == 1


def test_no_statement_no_probe() -> None:
    assert not insert_probe(ast.parse("x = 1\n"), 9, REACHED)


TESTS = """
import importlib, os, sys, threading
import pytest

if os.environ.get("EARLY"):
    import mod
    mod.f(os.environ["EARLY"])

@pytest.fixture(scope="module")
def shared():
    import mod
    return mod.f("shared")

@pytest.fixture(scope="session")
def unused():
    import mod
    return mod.f("unused")

def test_lazy():
    import mod
    assert mod.f(1) == 1

def test_nothing():
    pass

def test_uses_shared(shared):
    assert shared == "shared"

def test_uses_shared_too(shared):
    assert shared == "shared"

def test_reload():
    import mod
    assert importlib.reload(mod).f(2) == 2

def test_other_loader():
    import mod
    spec = importlib.util.spec_from_file_location("twin", mod.__file__)
    twin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(twin)
    assert twin.f(3) == 3

def test_thread():
    import mod
    thread = threading.Thread(target=mod.f, args=(4,))
    thread.start()
    thread.join()

def test_fork():
    import mod
    pid = os.fork()
    if pid == 0:
        mod.f(5)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def tree(tmp_path: Path, tests: str, mod: str = "def f(x):\n    return x\n") -> Path:
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "mod.py").write_text(mod)
    (root / "tests" / "test_mod.py").write_text(tests)
    return root


@pytest.mark.parametrize("early", ["", "early"])
def test_hits_count_for_the_test_that_made_them(tmp_path: Path, early: str) -> None:
    root = tree(tmp_path, TESTS)
    mutant = mutant_of(root, "src/mod.py", "return x", "return  x")
    target = target_of(root, "mod", env={"EARLY": early})
    column, _ = run_one(target, [mutant], options_for(tmp_path))
    (outcome,) = column.mutants
    assert outcome.status == "survived"
    assert [test.partition("::")[2] for test, _ in outcome.reached_tests] == [
        "test_lazy",
        "test_uses_shared",
        "test_uses_shared_too",
        "test_reload",
        "test_other_loader",
        "test_thread",
        "test_fork",
    ]
    assert outcome.reached_import is bool(early)


def test_a_helper_that_pytest_rewrites_is_probed_too(tmp_path: Path) -> None:
    root = tree(tmp_path, "import helper\n\ndef test_it():\n    helper.same(1, 1)\n")
    (root / "conftest.py").write_text("import pytest\npytest.register_assert_rewrite('helper')\n")
    (root / "src" / "helper.py").write_text("def same(a, b):\n    assert a == b\n")
    mutant = mutant_of(root, "src/helper.py", "assert a == b", "assert a != b")
    (outcome,) = run_one(target_of(root, "mod"), [mutant], options_for(tmp_path))[0].mutants
    assert (outcome.status, outcome.reached, outcome.triggered) == ("killed", 1, 1)
    assert outcome.killers[0].message == "assert 1 != 1"


def test_the_hook_leaves_other_files_and_the_source_alone(tmp_path: Path) -> None:
    """In an interpreter of its own, since the hook is for life."""
    path = tmp_path / "mod.py"
    path.write_text('def f():\n    """Doc."""\n    return 1\n')
    (tmp_path / "other.py").write_text("def g():\n    return 1\n")
    code = f"""
import sys, json, inspect
sys.path.insert(0, {str(tmp_path)!r})
from fastlora_verify.harness.child.probe import Probe
probe = Probe({{{str(path)!r}: ([3], [])}}, [])
probe.install()
import mod, other
before = probe.take()
other.g()
no = probe.take()
mod.f()
yes = probe.take()
names = [mod.f.__code__.co_names, other.g.__code__.co_names]
marks = [*map(sorted, [before, no, yes, probe.take()])]
print(json.dumps([*marks, inspect.getsource(mod.f), names, mod.f.__code__.co_firstlineno]))
"""
    done = subprocess.run([sys.executable, "-P", "-B", "-c", code], capture_output=True, text=True, check=True)
    before, no, yes, after, source, names, line = json.loads(done.stdout)
    assert (before, no, yes, after) == ([], [], [REACHED], [])
    assert source == path.read_text()
    assert names == [[HIT], []]
    assert line == 1
