"""A target unlike the reference kernels, as `init` finds it: counts of plain pytest, files left alone.

Its Function stands at module level under two decorators and is patched into the class, its tests are unittest's, start
a `python` of their own and read the source; sources have CRLF and letters beyond ASCII; nothing is installed; the
interpreter is another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from fastlora_verify.reports import record as rec

UNLIKE = Path(__file__).parent.parent / "testdata" / "unlike"
COMMAND = (sys.executable, "-P", "-c", "from fastlora_verify.harness.cli import main; main()")
FUSED = "src/adapterfuse/fused.py"
HANDFUL = {
    "delegates-on-3d@adapterfuse.fused:schnell",
    "delegates-on-fp16@adapterfuse.fused:schnell",
    "forward-not-restored@adapterfuse.fused:ausschalten",
    "scaling-dropped-in-da@adapterfuse.fused:LowRankProduct.backward",
    "activation-saved@adapterfuse.fused:LowRankProduct.forward",
}


def with_crlf(tree: Path) -> None:
    """Line ends of another system, as a checkout there has them."""
    for path in (tree / "src").rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def content(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(folder: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *argv], cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **env}
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The target with the table that `init` wrote, unedited."""
    tree = tmp_path / "unlike"
    shutil.copytree(UNLIKE, tree)
    with_crlf(tree)
    done = run(tmp_path, "init", "unlike", "-o", "unlike/fastlora-verify.toml")
    assert done.returncode == 0, done.stderr
    return tree


def test_init_finds_all_of_it(tree: Path) -> None:
    import tomllib

    table = tomllib.loads((tree / "fastlora-verify.toml").read_text())
    assert table["target"]["source-roots"] == ["src"]
    assert table["target"]["modules"] == ["adapterfuse.fused"]
    assert table["target"]["tests"] == ["tests/test_fused.py"]
    assert table["kernel"] == [
        {
            "name": "linear",
            "kind": "linear",
            "function": "adapterfuse.fused:LowRankProduct",
            "entries": ["adapterfuse.fused:schnell"],
            "owner": ["adapterfuse.layers:AdapterLinear"],
            "guards": ["adapterfuse.fused:_warum_nicht"],
            "helpers": ["adapterfuse.fused:_zeilen"],
            "patcher": "adapterfuse.fused:einschalten",
            "patch-call": "einschalten()",
            "unpatcher": "adapterfuse.fused:ausschalten",
            "node": "LowRankProductBackward",
        }
    ]


def test_every_family_that_applies_has_a_site_and_every_edit_keeps_the_line_ends(tree: Path) -> None:
    from fastlora_verify.harness.look import looked_at
    from fastlora_verify.harness.selection import Selection

    found = looked_at(tree, Selection())
    assert found.plan.faults == ()
    families = {mutant.family for mutant in found.mutants}
    assert families == {"delegation", "mathematics", "precision", "quantised weight", "memory and streaming",
                        "guards", "lifecycle"} - {"quantised weight"}  # fmt: skip
    assert len(found.mutants) >= 38
    assert {mutant.name for mutant in found.mutants} >= HANDFUL
    for mutant in found.mutants:
        assert mutant.source.count("\n") == mutant.source.count("\r\n"), mutant.name


def test_apply_keeps_line_ends_and_letters(tree: Path) -> None:
    name = "guard-fails-open@adapterfuse.fused:_warum_nicht[mehrere Adapter zugleich]"
    done = run(tree.parent, "apply", name, "--to", "copy", "--target", "unlike")
    assert done.returncode == 0, done.stderr
    before, after = (tree / FUSED).read_bytes(), (tree.parent / "copy" / FUSED).read_bytes()
    assert after == before.replace(b'return "mehrere Adapter zugleich"', b"return None")
    assert before.count(b"\r\n") == before.count(b"\n") > 50


# -- a run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """A run on the target with another interpreter."""

    folder: Path
    python: Path
    record: rec.RunRecord
    before: dict[str, str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("unlike")
    shutil.copytree(UNLIKE, folder / "unlike")
    with_crlf(folder / "unlike")
    done = run(folder, "init", "unlike", "-o", "unlike/fastlora-verify.toml")
    assert done.returncode == 0, done.stderr
    python = other_interpreter(folder / "venv")
    (folder / "tmp").mkdir()
    before = content(folder)
    argv = ("--target", "unlike", "--python", "venv/bin/python", "--run-dir", "run", "--no-oracles")
    done = run(folder, "mutate", *sorted(HANDFUL), *argv, TMPDIR=str(folder / "tmp"), CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 1, done.stderr
    return Ran(folder, python, rec.loads((folder / "run/record.json").read_text()), before)


def other_interpreter(place: Path) -> Path:
    """A virtual environment that finds our libraries, and nothing of ours."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return place / "bin" / "python"


@pytest.mark.slow
def test_the_counts_and_killers_are_those_of_plain_pytest_on_an_edited_copy(ran: Ran) -> None:
    assert {mutant.name for mutant in ran.record.mutants} == HANDFUL
    (column,) = ran.record.columns
    assert column.baseline is not None
    assert (column.baseline.passed, column.baseline.failed, column.baseline.skipped) == (7, 0, 1)
    statuses = set()
    for mutant in ran.record.mutants:
        counts, failed = plain(ran, mutant)
        result = mutant.results["head:cpu"]
        statuses.add(result.status)
        assert counts == {
            "passed": result.passed,
            "failed": result.failed,
            "error": result.errors,
            "skipped": result.skipped,
        }, mutant.name
        assert failed == {killer.test for killer in result.killers}, mutant.name
    assert statuses == {"killed", "survived"}


def plain(ran: Ran, mutant: rec.MutantRecord) -> tuple[dict[str, int], set[str]]:
    """Plain pytest on a copy that was edited by hand: pytest's last line, and the tests that failed."""
    copy = ran.folder.parent / f"plain-{mutant.mutation}"
    shutil.copytree(ran.folder / "unlike", copy)
    (copy / FUSED).write_bytes(edited((copy / FUSED).read_bytes(), mutant.diff))
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "CUDA_VISIBLE_DEVICES": "-1", "PYTHONDONTWRITEBYTECODE": "1"}
    env["PATH"] = os.pathsep.join([str(ran.python.parent), env["PATH"]])
    command = [str(ran.python), "-P", "-m", "pytest", "-rfE", "--color=no", "tests/test_fused.py"]
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    found = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
    failed = re.findall(r"^(?:SUBFAILED.*?|FAILED|ERROR) (tests/\S+)", done.stdout, re.MULTILINE)
    return {word: found.get(word, 0) for word in ("passed", "failed", "error", "skipped")}, set(failed)


def edited(data: bytes, diff: str) -> bytes:
    """The file with the lines of a diff changed, its line ends kept."""
    lines = data.decode().split("\r\n")
    for hunk in re.split(r"^(?=@@ )", diff, flags=re.MULTILINE)[1:]:
        body = hunk.splitlines()[1:]
        old = [line[1:] for line in body if line[0] != "+"]
        at = next(i for i in range(len(lines)) if lines[i : i + len(old)] == old)
        lines[at : at + len(old)] = [line[1:] for line in body if line[0] != "-"]
    return "\r\n".join(lines).encode()


@pytest.mark.slow
def test_nothing_is_changed_and_nothing_written_beside_the_runs_folder(ran: Ran) -> None:
    after = content(ran.folder)
    assert {path: after[path] for path in ran.before} == ran.before
    new = {Path(path).relative_to(ran.folder).parts[0] for path in after.keys() - ran.before.keys()}
    assert new == {"run"}


@pytest.mark.slow
def test_the_other_interpreter_ran_it(ran: Ran) -> None:
    record = json.loads((ran.folder / "run/record.json").read_text())
    assert "venv/bin/python" in json.dumps(record["command"])
    survivor = next(m for m in ran.record.mutants if m.mutation == "delegates-on-fp16")
    assert survivor.results["head:cpu"].triggered == 0
    assert survivor.results["head:cpu"].reached > 0
