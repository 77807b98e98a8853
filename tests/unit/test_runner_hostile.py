"""Hostile mutants: each gets its outcome, and the next is right, also where tests are collected once and chosen.

A mutant is a body of `f`, which only `test_f` runs. After each comes one that is merely wrong.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from runner_trees import Recorder, mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import CRASH, KILLED, NOT_VIABLE, TIMEOUT, ColumnOutcome, Counts, MutantOutcome
from fastlora_verify.harness.runner import pool

pytestmark = pytest.mark.slow  # runs of the tool

MOD = '"""A function."""\n\nUNIT = 1\n\n\ndef f(x):\n    return x + UNIT\n'
TESTS = """
import os, sys, time

def test_first(): assert os.path.exists("notes/left.txt")

def test_f():
    import mod
    assert mod.f(1) == 2

def test_last():
    assert os.path.isdir("notes") and sorted(os.listdir("notes")) == ["left.txt", "right.txt"]
    assert time.sleep and time.time() and sys.exit and os.fork
"""
KILLED_BY_F = Counts(passed=2, failed=1)
FAST, PLAIN = {"collect_once": True, "select": True}, {"collect_once": False, "select": False}
QUICK = {"wall_floor": 8.0, "cpu_floor": 2.0, "wall_factor": 2.0, "cpu_factor": 2.0}

OVERFLOW = "import ctypes, sys; sys.setrecursionlimit(10**9); cb = ctypes.CFUNCTYPE(None)(lambda: cb()); cb()"
# By name: the body, the status, and what the reason says or the tests that fail.
BRIEF: dict[str, tuple[str, str, Any]] = {
    "leaves": ("import os; os._exit(0)", CRASH, "the process ended with status 0 before the tests did"),
    "leaves by sys.exit": ("import sys; sys.exit(0)", KILLED, ["test_f"]),
    "segfault": ("import ctypes; ctypes.string_at(0)", CRASH, "killed by signal 11"),
    "abort": ("import os; os.abort()", CRASH, "killed by signal 6"),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", CRASH, "killed by signal 9"),
    "stack overflow": (OVERFLOW, CRASH, "killed by signal 11"),
    "recursion": ("return f(x)", KILLED, ["test_f"]),
    "closes all pipes": ("import os; os.closerange(3, 4096); return x", CRASH, "status 113"),
    "writes its tree": ("open('notes/more.txt', 'w').close(); return x", KILLED, ["test_f", "test_last"]),
    "deletes its tree": ("import shutil; shutil.rmtree('notes'); return x", KILLED, ["test_f", "test_last"]),
    "deletes its tests": ("import shutil; shutil.rmtree('tests'); return x", KILLED, ["test_f"]),
    "another folder": ("import os; os.chdir('/'); return x", KILLED, ["test_f", "test_last"]),
    "a thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(9e4,)).start()",
        KILLED,
        ["test_f"],
    ),
    "no time": (
        "import time; time.time = time.sleep = time.perf_counter = None; return x",
        KILLED,
        ["test_f", "test_last"],
    ),
    "no random": ("import random; random.seed = random.getstate = random.Random = None; return x", KILLED, ["test_f"]),
    "no fork": ("import os; os.fork = os.write = os._exit = None; return x", KILLED, ["test_f", "test_last"]),
    "no exit": ("import sys; sys.exit = None; return x", KILLED, ["test_f", "test_last"]),
    "no json": ("import json; json.dumps = json.JSONEncoder = None; return x", CRASH, "pytest ended by an exception"),
    "a warning": ("return x is 1", KILLED, ["test_f"]),  # SyntaxWarning
    "an escape": ("return '\\d'", KILLED, ["test_f"]),
    "no parser": ("return x +", NOT_VIABLE, "SyntaxError"),
}


def tree(tmp_path: Path, tests: str = TESTS, mod: str = MOD, **more: str) -> Path:
    root = tmp_path / "tree"
    files = {"src/mod.py": mod, "tests/test_it.py": tests, "notes/left.txt": "l", "notes/right.txt": "r", **more}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str | None]]:
    """The hosts that each task's stages went on from."""
    found: dict[str, list[str | None]] = {}
    host_for = pool._host_for

    def noted(worker: pool.Worker, stage: pool.Stage) -> str | None:
        assert worker.task is not None
        host = host_for(worker, stage)
        found.setdefault(worker.task.name, []).append(host)
        return host

    monkeypatch.setattr(pool, "_host_for", noted)
    return found


def each_followed(
    tmp_path: Path, root: Path, bodies: dict[str, str], mode: dict[str, bool], **changes: Any
) -> tuple[ColumnOutcome, Recorder]:
    """Every body as a mutant of `f`, a wrong mutant after each, on one worker."""
    mutants = []
    for name, body in bodies.items():
        mutants.append(mutant_of(root, "src/mod.py", "return x + UNIT", body, name=name))
        mutants.append(
            mutant_of(root, "src/mod.py", "return x + UNIT", f"return x - {len(mutants)}", name=f"after {name}")
        )
    env = changes.pop("env", {})
    options = options_for(tmp_path, workers=1, **mode, **changes)
    column, events = run_one(target_of(root, "mod", env=env), mutants, options)
    assert ("collected-once" in events.controls) is mode["collect_once"]
    assert ("selection" in events.controls) is mode["select"]
    for after in column.mutants[1::2]:
        assert (after.status, after.counts, named(after)) == (KILLED, KILLED_BY_F, ["test_f"]), after
    return column, events


def named(outcome: MutantOutcome) -> list[str]:
    return [killer.test.partition("::")[2] for killer in outcome.killers]


def check(column: ColumnOutcome, expected: dict[str, tuple[str, str, Any]]) -> None:
    for outcome in column.mutants[::2]:
        _, status, said = expected[outcome.mutant]
        assert outcome.status == status, outcome
        if isinstance(said, str):
            assert said in outcome.reason, outcome
        else:
            assert named(outcome) == said, outcome
            assert outcome.counts == Counts(passed=3 - len(said), failed=len(said)), outcome


MODES = pytest.mark.parametrize("mode", [FAST, PLAIN], ids=["collected once, chosen", "collected anew, all"])


@MODES
def test_brief_mutants(tmp_path: Path, mode: dict[str, bool], hosts: dict[str, list[str | None]]) -> None:
    root = tree(tmp_path)
    bodies = {name: body for name, (body, _, _) in BRIEF.items()}
    before = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    column, _ = each_followed(tmp_path, root, bodies, mode)
    check(column, BRIEF)
    assert {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()} == before
    for name in bodies:
        assert all(host is not None for host in hosts[name]) is mode["collect_once"]


LASTING: dict[str, tuple[str, str, Any]] = {
    "loop": ("while True: pass", TIMEOUT, "of CPU time, in tests/test_it.py::test_f"),
    "deaf loop": (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while True: pass",
        TIMEOUT,
        "of CPU time, in tests/test_it.py::test_f",
    ),
    "a loop that catches": (
        "while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        TIMEOUT,
        "of CPU time, in tests/test_it.py::test_f",
    ),
    "deadlock": (
        "import os, threading; lock = threading.Lock(); lock.acquire(); pid = os.fork()\n"
        "    if not pid: lock.acquire()\n    os.waitpid(pid, 0)",
        TIMEOUT,
        "of wall time, in tests/test_it.py::test_f",
    ),
    "memory": ("a = bytearray(600 << 20); import time; time.sleep(60)", CRASH, "more than 0.4 GiB of memory"),
    "prints": ("while True: print('x' * 10**6)", CRASH, "of output, in tests/test_it.py::test_f"),
    "background": (
        "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True); return x",
        KILLED,
        ["test_f"],
    ),
}


@MODES
def test_mutants_that_go_on(tmp_path: Path, mode: dict[str, bool]) -> None:
    marker = uuid.uuid4().hex
    bodies = {name: body for name, (body, _, _) in LASTING.items()}
    changes = {**QUICK, "memory_limit": 400 << 20, "env": {"MARKER": marker}}
    column, _ = each_followed(tmp_path, tree(tmp_path), bodies, mode, **changes)
    check(column, LASTING)
    assert list(left_running(marker)) == []


def left_running(marker: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARKER") == marker and process.pid != os.getpid():
                yield process
        except psutil.Error:
            continue


def test_the_signals_are_those_that_the_table_names() -> None:
    assert (signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL) == (11, 6, 9)
