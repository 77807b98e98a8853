"""The audit: which mutants, how pytest's own words are read, and that a difference is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_trees import copy_of, mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import Counts, Killer, MutantOutcome
from fastlora_verify.harness.runner.audit import chosen, difference, failing_cases, junit_key, printed_counts, told

pytestmark = pytest.mark.slow  # runs of the tool


def outcome(name: str, status: str, **more: object) -> MutantOutcome:
    return MutantOutcome(name, "head:cpu", status, **more)  # type: ignore[arg-type]


def test_every_survivor_and_some_others_are_chosen() -> None:
    outcomes = [outcome(f"k{i}", "killed") for i in range(20)]
    outcomes += [outcome("s1", "survived"), outcome("t", "timeout"), outcome("s2", "survived"), outcome("n", "not-run")]
    names = chosen(outcomes, 5, seed=0)
    assert len(names) == 7
    assert names[-2:] == ["s1", "s2"]
    assert names == chosen(outcomes, 5, seed=0)
    assert len({tuple(chosen(outcomes, 5, seed)) for seed in range(5)}) > 1
    assert len(chosen(outcomes, 99, seed=0)) == 22


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("===== 12 failed, 27 passed, 2 skipped in 3.41s =====", Counts(passed=27, failed=12, skipped=2)),
        ("12 failed, 27 passed in 3.41s", Counts(passed=27, failed=12)),
        ("= 1 failed, 1 passed, 1 skipped, 1 deselected, 2 xfailed, 1 xpassed, 3 warnings, 1 error in 0.01s =", None),
        ("==== 3 passed in 65.20s (0:01:05) ====\n", Counts(passed=3)),
        ("1 passed in 0.01s\ncoverage: 12 files in 3 folders\n", Counts(passed=1)),
        ("no tests ran in 0.01s", Counts()),
        ("..F\n", None),
        ("the 3 passed in 2 tries", None),
    ],
)
def test_the_last_line_is_read(output: str, counts: Counts | None) -> None:
    wanted = Counts(passed=1, failed=1, errors=1, skipped=1, xfailed=2, xpassed=1) if "deselected" in output else counts
    assert printed_counts(output) == wanted


def test_counts_are_told_as_pytest_tells_them() -> None:
    assert (
        told(Counts(passed=27, failed=12, errors=1, skipped=2, xfailed=3, xpassed=4))
        == "12 failed, 27 passed, 2 skipped, 3 xfailed, 4 xpassed, 1 error"
    )
    assert told(Counts(errors=2)) == "2 errors"
    assert told(Counts()) == "no tests ran"


@pytest.mark.parametrize(
    ("test", "key"),
    [
        ("tests/test_a.py::test", ("tests.test_a", "test")),
        ("tests/test_a.py::T::test[a.py::b/c]", ("tests.test_a.T", "test[a.py::b/c]")),
        ("tests/test_a.py", ("", "tests.test_a")),
    ],
)
def test_node_ids_as_junit_spells_them(test: str, key: tuple[str, str]) -> None:
    assert junit_key(test) == key


JUNIT = """<testsuites><testsuite>
<testcase classname="t.a" name="x[1]"><failure/></testcase>
<testcase classname="t.a" name="y"/>
<testcase classname="t.a" name="z"><skipped/></testcase>
<testcase classname="" name="t.b"><error/></testcase>
</testsuite></testsuites>"""

OUTPUT = "1 failed, 1 passed, 1 skipped, 1 error in 0.10s"
KILLERS = (Killer("t/a.py::x[1]", "fails", "", "", "assertion"), Killer("t/b.py::w", "errors", "", "", "exception"))
RECORDED = outcome("m", "killed", counts=Counts(passed=1, failed=1, errors=1, skipped=1), killers=KILLERS)


@pytest.fixture
def junit(tmp_path: Path) -> Path:
    path = tmp_path / "junit.xml"
    path.write_text(JUNIT)
    return path


def test_equal_counts_and_killers_are_no_difference(junit: Path) -> None:
    assert failing_cases(junit) == {("t.a", "x[1]"), ("", "t.b")}
    assert difference(RECORDED, OUTPUT, junit, "") is None


@pytest.mark.parametrize(
    ("recorded", "output", "problem", "plain"),
    [
        (RECORDED, OUTPUT.replace("1 passed", "2 passed"), "", "1 failed, 2 passed, 1 skipped, 1 error"),
        (RECORDED, "", "", "pytest printed no last line"),
        (RECORDED, OUTPUT, "more than 9 s of wall time", "more than 9 s of wall time"),
        (
            outcome("m", "killed", counts=RECORDED.counts, killers=(KILLERS[0],)),
            OUTPUT,
            "",
            "1 failed, 1 passed, 1 skipped, 1 error; fails:  t.b",
        ),
        (
            outcome(
                "m",
                "killed",
                counts=RECORDED.counts,
                killers=(*KILLERS, Killer("t/a.py::y", "fails", "", "", "assertion")),
            ),
            OUTPUT,
            "",
            "1 failed, 1 passed, 1 skipped, 1 error; these pass",
        ),
    ],
    ids=["counts", "no line", "timeout", "one more fails", "one less fails"],
)
def test_differences(junit: Path, recorded: MutantOutcome, output: str, problem: str, plain: str) -> None:
    found = difference(recorded, output, junit, problem)
    assert found is not None
    assert (found.mutant, found.audited) == ("m", plain)


def test_an_audit_of_every_mutant_agrees_with_the_record(tmp_path: Path) -> None:
    root = copy_of("changes-of-outcome", tmp_path)
    head = (root / "src/switch.py").read_text().splitlines()[0]
    names = head.removesuffix(" = False").split(" = ")
    mutants = []
    for name in ("TEARDOWN", "SETUP", "SKIP", "STRICT", "VANISH"):
        others = " = ".join(other for other in names if other != name)
        mutants.append(mutant_of(root, "src/switch.py", head, f"{name} = True\n{others} = False", name=name))
    options = options_for(tmp_path, audit=9)
    column, _ = run_one(target_of(root, "switch"), mutants, options)
    assert column.audited == tuple(mutant.name for mutant in mutants)
    assert column.audit_differences == ()


def test_a_mutant_that_behaves_otherwise_under_the_runner_is_found(tmp_path: Path) -> None:
    root = copy_of("one-survivor", tmp_path)
    watched = '2 * x + ("fastlora_verify.harness.child.facts" not in __import__("sys").modules)'
    mutant = mutant_of(root, "src/limits.py", "2 * x", watched, name="hides")
    column, _ = run_one(target_of(root, "limits"), [mutant], options_for(tmp_path, audit=1))
    assert column.mutants[0].status == "survived"
    (found,) = column.audit_differences
    assert (found.recorded, found.audited) == ("2 passed", "1 failed, 1 passed")
