"""What must hold before any mutant is judged, and how a column's children are started."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import CPU, Recorder, copy_of, mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.errors import NoDevice, NothingToRun, PythonError, RedControl
from fastlora_verify.harness.plan import Column, Counts
from fastlora_verify.harness.runner.controls import Controls
from fastlora_verify.harness.runner.pool import Stage, StageResult, Task
from fastlora_verify.harness.runner.run import run_columns

pytestmark = pytest.mark.slow  # runs of the tool

CUDA = Column("head:cuda", "cuda")


def small_tree(tmp_path: Path, tests: str, **sources: str) -> Path:
    root = tmp_path / "tree"
    for name, text in {"tests/test_it.py": tests, **sources}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "src").mkdir(exist_ok=True)
    return root


def test_a_suite_that_fails_unmutated_is_red_and_runs_no_mutant(tmp_path: Path) -> None:
    root = copy_of("already-failing", tmp_path)
    mutant = mutant_of(root, "src/calc.py", "a + b", "a - b")
    events = Recorder()
    with pytest.raises(RedControl) as red:
        run_columns(target_of(root, "calc"), [mutant], [CPU], options_for(tmp_path), events)
    assert "'unmutated' is red in column head:cpu: 1 failed, 1 passed" in str(red.value)
    assert "tests/test_calc.py::test_wrong" in str(red.value)
    assert (red.value.exit_code, events.done) == (4, [])


@pytest.mark.parametrize(
    ("tests", "extra", "problem"),
    [
        ("import pytest\n\n@pytest.mark.skip\ndef test(): pass\n", (), "no test passed (1 skipped)"),
        ("import nowhere\n", (), "1 error; the first: tests/test_it.py"),
        ("def test(): pass\n", ("--no-such-option",), "unrecognized arguments: --no-such-option"),
        ("import os\n\ndef test(): os._exit(0)\n", (), "the suite did not end: status 0"),
    ],
    ids=["all skipped", "no import", "usage", "exits"],
)
def test_red_suites(tmp_path: Path, tests: str, extra: tuple[str, ...], problem: str) -> None:
    root = small_tree(tmp_path, tests)
    with pytest.raises(RedControl) as red:
        run_one(target_of(root), [], options_for(tmp_path, pytest_extra=extra))
    assert problem in str(red.value)


@pytest.mark.parametrize(("tests", "extra"), [("", ()), ("def test(): pass\n", ("-k", "nothing"))])
def test_no_test_at_all_is_nothing_to_run(tmp_path: Path, tests: str, extra: tuple[str, ...]) -> None:
    with pytest.raises(NothingToRun, match="pytest collects no test"):
        run_one(target_of(small_tree(tmp_path, tests)), [], options_for(tmp_path, pytest_extra=extra))


def test_tests_that_are_not_there_are_red(tmp_path: Path) -> None:
    root = small_tree(tmp_path, "def test(): pass\n")
    with pytest.raises(RedControl, match=r"file or directory not found: tests/test_gone\.py"):
        run_one(target_of(root), [], options_for(tmp_path, tests=("tests/test_gone.py",)))


def test_a_raising_kernel_that_no_test_notices_is_red(tmp_path: Path) -> None:
    root = copy_of("one-survivor", tmp_path)
    source = (root / "src/limits.py").read_text()
    noticed = source.replace("return 2 * x", "raise RuntimeError")
    unnoticed = source.replace("return top", "raise RuntimeError")
    path = "src/limits.py"
    options = options_for(tmp_path, raising_sources=((path, noticed), (path, unnoticed)))
    with pytest.raises(RedControl, match=r"'raise' is red .* a kernel in src/limits.py that raises makes no"):
        run_one(target_of(root, "limits"), [], options)
    column, events = run_one(target_of(root), [], replace(options, raising_sources=((path, noticed),)))
    assert events.controls == ["unmutated", "warm-equals-cold", "raise"]
    assert [control.name for control in column.controls] == events.controls


def test_the_identity_control_compares_every_test(tmp_path: Path) -> None:
    """Probes are visible to code that looks at its own byte code: such a suite can't be judged."""
    tests = "import mod\n\ndef test():\n    assert '__fastlora_verify_hit__' not in mod.f.__code__.co_names\n"
    root = small_tree(tmp_path, tests, **{"src/mod.py": "def f(x):\n    return x\n"})
    mutant = mutant_of(root, "src/mod.py", "return x", "return -x")
    with pytest.raises(RedControl, match=r"'identity' is red .* rewritten unchanged give: 1 failed"):
        run_one(target_of(root, "mod"), [mutant], options_for(tmp_path))


def test_a_module_that_does_not_come_from_the_copy_is_red(tmp_path: Path) -> None:
    root = small_tree(tmp_path, "import json\n\ndef test(): pass\n")
    with pytest.raises(RedControl, match=r"json was imported from .*, not from the scratch copy"):
        run_one(target_of(root, "json"), [], options_for(tmp_path))


def test_where_forked_children_differ_each_mutant_gets_a_new_interpreter(tmp_path: Path) -> None:
    tests = "import sys, mod\n\ndef test():\n    assert 'sqlite3' not in sys.modules\n    assert mod.f(1) == 1\n"
    root = small_tree(tmp_path, tests, **{"src/mod.py": "def f(x):\n    return x\n"})
    mutant = mutant_of(root, "src/mod.py", "return x", "return -x")
    column, events = run_one(target_of(root, "mod"), [mutant], options_for(tmp_path, libraries=("sqlite3",)))
    assert column.mode == "cold"
    assert len(column.notes) == 1
    assert "1 failed; the first: tests/test_it.py::test" in column.notes[0]
    assert events.notes == list(column.notes)
    assert [outcome.status for outcome in column.mutants] == ["killed"]
    assert column.mutants[0].counts == Counts(failed=1)


def test_a_test_that_never_gives_the_same_answer_twice_is_named(tmp_path: Path) -> None:
    count = tmp_path / "count"
    tests = f"""
import pytest
from pathlib import Path

def test_steady(): pass

def test_flaky():
    count = Path({str(count)!r})
    count.write_text(count.read_text() + "x" if count.exists() else "x")
    if len(count.read_text()) % 2 == 0:
        pytest.skip("now and then")
"""
    root = small_tree(tmp_path, tests)
    column, _ = run_one(target_of(root), [], options_for(tmp_path))
    (note,) = column.notes
    assert note.startswith("1 test fails now and then without any mutation")
    assert note.endswith(": tests/test_it.py::test_flaky")


def test_new_interpreters_give_the_same_outcomes_as_forks(tmp_path: Path) -> None:
    root = copy_of("reads-its-source", tmp_path)
    mutants = [
        mutant_of(root, "src/kernel.py", "x * SCALE", "x + SCALE"),
        mutant_of(root, "src/kernel.py", "SCALE = 2", "SCALE = 3"),
    ]
    target = target_of(root, "kernel")
    forked, _ = run_one(target, mutants, options_for(tmp_path))
    cold, _ = run_one(target, mutants, replace(options_for(tmp_path), cold=True, run_dir=tmp_path / "cold"))
    assert (forked.mode, cold.mode) == ("fork", "cold")
    for left, right in zip(forked.mutants, cold.mutants, strict=True):
        assert replace(left, seconds=0, cpu_seconds=0) == replace(right, seconds=0, cpu_seconds=0)


def test_a_thread_that_a_library_leaves_forbids_the_fork(tmp_path: Path) -> None:
    busy = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True, name='pest').start()\n"
    )
    root = small_tree(tmp_path, "def test(): pass\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "pestlib.py").write_text(busy)
    site = f"import sys; sys.path.append({str(tmp_path / 'lib')!r}); import pestlib"
    (tmp_path / "lib" / "startlib.py").write_text(site)
    # The library must be importable before the copy is on the path: by a .pth-like start-up of the interpreter.
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{tmp_path / "lib"}" exec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    target = replace(target_of(root), python=str(shim))
    column, _ = run_one(target, [], options_for(tmp_path, libraries=("pestlib",)))
    assert column.mode == "spawn"
    assert "the thread 'pest' running" in column.notes[0]
    assert column.baseline is not None
    assert column.baseline.counts == Counts(passed=1)


def test_a_missing_library_is_no_obstacle(tmp_path: Path) -> None:
    root = small_tree(tmp_path, "def test(): pass\n")
    column, _ = run_one(target_of(root), [], options_for(tmp_path, libraries=("no_such_library",)))
    assert column.mode == "fork"


def test_cuda_alone_without_a_card_is_an_error_and_one_of_two_is_not_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = "import torch; print(torch.cuda.is_available())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    if shown.strip() == "True":
        pytest.skip("there is a card")
    root = copy_of("one-survivor", tmp_path)
    mutant = mutant_of(root, "src/limits.py", "2 * x", "3 * x")
    with pytest.raises(NoDevice, match="CUDA"):
        run_columns(target_of(root), [mutant], [CUDA], options_for(tmp_path), Recorder())
    cpu, cuda = run_columns(target_of(root), [mutant], [CPU, CUDA], options_for(tmp_path), Recorder())
    assert (cpu.status, cuda.status) == ("run", "not-run")
    assert [outcome.status for outcome in cuda.mutants] == ["not-run"]
    assert "CUDA" in cuda.reason
    assert cuda.mutants[0].reason == cuda.reason


def test_an_interpreter_that_cannot_run_the_suite_is_an_error(tmp_path: Path) -> None:
    root = small_tree(tmp_path, "def test(): pass\n")
    with pytest.raises(PythonError, match="doesn't start"):
        run_one(replace(target_of(root), python="/nonexistent/python"), [], options_for(tmp_path))
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(PythonError, match="it has no pytest"):
        run_one(replace(target_of(root), python=str(bare)), [], options_for(tmp_path))


def test_the_copy_comes_before_what_is_installed(tmp_path: Path) -> None:
    tests = """
import os, subprocess, sys
import tabulate
import fastlora_verify.kernels.only_here as here

def test_in_process():
    assert tabulate.OURS == 1 and here.X == 1
    assert tabulate.__file__.startswith(os.getcwd())

def test_in_a_subprocess(tmp_path):
    code = "import tabulate, fastlora_verify.kernels.only_here as here; print(tabulate.OURS + here.X)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "2", done.stderr
"""
    root = small_tree(
        tmp_path,
        tests,
        **{
            "src/tabulate.py": "OURS = 1\n",
            "src/fastlora_verify/kernels/__init__.py": "",
            "src/fastlora_verify/kernels/only_here.py": "X = 1\n",
        },
    )
    target = target_of(root, "tabulate", "fastlora_verify.kernels.only_here")
    mutants = [
        mutant_of(root, "src/tabulate.py", "OURS = 1", "OURS = 2"),
        mutant_of(root, "src/fastlora_verify/kernels/only_here.py", "X = 1", "X = 2"),
    ]
    column, _ = run_one(target, mutants, options_for(tmp_path))
    assert column.mode == "fork"
    assert [len(outcome.killers) for outcome in column.mutants] == [2, 2]


def test_our_folders_are_not_importable_as_top_level_packages(tmp_path: Path) -> None:
    tests = """
import importlib.util, subprocess, sys

def test():
    for name in ("harness", "oracles", "mutations", "reports"):
        assert importlib.util.find_spec(name) is None, name
    spec = importlib.util.find_spec("kernels")
    assert spec is None or "fastlora" not in str(spec.origin)
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('harness') is not None)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
"""
    column, _ = run_one(target_of(small_tree(tmp_path, tests)), [], options_for(tmp_path))
    assert column.baseline is not None
    assert column.baseline.counts == Counts(passed=1)


def test_the_parent_imports_neither_torch_nor_pytest() -> None:
    code = (
        "import sys, fastlora_verify.harness.runner.run; "
        "print([name for name in ('torch', 'peft', 'bitsandbytes', 'pytest') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


KILLER = '''
import os, pathlib, time

def fell():
    """Kills the warm process: the parent of the parent of this one."""
    leader = os.getppid()
    warm = int(pathlib.Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(warm, 9)
    time.sleep(10)

def f(x):
    return x
'''


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("always", [False, True], ids=["once", "always"])
def test_jobs_of_a_warm_process_that_dies_run_once_more(tmp_path: Path, always: bool) -> None:
    tests = "import mod, time\n\ndef test():\n    assert mod.f(1) == 1\n    time.sleep(0.3)\n"
    root = small_tree(tmp_path, tests, **{"src/mod.py": KILLER})
    again = "True" if always else f"not pathlib.Path({str(tmp_path / 'felled')!r}).exists()"
    felled = f"pathlib.Path({str(tmp_path / 'felled')!r}).touch()"
    body = f"if {again}:\n        {felled}\n        fell()\n    return x + 1"
    mutants = [
        mutant_of(root, "src/mod.py", "return x", body, name="fells"),
        mutant_of(root, "src/mod.py", "return x", "return -x", name="wrong"),
    ]
    column, _ = run_one(target_of(root, "mod"), mutants, options_for(tmp_path, workers=1))
    assert [outcome.status for outcome in column.mutants] == ["crash" if always else "killed", "killed"]
    if always:
        assert column.mutants[0].reason == "its process was lost, in tests/test_it.py::test"


def test_a_control_whose_lines_are_followed_has_more_time_than_a_mutant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Following them is slower than any mutant's run: on a busy machine the limits of a mutant made it red."""
    run, stages = Controls._run, dict[str, Stage]()

    def noted(self: Controls, tasks: list[Task]) -> list[StageResult]:
        stages.update({task.name: task.stages[0] for task in tasks})
        return run(self, tasks)

    monkeypatch.setattr(Controls, "_run", noted)
    tests = "from lib import f\n\ndef test_a(): assert f(1) == 2\n\ndef test_b(): assert f(2) == 3\n"
    root = small_tree(tmp_path, tests, **{"src/lib.py": "def f(x):\n    return x + 1\n"})
    mutant = mutant_of(root, "src/lib.py", "x + 1", "x - 1")
    run_one(target_of(root), [mutant], options_for(tmp_path, cpu_floor=70.0, wall_floor=110.0))
    followed = {name: stage.limits for name, stage in stages.items() if stage.mapped is not None}
    assert followed.keys() >= {"identity", "selection 0", "selection 1"}
    assert {(limits.wall, limits.cpu) for limits in followed.values()} == {(440.0, 280.0)}
