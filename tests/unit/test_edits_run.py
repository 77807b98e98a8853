"""Edits, diffs and reverts run: the same counts and failures as plain pytest on a copy that `apply` wrote."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import commit, git, hashes, new_repository

from fastlora_verify.harness.plan import Counts
from fastlora_verify.harness.runner.audit import failing_cases, junit_key, printed_counts
from fastlora_verify.reports.record import MutantRecord, loads

TINY = Path(__file__).parent.parent / "testdata" / "tiny"
COMMAND = (sys.executable, "-P", "-c", "from fastlora_verify.harness.cli import main; main()")
ENTRY = "tiny.kernel:patch.forward"
SEVERAL = """\
--- a/src/tiny/kernel.py
+++ b/src/tiny/kernel.py
@@ -29,7 +29,8 @@


 def must_delegate(x):
-    return x < 0
+    from tiny.limits import LOW
+    return x < LOW


 def patch(module):
--- /dev/null
+++ b/src/tiny/limits.py
@@ -0,0 +1 @@
+LOW = 2
"""
TESTS = """\
--- a/tests/test_tiny.py
+++ b/tests/test_tiny.py
@@ -17,6 +17,6 @@
 def test_agrees():
     module = Module()
     patch(module)
-    assert module.forward(4) == Module().forward(4)
+    assert module.forward(4) == Module().forward(5)
     assert unpatch(module) == 1

"""
EDITS = {
    "if x == 3: return": ("--insert", "if x == 3: return original(x)", "--at", ENTRY),
    "math": ("--insert", "if math.isnan(x): return original(x)", "--at", ENTRY),
    "x + 1": ("--replace", "x + x", "x + 1", "--at", "tiny.kernel:Doubled.forward"),
    "several.diff": ("--patch", "several.diff"),
    "tests.diff": ("--patch", "tests.diff"),
}
EXPECTED = {
    "if x == 3: return": (Counts(passed=2, failed=1, skipped=1), ["test_the_kernel_is_taken[3]"], 3, 1),
    "math": (Counts(passed=3, skipped=1), [], 3, 0),
    "x + 1": (Counts(passed=2, failed=1, skipped=1), ["test_agrees"], 3, 3),
    "several.diff": (Counts(passed=2, failed=1, skipped=1), ["test_the_kernel_is_taken[1]"], 3, 3),
    "tests.diff": (Counts(passed=2, failed=1, skipped=1), ["test_agrees"], 1, 1),
    "put back": (Counts(passed=2, failed=1, skipped=1), ["test_the_kernel_is_taken[1]"], 3, 3),
}


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two diffs and the target `tiny`, whose base differs in one line."""
    folder = tmp_path_factory.mktemp("edits")
    tree = Path(shutil.copytree(TINY, new_repository(folder / "tiny"), dirs_exist_ok=True))
    kernel = tree / "src" / "tiny" / "kernel.py"
    head = kernel.read_text()
    kernel.write_text(head.replace("return x < 0", "return x < 2"))
    commit(tree, {})
    kernel.write_text(head)
    (folder / "several.diff").write_text(SEVERAL)
    (folder / "tests.diff").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def mutants(place: Path) -> dict[str, MutantRecord]:
    """What one run of all of them recorded, by the word that tells each."""
    before = hashes(place / "tiny")
    words = [word for edit in EDITS.values() for word in edit]
    files = ("--json", "run.json", "--run-dir", "run")
    options = ("--target", "tiny", "--reverts", "HEAD", "--audit", "9", "--no-oracles", *files)
    done = command(place, "mutate", *words, *options)
    assert done.returncode == 1, done.stderr
    assert hashes(place / "tiny") == before
    record = loads((place / "run.json").read_text())
    assert record.audit is not None
    assert (record.audit.checked, record.audit.differences) == (6, ())
    assert len(record.mutants) == 6
    return {key: next(m for m in record.mutants if key in m.gist) for key in EXPECTED}


@pytest.mark.slow
@pytest.mark.parametrize("key", EXPECTED)
def test_the_record_says_what_plain_pytest_says_of_an_edited_copy(
    place: Path, mutants: dict[str, MutantRecord], key: str, tmp_path: Path
) -> None:
    counts, failing, reached, triggered = EXPECTED[key]
    mutant = mutants[key]
    result = mutant.results["head:cpu"]
    found = Counts(result.passed, result.failed, result.errors, result.skipped, result.xfailed, result.xpassed)
    assert found == counts
    assert [killer.test.partition("::")[2] for killer in result.killers] == failing
    assert (result.reached, result.triggered) == (reached, triggered)

    words = EDITS.get(key, (mutant.name, "--reverts", "HEAD"))
    assert (mutant.name, *mutant.options) == words or mutant.options == words
    applied = command(place, "apply", *words, "--to", str(tmp_path / "copy"), "--target", "tiny")
    assert applied.returncode == 0, applied.stderr
    plain = applied.stdout.splitlines()[1]
    done = subprocess.run(f"{plain} --junitxml junit.xml", shell=True, capture_output=True, text=True, check=False)
    assert printed_counts(done.stdout) == counts
    cases = failing_cases(tmp_path / "copy" / "junit.xml")
    assert cases == {junit_key(f"tests/test_tiny.py::{test}") for test in failing}


@pytest.mark.slow
def test_the_report_says_how_each_is_made_again(place: Path, mutants: dict[str, MutantRecord]) -> None:
    report = command(place, "report", "run.json").stdout
    assert "apply --insert 'if math.isnan(x): return original(x)' --at tiny.kernel:patch.forward --to DIR" in report
    assert git(place / "tiny", "status", "--porcelain") == "M src/tiny/kernel.py"


@pytest.mark.slow
def test_what_cannot_be_seen_beforehand_is_not_viable_and_never_killed(tmp_path: Path) -> None:
    """A name that a function may bind, and doesn't: every failure is a NameError."""
    kernel = Path(shutil.copytree(TINY, tmp_path / "tiny")) / "src" / "tiny" / "kernel.py"
    kernel.write_text(f"{kernel.read_text()}\n\ndef bind():\n    global made\n    made = 1\n")
    edit = ("--insert", "if made: return original(x)", "--at", ENTRY)
    done = command(tmp_path, "mutate", *edit, "--target", "tiny", "--no-oracles", "--json", "run.json")
    assert done.returncode == 3, done.stderr
    (mutant,) = loads((tmp_path / "run.json").read_text()).mutants
    result = mutant.results["head:cpu"]
    assert (result.status, result.failed) == ("not-viable", 3)
    assert result.note == "the mutant is broken, not wrong: NameError: name 'made' is not defined"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--insert", "return x"), 2, "--insert 'return x' goes nowhere; put --at"),
        (("--insert", "return nowhere", "--at", ENTRY), 2, "brings in the unbound name 'nowhere'"),
        (("--insert", "return x", "--at", "tiny.kernel:patch.forwards"), 2, "nearest: patch.forward"),
        (("--replace", "x", "y", "--at", ENTRY), 2, "times in tiny.kernel:patch.forward (lines "),
        (("--patch", "none.diff"), 2, "none.diff: cannot be read: No such file"),
        (("--mutations", "none.py"), 2, "none.py: cannot be read: No such file"),
        (("--reverts",), 2, "--reverts names no revision"),
        (("--reverts", "nowhere"), 2, "'nowhere' is no revision"),
        (("reverts@x",), 2, "such a mutant is made by --reverts; give --reverts REV as well"),
        ((), 5, "nothing to run: name mutations, or give --all, --kernel or --family, or an edit"),
    ],
)
def test_bad_edits_are_one_line_and_the_right_status(
    place: Path, words: tuple[str, ...], status: int, message: str
) -> None:
    done = command(place, "mutate", *words, "--target", "tiny", "--run-dir", "other")
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_reverts_are_listed_with_what_is_none(place: Path) -> None:
    done = command(place, "list", "--reverts", "HEAD", "--target", "tiny")
    assert done.returncode == 0, done.stderr
    assert "1 mutant, 0 not made" in done.stdout
    assert "put back: return x < 2 instead of: return x < 0" in done.stdout
