"""The order of the tests where only the verdict is asked for, and when a kill in that order is sure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import mutant_of
from synthetic_record import PIN, synthetic_record

from fastlora_verify.harness.plan import KILLED, SURVIVED, VERDICT, Kill, Killer, MutantOutcome, RunOptions
from fastlora_verify.harness.records import kills_in
from fastlora_verify.harness.runner.dependence import Chain
from fastlora_verify.harness.runner.evidence import Case, SuiteFacts
from fastlora_verify.harness.runner.jobs import Chosen
from fastlora_verify.harness.runner.killers_first import KillersFirst
from fastlora_verify.mutations.base import Mutant

ALL = Chosen(("a", "b", "c", "d", "e"), "digest")
BASELINE = SuiteFacts(tests={test: Case(test, "passed", seconds=0.001) for test in ALL.tests}, ended=True)


@pytest.fixture
def mutant(tmp_path: Path) -> Mutant:
    (tmp_path / "mod.py").write_text("def f(x):\n    return x + 1\n")
    return mutant_of(tmp_path, "mod.py", "x + 1", "x + 2")


def ran(*tests: str) -> SuiteFacts:
    return SuiteFacts(tests={test: Case(test, "passed") for test in tests}, ended=True)


def killed_by(*tests: str, how: str = "assertion") -> MutantOutcome:
    return MutantOutcome("m", "c", KILLED, killers=tuple(Killer(t, "fails", "E", "", how) for t in tests))


def kill(of: Mutant, *tests: str, **fields: str) -> Kill:
    return replace(Kill("another", of.mutation, of.path, of.scope, tests), **fields)  # type: ignore[arg-type]


def order(mutant: Mutant, *kills: Kill, baseline: SuiteFacts = BASELINE, chains: tuple[Chain, ...] = ()) -> str:
    chosen = KillersFirst(baseline, chains, kills).ordered(mutant, ALL)
    assert chosen.as_listed
    return "".join(chosen.tests)


def test_what_killed_before_comes_first(mutant: Mutant) -> None:
    assert order(mutant) == "abcde"
    assert order(mutant, kill(mutant, "d")) == "dabce"
    assert order(mutant, kill(mutant, "d"), kill(mutant, "c"), kill(mutant, "c")) == "cdabe"
    assert order(mutant, kill(mutant, "gone")) == "abcde"


def test_a_kill_of_the_same_mutant_tells_most_then_of_the_same_code_then_of_the_same_mutation(mutant: Mutant) -> None:
    code = kill(mutant, "c", mutation="other")
    mutation = kill(mutant, "d", path="other.py", scope="other")
    itself = kill(mutant, "e", mutant=mutant.name)
    assert order(mutant, mutation, code, code, itself) == "ecdab"
    assert order(mutant, mutation, code) == "cdabe"
    assert order(mutant, kill(mutant, "d", path="other.py", mutation="other")) == "abcde"


def test_what_was_learned_counts(mutant: Mutant) -> None:
    first = KillersFirst(BASELINE, ())
    first.learn(mutant, MutantOutcome("m", "c", SURVIVED, killers=killed_by("c").killers))
    assert first.ordered(mutant, ALL).tests == ALL.tests
    first.learn(mutant, killed_by("e"))
    assert "".join(first.ordered(mutant, ALL).tests) == "eabcd"


def test_then_come_fast_tests(mutant: Mutant) -> None:
    slow = {"a": 2.0, "b": 0.3}
    baseline = replace(BASELINE, tests={t: Case(t, "passed", seconds=slow.get(t, 0.001)) for t in ALL.tests})
    assert order(mutant, baseline=baseline) == "cdeba"
    assert order(mutant, kill(mutant, "b"), baseline=baseline) == "bcdea"


def test_tests_that_draw_random_numbers_stay_behind_those_that_they_follow(mutant: Mutant) -> None:
    slow = {"a": 2.0}
    baseline = replace(BASELINE, tests={t: Case(t, "passed", seconds=slow.get(t, 0.001)) for t in ALL.tests})
    chains = (Chain("c", ("a", "b"), ("a",)),)
    assert order(mutant, kill(mutant, "c"), baseline=baseline, chains=chains) == "abcde"
    assert order(mutant, kill(mutant, "e"), baseline=baseline, chains=chains) == "eabcd"


def again(*ran_tests: str, killers: str, chains: tuple[Chain, ...] = (), tried: bool = False) -> str | None:
    """The order of the next run, "suite" for the suite's; None if the kill is sure."""
    first = KillersFirst(BASELINE, chains)
    listed = replace(ALL, tests=tuple("dabce"), as_listed=True)
    chosen = first.again(listed, ran(*ran_tests), killed_by(*killers), tried=tried)
    return None if chosen is None else "".join(chosen.tests) if chosen.as_listed else "suite"


def test_a_kill_is_sure_where_the_tests_up_to_it_are_in_the_suite_s_order() -> None:
    assert again("d", killers="d") is None
    assert again("d", "a", "b", killers="d") is None  # what ran later made nothing fail
    assert again("a", "c", "d", killers="cd") is None
    assert again("d", "a", "b", killers="b") == "bacde"
    assert again("d", "a", "b", killers="db") == "dabce"
    assert again(killers="a") is None  # a file that can't be collected: nothing ran


def test_the_second_time_the_suite_s_order_is_kept() -> None:
    assert again("b", "a", "c", killers="a", tried=True) == "suite"
    assert again("b", "c", killers="b", tried=True) is None


def test_a_kill_by_a_test_that_draws_random_numbers_is_sure_after_all_that_it_follows() -> None:
    chains = (Chain("c", ("a", "b"), ("a",)),)
    assert again("a", "b", "c", killers="c", chains=chains) is None
    assert again("b", "c", killers="c", chains=chains) == "suite"
    assert again("a", "b", "c", killers="a", chains=chains) is None
    assert again(killers="c", chains=chains) is None  # a file that can't be collected


def test_a_kill_in_the_suite_s_order_is_sure(mutant: Mutant) -> None:
    first = KillersFirst(BASELINE, ())
    assert first.again(ALL, ran("d", "a"), killed_by("a"), tried=False) is None
    assert first.again(None, ran("d", "a"), killed_by("a"), tried=False) is None
    assert KillersFirst.of(RunOptions(Path()), BASELINE, ()) is None
    assert KillersFirst.of(RunOptions(Path(), mode=VERDICT), BASELINE, ()) is not None


def test_only_tests_that_passed_end_a_run(mutant: Mutant) -> None:
    tests = {"a": Case("a", "passed"), "b": Case("b", "xfailed"), "c": Case("c", "skipped")}
    first = KillersFirst(SuiteFacts(tests=tests, ended=True), ())
    assert first.until(mutant, None).passed == ("a",)
    assert first.until(mutant, Chosen(("b", "c"), "")).passed == ()
    assert first.until(mutant, None).files == ("mod.py",)


def test_an_earlier_record_tells_what_killed() -> None:
    found = kills_in(synthetic_record())
    assert kills_in(None) == ()
    assert {one.mutant for one in found} <= {mutant.name for mutant in synthetic_record().mutants}
    assert found[0].tests[0].startswith(PIN)
    assert (found[0].path, found[0].scope) == ("kernels/linear.py", "patch.forward")


def test_a_survivor_s_tests_run_once_in_the_suite_s_order() -> None:
    first = KillersFirst(BASELINE, ())
    survived = replace(killed_by(), status=SURVIVED)
    listed = replace(ALL, tests=tuple("dabce"), as_listed=True)
    again = first.again(listed, ran(*"dabce"), survived, tried=False)
    assert again is not None
    assert (again.tests, again.as_listed) == (tuple("abcde"), False)
    assert first.again(replace(listed, tests=tuple("abcde")), ran(*"abcde"), survived, tried=False) is None
    assert first.again(again, ran(*"abcde"), survived, tried=True) is None
