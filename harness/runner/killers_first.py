"""`--mode verdict`: which tests come first, and whether a kill there is one in the suite's order, too.

First come tests that killed before, by what they killed; then the fast ones. Such an order is only a guess at what
kills soonest, and on a mutant a test may leave what makes another fail. So a kill counts only where the tests that
ran up to it are in the suite's order, and where a test that draws random numbers ran after all that it follows;
else these tests are run again, the killer first, at last in the suite's order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log2

from fastlora_verify.harness.plan import (
    BY_ASSERTION,
    KILLED,
    REMEMBERED,
    SURVIVED,
    VERDICT,
    Kill,
    MutantOutcome,
    RunOptions,
)
from fastlora_verify.harness.runner.dependence import Chain
from fastlora_verify.harness.runner.evidence import SuiteFacts
from fastlora_verify.harness.runner.jobs import Chosen, Until
from fastlora_verify.mutations.base import Mutant

MORE = 3  # tests that are run after a kill by exception, for one by assertion
_NEXT = 4  # killers after the best that come before fast tests
_SAME, _BOTH, _SCOPE, _MUTATION, _FILE = 64.0, 8.0, 4.0, 2.0, 1.0  # how much a kill says of a mutant
_COST = 0.02  # s, added to a test's time
_FAST = 0.01  # s: tests that take less are equally fast


class KillersFirst:
    """What is known of a column's tests, and what they killed so far."""

    def __init__(self, baseline: SuiteFacts, chains: Sequence[Chain], kills: Iterable[Kill] = ()) -> None:
        self._passed = {test for test, case in baseline.tests.items() if case.category == "passed"} - baseline.flaky
        self._places = {test: place for place, test in enumerate(baseline.tests)}
        self._seconds = {test: case.seconds for test, case in baseline.tests.items()}
        self._followed: dict[str, set[str]] = defaultdict(set)
        for chain in chains:
            self._followed[chain.test] |= set(chain.others)
        self._kills: list[Kill] = list(kills)

    def learn(self, mutant: Mutant, outcome: MutantOutcome) -> None:
        """Takes note of what killed a mutant."""
        if outcome.status == KILLED:
            ranked = sorted(outcome.killers, key=lambda killer: killer.how != BY_ASSERTION)
            tests = tuple(killer.test for killer in ranked[:REMEMBERED])
            self._kills.append(Kill(mutant.name, mutant.mutation, mutant.path, mutant.scope, tests))

    @classmethod
    def of(cls, options: RunOptions, baseline: SuiteFacts, chains: Sequence[Chain]) -> KillersFirst | None:
        """Of a column that is asked for the verdict alone; None of any other."""
        return cls(baseline, chains, options.kills) if options.mode == VERDICT else None

    def until(self, mutant: Mutant, chosen: Chosen | None) -> Until:
        """When the mutant's run may end; `chosen` None: all tests are run."""
        tests = chosen.tests if chosen is not None else self._places
        passed = tuple(test for test in tests if test in self._passed)
        return Until(passed, tuple(change.path for change in mutant.changes), mutant.new_names, MORE)

    def ordered(self, mutant: Mutant, chosen: Chosen) -> Chosen:
        """The tests in the order in which they are run."""
        free = {test for test in chosen.tests if test not in self._followed}
        known = self._killers(mutant, free)
        leading = [known[:1], self._in_order(known[1 : 1 + _NEXT])]
        led = {test for part in leading for test in part}
        rest = [test for test in chosen.tests if test not in led]
        if len(free) == len(chosen.tests):
            rest.sort(key=self._pace)  # stable: equally fast ones stay in the suite's order
        return replace(chosen, tests=(*leading[0], *leading[1], *rest), as_listed=True)

    def again(self, chosen: Chosen | None, facts: SuiteFacts, outcome: MutantOutcome, *, tried: bool) -> Chosen | None:
        """The order in which the tests must run once more to be sure of the outcome; None: it is sure.

        `tried`: they did so already, now only the suite's order will do.
        """
        if chosen is None or not chosen.as_listed or outcome.status not in (KILLED, SURVIVED):
            return None
        if outcome.status == SURVIVED:
            ordered = tuple(self._in_order(chosen.tests))
            return replace(chosen, tests=ordered, as_listed=False) if ordered != chosen.tests else None
        killers = [killer.test for killer in outcome.killers]
        if self._is_sure(list(facts.tests), killers, set(chosen.tests)):
            return None
        ordered = tuple(self._in_order(chosen.tests))
        first = next(test for test in facts.tests if test in killers)
        if first in self._followed or tried:
            return replace(chosen, tests=ordered, as_listed=False)
        return replace(chosen, tests=(first, *(test for test in ordered if test != first)))

    def _is_sure(self, ran: Sequence[str], killers: Sequence[str], chosen: set[str]) -> bool:
        """Whether the killers ran as they do in the suite's order, the tests left out that others don't need."""
        places = [place for place, test in enumerate(ran) if test in killers]
        if len(places) < len(killers):  # a file that could not be collected: nothing ran
            return True
        before = ran[: max(places, default=-1) + 1]
        if before != self._in_order(before):
            return False
        return all(self._followed[test] & chosen <= set(before) for test in killers if test in self._followed)

    def _killers(self, mutant: Mutant, free: set[str]) -> list[str]:
        """The tests that killed before, the likeliest for their time first."""
        weights: dict[str, float] = defaultdict(float)
        for kill in self._kills:
            for rank, test in enumerate(kill.tests):
                if test in free:
                    weights[test] += _likeness(kill, mutant) / (1 + rank)
        found = [test for test in weights if weights[test]]
        return sorted(found, key=lambda test: -weights[test] / (_COST + self._seconds.get(test, 0.0)))

    def _pace(self, test: str) -> int:
        return int(2 * max(0.0, log2(self._seconds.get(test, 0.0) / _FAST + 1e-9)))

    def _in_order(self, tests: Iterable[str]) -> list[str]:
        return sorted(tests, key=lambda test: self._places.get(test, len(self._places)))


def _likeness(kill: Kill, mutant: Mutant) -> float:
    if kill.mutant == mutant.name:
        return _SAME
    if (kill.path, kill.scope) == (mutant.path, mutant.scope):
        return _BOTH if kill.mutation == mutant.mutation else _SCOPE
    if kill.mutation == mutant.mutation:
        return _MUTATION
    return _FILE / 2 if kill.path == mutant.path else 0.0
