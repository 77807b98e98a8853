"""Limits, kills and what is left of them: no process, no changed file of the user's."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import psutil
import pytest
from runner_trees import copy_of, mutant_of, options_for, outcome_of, run_one, target_of

from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.mutations.base import Mutant

pytestmark = pytest.mark.slow  # runs of the tool

HELPERS = Path(__file__).parent.parent / "helpers"
QUICK = {"wall_floor": 6.0, "cpu_floor": 1.0, "wall_factor": 2.0, "cpu_factor": 2.0}


def processes_with(marker: str, variable: str = "MARKER") -> list[psutil.Process]:
    """Processes that carry the marker in their environment or arguments, this one left out."""
    found = []
    for process in psutil.process_iter():
        try:
            told = process.environ().get(variable) == marker or marker in process.cmdline()
        except psutil.Error:
            continue
        if told and process.pid != os.getpid():
            found.append(process)
    return found


def hashes(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def wait_until(condition: object, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


def test_a_hanging_mutant_times_out_and_its_deaf_helper_dies(tmp_path: Path) -> None:
    root = copy_of("hangs-when-mutated", tmp_path)
    marker = uuid.uuid4().hex
    mutants = [
        mutant_of(root, "src/countdown.py", "n -= 1", "n -= 0", name="busy"),
        mutant_of(root, "src/countdown.py", "sleep(seconds)", "sleep(600)", name="asleep"),
        mutant_of(root, "src/countdown.py", "done += 1", "done += 2", name="wrong"),
    ]
    target = target_of(root, "countdown", env={"MARKER": marker})
    column, _ = run_one(target, mutants, options_for(tmp_path, select=False, **QUICK))
    assert [outcome.status for outcome in column.mutants] == ["timeout", "timeout", "killed"]
    assert "of CPU time, in tests/test_countdown.py::test_steps" in column.mutants[0].reason
    assert "of wall time, in tests/test_countdown.py::test_wait" in column.mutants[1].reason
    assert column.mutants[1].counts.passed == 2
    assert processes_with(marker) == []


def test_a_mutant_deaf_to_sigterm_in_a_loop_with_helper_processes(tmp_path: Path) -> None:
    root = copy_of("hangs-when-mutated", tmp_path)
    marker = uuid.uuid4().hex
    mutant = mutant_of(root, "src/countdown.py", "n -= 1", "n -= n != 2", name="two hangs")
    target = target_of(root, "countdown", env={"MARKER": marker})
    options = options_for(tmp_path, **QUICK, pytest_extra=("-k", "deaf or wait"))
    column, _ = run_one(target, [mutant], options)
    assert column.mutants[0].status == "timeout"
    assert column.mutants[0].reason.endswith("in tests/test_countdown.py::test_steps_deaf")
    assert processes_with(marker) == []


def test_a_daemon_of_a_test_does_not_outlive_it(tmp_path: Path) -> None:
    root = copy_of("leaves-a-process", tmp_path)
    marker = uuid.uuid4().hex
    mutant = mutant_of(root, "src/calc.py", "a + b", "a - b")
    target = target_of(root, "calc", env={"DAEMON_MARKER": marker})
    column, _ = run_one(target, [mutant], options_for(tmp_path))
    assert column.mutants[0].status == "killed"
    assert processes_with(marker, "DAEMON_MARKER") == []


def test_memory_beyond_the_bound_is_a_crash(tmp_path: Path) -> None:
    root = copy_of("hangs-when-mutated", tmp_path)
    mutant = mutant_of(root, "src/countdown.py", "sleep(seconds)", "a = bytearray(600 << 20); sleep(60)")
    options = options_for(tmp_path, memory_limit=400 << 20)
    column, _ = run_one(target_of(root, "countdown"), [mutant], options)
    assert column.mutants[0].status == "crash"
    assert column.mutants[0].reason.startswith("more than 0.4 GiB of memory, in tests/test_countdown.py")


def test_output_is_bounded(tmp_path: Path) -> None:
    root = copy_of("exits", tmp_path)
    flood = "import sys; sys.__stdout__.write('x' * 100); [os.write(1, b'y' * 65536) for _ in range(64)]"
    mutant = mutant_of(root, "src/leave.py", "if really:", f"if True:\n        {flood}")
    target = target_of(root, "leave")
    column, _ = run_one(target, [mutant], options_for(tmp_path, output_limit=10_000, pytest_extra=("-s",)))
    assert column.mutants[0].status == "crash"
    (log,) = (tmp_path / "run" / "logs").iterdir()
    assert 9_000 < log.stat().st_size < 11_000


DRIVER = """
import json, sys
sys.path.insert(0, {helpers!r})
from pathlib import Path
from runner_trees import CPU, Recorder, mutant_of, options_for, run_columns, target_of

root, tmp = Path({root!r}), Path({tmp!r})
def plus(i):
    return mutant_of(root, "src/calc.py", "a + b", f"a + b + {{i}}", name=f"plus {{i}}")

class Told(Recorder):
    def mutant_done(self, name, column, status):
        print("done", name, status, flush=True)
    def column_started(self, column, mutants, done):
        print("started", mutants, done, flush=True)

target = target_of(root, "calc", env={{"MARKER": {marker!r}}})
columns = run_columns(target, [plus(i) for i in range({count})], [CPU], options_for(tmp), Told())
print("finished", *(outcome.status for outcome in columns[0].mutants), flush=True)
"""


def start_driver(tmp_path: Path, root: Path, marker: str, count: int) -> subprocess.Popen[str]:
    code = DRIVER.format(helpers=str(HELPERS), root=str(root), tmp=str(tmp_path), marker=marker, count=count)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temp")},
    )


def lines_until_done(driver: subprocess.Popen[str], wanted: int) -> int:
    assert driver.stdout is not None
    done = 0
    while done < wanted:
        line = driver.stdout.readline()
        assert line, driver.stderr.read() if driver.stderr else ""
        done += line.startswith("done")
    return done


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=["kill", "int", "term"])
def test_an_interrupted_run_leaves_nothing_and_resumes(tmp_path: Path, sign: signal.Signals) -> None:
    root = copy_of("all-killed", tmp_path)
    (tmp_path / "temp").mkdir()
    before, marker, count = hashes(root), uuid.uuid4().hex, 120
    driver = start_driver(tmp_path, root, marker, count)
    lines_until_done(driver, 3)
    assert processes_with(marker)
    driver.send_signal(sign)
    driver.wait(30)
    assert wait_until(lambda: not processes_with(marker)), processes_with(marker)
    assert wait_until(lambda: not list((tmp_path / "temp").glob("fastlora-verify-*")))
    assert hashes(root) == before

    again = start_driver(tmp_path, root, marker, count)
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    started = next(line for line in out.splitlines() if line.startswith("started")).split()
    assert int(started[1]) == count
    assert 3 <= int(started[2]) < count
    assert out.count("done ") == count - int(started[2])
    assert out.splitlines()[-1].split() == ["finished", "survived", *["killed"] * (count - 1)]
    assert hashes(root) == before


def test_a_torn_last_line_is_dropped_and_its_mutant_runs_again(tmp_path: Path) -> None:
    root = copy_of("one-survivor", tmp_path)
    mutants: list[Mutant] = [
        mutant_of(root, "src/limits.py", "2 * x", "3 * x", name="first"),
        mutant_of(root, "src/limits.py", "return top", "return x", name="second"),
    ]
    target, options = target_of(root, "limits"), options_for(tmp_path)
    first, _ = run_one(target, mutants, options)
    results = options.run_dir / "results.jsonl"
    whole = results.read_bytes()
    results.write_bytes(whole[:-20])
    second, events = run_one(target, mutants, options)
    assert events.started == [("head:cpu", 2, 1)]
    assert len(events.done) == 1
    assert [(o.mutant, o.status, o.killers) for o in second.mutants] == [
        (o.mutant, o.status, o.killers) for o in first.mutants
    ]
    assert [json.loads(line)["key"] for line in results.read_text().splitlines()] == [
        json.loads(line)["key"] for line in whole.decode().splitlines()
    ]
    third, events = run_one(target, mutants, options)
    assert events.started == [("head:cpu", 2, 2)]
    assert third.mutants == second.mutants


def test_a_result_is_not_taken_for_another_tree_suite_or_mutant(tmp_path: Path) -> None:
    root = copy_of("one-survivor", tmp_path)
    target, options = target_of(root, "limits"), options_for(tmp_path)

    def known(new: str, options: RunOptions) -> int:
        mutant = mutant_of(root, "src/limits.py", "return top", new, name="same name")
        return run_one(target, [mutant], options)[1].started[0][2]

    assert known("return x", options) == 0
    assert known("return x", options) == 1
    assert known("return -x", options) == 0
    assert known("return x", options_for(tmp_path, pytest_extra=("-k", "clip"))) == 0
    assert known("return x", options_for(tmp_path, resume=False)) == 0
    test = root / "tests" / "test_limits.py"
    test.write_text(test.read_text() + "\n\ndef test_clip():\n    assert clip(7, 5) == 5\n")
    mutant = mutant_of(root, "src/limits.py", "return top", "return x", name="same name")
    column, events = run_one(target, [mutant], options)
    assert events.started == [("head:cpu", 1, 0)]
    assert outcome_of(column, "same name").status == "killed"
