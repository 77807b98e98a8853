"""Tests that depend on others are found, whatever they depend by; and those that don't are left alone."""

from __future__ import annotations

import random
from pathlib import Path

from runner_trees import mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import Counts
from fastlora_verify.harness.runner.dependence import Chain, chains, drawn_along, halves, state_dependence
from fastlora_verify.harness.runner.evidence import Case, SuiteFacts


def case(test: str, *streams: tuple[str, str], category: str = "passed") -> Case:
    return Case(test, category, streams=streams or (("s", "s"),))


def facts(*cases: Case) -> SuiteFacts:
    return SuiteFacts(tests={c.test: c for c in cases}, ended=True, collected_digest="d")


def test_the_halves_are_all_tests() -> None:
    one, other = halves(facts(case("a"), case("b"), case("c")))
    assert (one.tests, other.tests) == (("b",), ("a", "c"))
    assert one.backwards and other.backwards  # of two tests in one half, too, each is run without the other before it


def test_a_test_that_fares_otherwise_alone_depends_on_a_state_unless_it_drew_other_numbers() -> None:
    whole = facts(case("a"), case("b", ("1", "2")))
    assert state_dependence(whole, [facts(case("a")), facts(case("b", ("3", "4")))]) == ""
    assert "a is passed" in state_dependence(whole, [facts(case("a", category="failed"))])
    assert state_dependence(whole, [facts(case("b", ("3", "4"), category="failed"))]) == ""


def test_a_chain_begins_with_the_last_test_that_leaves_the_stream_as_always() -> None:
    whole = facts(
        case("draws", ("0", "1")),
        case("sets", ("1", "S")),
        case("nothing", ("S", "S")),
        case("follows", ("S", "T")),
        case("follows too", ("T", "U")),
    )
    parts = [
        facts(case("sets", ("7", "S")), case("follows", ("8", "9"))),
        facts(case("draws", ("5", "6")), case("nothing", ("4", "4")), case("follows too", ("2", "3"))),
    ]
    assert chains(whole, parts) == (
        Chain("draws", (), ()),
        Chain("follows", ("sets", "nothing"), ("sets",)),
        Chain("follows too", ("sets", "nothing", "follows"), ("sets", "follows")),
    )


def test_what_is_drawn_along() -> None:
    found = (Chain("c", ("a", "b"), ("a",)), Chain("e", ("d",), ()))
    assert drawn_along(found, {"b"}) == {"a", "c"}
    assert drawn_along(found, {"c"}) == {"a", "c"}
    assert drawn_along(found, {"x"}) == set()


MOD = "import random\n\ndef f():\n    return random.random() < 2\n\ndef g():\n    return 1\n"
TESTS = """
import random
import mod

def test_seeds():
    random.seed(3)
    assert mod.f()

def test_g():
    assert mod.g() == 1

def test_follows():
    assert random.random() == FOLLOWED

def test_other():
    random.seed(4)
    assert random.random() < 2
"""


def test_a_mutant_is_seen_by_a_test_that_only_draws_the_numbers_that_it_left(tmp_path: Path) -> None:
    """f draws once; a mutant of f that doesn't draw fails a test that runs no mutated code. Plain pytest sees it."""
    stream = random.Random(3)
    stream.random()
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "mod.py").write_text(MOD)
    (root / "tests" / "test_it.py").write_text(TESTS.replace("FOLLOWED", repr(stream.random())))
    mutants = [
        mutant_of(root, "src/mod.py", "random.random() < 2", "True"),
        mutant_of(root, "src/mod.py", "return 1", "return 2"),
    ]
    column, events = run_one(target_of(root, "mod"), mutants, options_for(tmp_path))
    assert column.notes == ()
    assert "selection" in events.controls
    first, second = column.mutants
    assert [killer.test for killer in first.killers] == ["tests/test_it.py::test_follows"]
    assert first.counts == Counts(passed=3, failed=1)
    assert [killer.test for killer in second.killers] == ["tests/test_it.py::test_g"]
