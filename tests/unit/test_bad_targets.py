"""Targets that can't be run: one clear line each, the right status, no traceback, nothing written beside the run's.

What decides between 4 and 5: where pytest collects nothing, no test was selected, as with pytest itself (5). Tests
that are there and all skip, or fail, are a red control (4).
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = Path(__file__).parent.parent / "testdata" / "tiny"
COMMAND = (sys.executable, "-P", "-c", "from fastlora_verify.harness.cli import main; main()")
TABLE, KERNEL, TESTS = "fastlora-verify.toml", "src/tiny/kernel.py", "tests/test_tiny.py"

Change = Callable[[Path], object]


def table(before: str, after: str) -> Change:
    def change(tree: Path) -> None:
        text = (tree / TABLE).read_text()
        assert text.count(before) >= 1
        (tree / TABLE).write_text(text.replace(before, after))

    return change


def added(path: str, data: bytes) -> Change:
    return lambda tree: (tree / path).write_bytes((tree / path).read_bytes() + data)


def written(path: str, text: str) -> Change:
    return lambda tree: (tree / path).write_text(text)


def without_table(tree: Path) -> None:
    (tree / TABLE).unlink()
    (tree / "pyproject.toml").write_text("[project]\nname = 'tiny'\n")


def emptied(tree: Path) -> None:
    (tree / "tests" / "none").mkdir()
    (tree / "tests" / "none" / "data.txt").touch()
    table('tests = ["tests"]', 'tests = ["tests/none"]')(tree)


def ignored(tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    (tree / ".gitignore").write_text("kernel.py\n")


ALL_SKIP = 'import pytest\n\npytestmark = pytest.mark.skip(reason="later")\n\n\ndef test_a():\n    pass\n'
SKIPS_ITSELF = 'import pytest\n\npytest.skip("no card", allow_module_level=True)\n'
RED = b"\n\ndef test_red():\n    assert 1 == 2\n"

CASES: dict[str, tuple[Change, int, str]] = {
    "no tests named": (
        table('tests = ["tests"]', "tests = []"),
        5,
        r"nothing to run: \S+/tree/fastlora-verify\.toml names no tests; fill its key target\.tests, or give --tests",
    ),
    "tests that are not there": (
        table('tests = ["tests"]', 'tests = ["nowhere"]'),
        2,
        r"target \S+, key target\.tests: nowhere is not in the tree",
    ),
    "no key for tests": (
        table('tests = ["tests"]', ""),
        2,
        r"target \S+, key target\.tests: is missing",
    ),
    "no such module": (
        table("tiny.kernel", "tiny.kernal"),
        2,
        r"target \S+, key target\.modules: module tiny\.kernal is not in the tree; looked for src/tiny/kernal\.py, .*",
    ),
    "a syntax error in a source": (
        added(KERNEL, b"\ndef f(:\n"),
        2,
        r"target \S+, key target\.modules: tiny\.kernel: \S+/kernel\.py is not Python: invalid syntax at line \d+",
    ),
    "a source that is no text": (
        added(KERNEL, b'\nx = "\xe9"\n'),
        2,
        r"target \S+, key target\.modules: tiny\.kernel: \S+/kernel\.py is not text: 'utf-8' codec can't decode .*",
    ),
    "an unknown role": (
        table('"tiny.kernel:patch.forward"', '"tiny.kernel:patch.foward"'),
        2,
        r"target \S+, key kernel\[0\]\.entries of 'doubled': tiny\.kernel has no patch\.foward; nearest: patch\.f.*",
    ),
    "no table": (
        without_table,
        2,
        r"target tree/pyproject\.toml: has no \[tool\.fastlora-verify\] table; `fastlora-verify init` writes one",
    ),
    "neither file": (
        lambda tree: (tree / TABLE).unlink(),
        2,
        r"target tree: the folder has neither fastlora-verify\.toml nor pyproject\.toml; `fastlora-verify init` .*",
    ),
    "no folder": (
        shutil.rmtree,
        2,
        r"target tree: cannot be read: No such file or directory",
    ),
    "a root that is not there": (
        table('root = "."', 'root = "sub"'),
        2,
        r"target \S+, key target\.root: \S+/sub is not a folder",
    ),
    "a test that fails unmutated": (
        added(TESTS, RED),
        4,
        r"control 'unmutated' is red in column head:cpu: 1 failed, 3 passed, 1 skipped; the first: "
        r"tests/test_tiny\.py::test_red \(AssertionError: assert 1 == 2\); no mutant was judged",
    ),
    "tests that do not import": (
        written(TESTS, "import no_such_module\n"),
        4,
        r"control 'unmutated' is red in column head:cpu: 1 error; the first: tests/test_tiny\.py "
        r"\(ModuleNotFoundError: No module named 'no_such_module'\); no mutant was judged",
    ),
    "a source that git ignores": (
        ignored,
        2,
        r"target \S+, key target\.include: tiny\.kernel: src/tiny/kernel\.py is not in the copy, since git .*",
    ),
    "tests that all skip": (
        written(TESTS, ALL_SKIP),
        4,
        r"control 'unmutated' is red in column head:cpu: no test passed \(1 skipped\); no mutant was judged",
    ),
    "a test file that skips itself": (
        written(TESTS, SKIPS_ITSELF),
        4,
        r"control 'unmutated' is red in column head:cpu: no test passed \(1 skipped\); no mutant was judged",
    ),
    "a folder without tests": (
        emptied,
        5,
        r"nothing to run: pytest collects no test in column head:cpu; check target\.tests",
    ),
    "every test deselected": (
        table('"-W", "ignore"', '"-k", "no_such_test"'),
        5,
        r"nothing to run: pytest collects no test in column head:cpu; check target\.tests",
    ),
}
PROGRESS = re.compile(r"head:cpu: controls, then \d+ mutants?")


def content(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and ".fastlora-verify" not in path.parts)
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def named(case: str) -> object:
    """Those that are found out only by a run of the tests are slow."""
    runs = case in {
        "a test that fails unmutated",
        "tests that do not import",
        "tests that all skip",
        "a test file that skips itself",
        "a folder without tests",
        "every test deselected",
    }
    return pytest.param(case, marks=pytest.mark.slow if runs else ())


@pytest.mark.parametrize("case", [named(case) for case in CASES])
def test_a_bad_target_is_one_line_and_a_status(case: str, tmp_path: Path) -> None:
    change, status, says = CASES[case]
    tree = tmp_path / "work" / "tree"
    shutil.copytree(TINY, tree)
    change(tree)
    before = content(tmp_path)
    done = subprocess.run(
        [*COMMAND, "mutate", "--all", "--target", "tree"], cwd=tree.parent, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stderr.splitlines() if not PROGRESS.fullmatch(line)]
    assert len(lines) == 1, done.stderr
    assert re.fullmatch(f"fastlora-verify: {says}", lines[0]), lines[0]
    assert (done.returncode, done.stdout) == (status, "")
    assert content(tmp_path) == before


def test_what_cannot_be_run_can_still_be_listed(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "tree")
    table('tests = ["tests"]', "tests = []")(tmp_path / "tree")
    for argv in (["list", "--target", "tree"], ["diff", "delegates-always", "--target", "tree"]):
        done = subprocess.run([*COMMAND, *argv], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "delegates-always" in done.stdout


def test_init_says_which_source_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "fast_lora.py").write_text("import torch\nclass K(torch.autograd.Function):\n    lora_A = (\n")
    done = subprocess.run([*COMMAND, "init", "."], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (5, "")
    assert len(done.stderr.splitlines()) == 1
    assert "is applied in its 1 module (fast_lora.py is not Python ('(' was never closed, line 3)" in done.stderr


def test_init_of_what_is_no_folder(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "init", "gone"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fastlora-verify: gone: is not a folder\n"


@pytest.mark.slow
def test_a_source_that_git_ignores_is_run_where_the_table_includes_it(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "tree")
    ignored(tmp_path / "tree")
    table('root = "."', 'root = "."\ninclude = ["src/**/kernel.py"]')(tmp_path / "tree")
    argv = ["mutate", "delegates-always", "--target", "tree"]
    done = subprocess.run([*COMMAND, *argv], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 mutant killed" in done.stdout
