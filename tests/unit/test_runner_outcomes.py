"""Whole runs on small trees: what becomes of a mutant."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_trees import copy_of, mutant_of, options_for, outcome_of, run_one, target_of

from fastlora_verify.harness.plan import Counts

pytestmark = pytest.mark.slow  # runs of the tool


def test_all_mutants_are_killed_and_counted_as_pytest_counts(tmp_path: Path) -> None:
    root = copy_of("all-killed", tmp_path)
    mutants = [
        mutant_of(root, "src/calc.py", "a + b", "a - b"),
        mutant_of(root, "src/calc.py", "return -1", "return 5"),
    ]
    column, events = run_one(target_of(root, "calc"), mutants, options_for(tmp_path))
    assert column.baseline is not None
    assert column.baseline.counts == Counts(passed=6, skipped=1, xfailed=1)
    assert column.baseline.skips == (("tests/test_calc.py::TestNotHere::test_skipped", "needs a card"),)
    minus = outcome_of(column, "a - b")
    assert (minus.status, minus.how) == ("killed", "assertion")
    assert minus.counts == Counts(passed=3, failed=3, skipped=1, xfailed=1)
    assert [killer.test.partition("::")[2] for killer in minus.killers] == [
        "test_add[small]",
        "test_add[zero]",
        "test_add[opposite]",
    ]
    assert (minus.killers[0].exception, minus.killers[0].message) == ("AssertionError", "assert -1 == 3")
    assert (minus.reached, minus.triggered, minus.reached_import) == (4, 4, False)
    five = outcome_of(column, "return 5")
    assert (five.status, five.reached, len(five.killers)) == ("killed", 1, 1)
    assert events.done == [(name, "head:cpu", "killed") for name, _, _ in events.done]
    assert {name for name, _, _ in events.done} == {mutant.name for mutant in mutants}


def test_a_survivor_says_which_green_tests_reached_it(tmp_path: Path) -> None:
    root = copy_of("one-survivor", tmp_path)
    survivor = mutant_of(root, "src/limits.py", "return top", "return top + 1")
    killed = mutant_of(root, "src/limits.py", "2 * x", "3 * x")
    reached = mutant_of(root, "src/limits.py", "x > top", "x > top + 1")
    column, _ = run_one(target_of(root, "limits"), [survivor, killed, reached], options_for(tmp_path))
    assert [outcome.status for outcome in column.mutants] == ["survived", "killed", "survived"]
    assert (column.mutants[0].reached, column.mutants[0].reached_tests) == (0, ())
    test = "tests/test_limits.py::test_clip_leaves_small_values_alone"
    assert column.mutants[2].reached_tests == ((test, True),)


def test_outcomes_of_single_tests(tmp_path: Path) -> None:
    root = copy_of("changes-of-outcome", tmp_path)

    text = (root / "src" / "switch.py").read_text()
    head = text.splitlines()[0]
    names = head.removesuffix(" = False").split(" = ")
    mutants = []
    for name in names:
        others = " = ".join(other for other in names if other != name)
        mutants.append(mutant_of(root, "src/switch.py", head, f"{name} = True\n{others} = False", name=name))
    column, _ = run_one(target_of(root, "switch"), mutants, options_for(tmp_path))  # type: ignore[arg-type]
    assert column.baseline is not None
    assert column.baseline.counts == Counts(passed=7, skipped=1, xfailed=2)
    found = {outcome.mutant: outcome for outcome in column.mutants}

    def shape(name: str) -> tuple[object, ...]:
        outcome = found[name]
        return (
            outcome.status,
            outcome.how,
            [(killer.test.partition("::")[2], killer.effect, killer.how) for killer in outcome.killers],
            [(test.partition("::")[2], word) for test, word in outcome.differences],
        )

    assert shape("SETUP") == ("killed", "exception", [("test_resource", "errors", "exception")], [])
    assert shape("TEARDOWN") == ("killed", "assertion", [("test_resource", "errors", "assertion")], [])
    assert found["TEARDOWN"].counts == Counts(passed=7, errors=1, skipped=1, xfailed=2)
    assert shape("FAIL") == ("killed", "assertion", [("test_fails", "fails", "assertion")], [])
    assert shape("RAISE") == ("killed", "exception", [("test_source", "fails", "exception")], [])
    assert shape("INNER") == ("killed", "exception", [("test_source", "fails", "exception")], [])
    assert shape("SKIP") == ("survived", "", [], [("test_skips", "skips")])
    assert found["SKIP"].reason == "no test that passed fails, but the suite changed (1 test: skips)"
    assert shape("XFAIL") == ("survived", "", [], [("test_xfails", "fails as expected")])
    assert shape("REPAIRED") == (
        "survived",
        "",
        [],
        [("test_repaired", "passes unexpectedly, expected to fail")],
    )
    assert shape("STRICT") == ("survived", "", [], [("test_strict", "fails, expected to fail")])
    assert found["STRICT"].counts == Counts(passed=7, failed=1, skipped=1, xfailed=1)
    assert shape("VANISH") == ("survived", "", [], [("test_names[one]", "vanished")])
    assert shape("APPEAR") == ("survived", "", [], [("test_appears", "fails, skipped before")])
    assert found["REPAIRED"].counts == Counts(passed=7, skipped=1, xfailed=1, xpassed=1)


def test_a_mutant_that_does_not_import_is_not_viable(tmp_path: Path) -> None:
    root = copy_of("does-not-import", tmp_path)
    path = "src/table.py"
    mutants = [
        mutant_of(root, path, "SIZES = [2, 3, 5]", "SIZES = [2, 3, 5] + 1", name="raises"),
        mutant_of(root, path, "SIZES = [2, 3, 5]", "SIZES = [2, 3, 5", name="syntax"),
        mutant_of(root, path, "sum(SIZES)", "sum(SIZES, extra)", name="unbound", new_names=["extra"]),
        mutant_of(root, path, "sum(SIZES)", "sum(SIZE)", name="typo"),
        mutant_of(root, path, "sum(SIZES)", "max(SIZES)", name="wrong"),
    ]
    column, _ = run_one(target_of(root, "table"), mutants, options_for(tmp_path))
    assert [(outcome.status, outcome.how) for outcome in column.mutants] == [
        ("not-viable", ""),
        ("not-viable", ""),
        ("not-viable", ""),
        ("killed", "exception"),
        ("killed", "assertion"),
    ]
    assert "raises while it is imported: TypeError" in column.mutants[0].reason
    assert "SyntaxError" in column.mutants[1].reason
    assert "NameError: name 'extra' is not defined" in column.mutants[2].reason


def test_a_process_that_leaves_is_a_crash_not_a_survivor(tmp_path: Path) -> None:
    root = copy_of("exits", tmp_path)
    mutant = mutant_of(root, "src/leave.py", "if really:", "if not really:")
    column, _ = run_one(target_of(root, "leave"), [mutant], options_for(tmp_path))
    assert column.mutants[0].status == "crash"
    assert column.mutants[0].reason == (
        "the process ended with status 0 before the tests did, in tests/test_leave.py::test_before"
    )
    assert list((tmp_path / "run" / "logs").iterdir())


def test_every_reader_of_the_source_sees_the_mutant(tmp_path: Path) -> None:
    root = copy_of("reads-its-source", tmp_path)
    mutant = mutant_of(root, "src/kernel.py", "x * SCALE", "x + SCALE")
    column, _ = run_one(target_of(root, "kernel"), [mutant], options_for(tmp_path))
    assert [killer.test.partition("::")[2] for killer in column.mutants[0].killers] == [
        "test_file",
        "test_inspect",
        "test_subprocess",
        "test_subprocess_elsewhere",
    ]


def test_what_tests_do_to_their_tree_is_undone_before_the_next_mutant(tmp_path: Path) -> None:
    root = copy_of("writes-its-tree", tmp_path)
    before = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    mutants = [
        mutant_of(root, "src/notes.py", "return text", f"return text[:{length}]", name=f"cut to {length}")
        for length in (1, 2, 30)
    ]
    column, _ = run_one(target_of(root, "notes"), mutants, options_for(tmp_path, workers=1))
    assert [outcome.status for outcome in column.mutants] == ["killed", "killed", "survived"]
    assert [len(outcome.killers) for outcome in column.mutants] == [1, 1, 0]
    assert {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()} == before


def test_a_test_module_that_no_longer_collects_is_killed_not_crashed(tmp_path: Path) -> None:
    root = copy_of("one-survivor", tmp_path)
    early = "import limits\n\nFOUR = limits.double(2)\nassert FOUR == 4, 'at import'\n\n\ndef test_four():\n    pass\n"
    (root / "tests" / "test_early.py").write_text(early)
    mutants = [
        mutant_of(root, "src/limits.py", "2 * x", "3 * x", name="wrong"),
        mutant_of(root, "src/limits.py", "2 * x", "2 * x / 0", name="raises"),
    ]
    column, _ = run_one(target_of(root, "limits"), mutants, options_for(tmp_path))
    wrong, raises = column.mutants
    assert (wrong.status, wrong.how, wrong.counts) == ("killed", "assertion", Counts(errors=1))
    assert (raises.status, raises.how, raises.counts) == ("killed", "exception", Counts(errors=1))
    assert [killer.test for killer in wrong.killers] == ["tests/test_early.py::test_four"]
    assert wrong.killers[0].message == "at import"
    assert wrong.reached_import
    assert {word for _, word in wrong.differences} == {"vanished"}


def test_a_suite_that_stops_at_its_first_failure_is_judged_by_it(tmp_path: Path) -> None:
    root = copy_of("all-killed", tmp_path)
    mutant = mutant_of(root, "src/calc.py", "a + b", "a - b")
    column, _ = run_one(target_of(root, "calc"), [mutant], options_for(tmp_path, pytest_extra=("-x",), audit=1))
    outcome = column.mutants[0]
    assert (outcome.status, outcome.counts, len(outcome.killers)) == ("killed", Counts(failed=1), 1)
    assert column.audit_differences == ()
