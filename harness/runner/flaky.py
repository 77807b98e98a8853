"""Tests that fail now and then without any mutation: named, and their failures kill nothing.

Looked for where a control is red by a few tests: the suite is run once more, and those tests alone several times. A
test is flaky if two runs of the same kind differ in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fastlora_verify.harness.runner.evidence import SuiteFacts, category_of
from fastlora_verify.harness.runner.jobs import Chosen

MOST = 10  # tests: a suite that is red in more of them is no flaky one
_ALONE = 6  # runs: of a test that fails every second time, 1 in 32 times all are alike

Run = Callable[[Sequence[Chosen | None]], Sequence[SuiteFacts]]
"""Runs the unmutated suite for each that is given: those tests, or all of them."""


def flaky_among(suspects: Iterable[str], first: SuiteFacts, run: Run) -> frozenset[str]:
    """Those of `suspects` that are flaky. `first` is a run of the whole suite, in a child as `run` starts them."""
    tests = [test for test in first.tests if test in set(suspects)]
    if not 0 < len(tests) <= MOST:
        return frozenset()
    (again,) = run([None])
    found = {test for test in tests if category_of(again, test) != category_of(first, test)}
    rest = Chosen(tuple(test for test in tests if test not in found), first.collected_digest)
    if rest.tests:
        alone = run([rest] * _ALONE)
        found |= {test for test in rest.tests if len({category_of(facts, test) for facts in alone}) > 1}
    return frozenset(found)


def said(flaky: Iterable[str]) -> str:
    """The note that names them."""
    names = sorted(flaky)
    head = "1 test fails" if len(names) == 1 else f"{len(names)} tests fail"
    return f"{head} now and then without any mutation, so no failure there kills a mutant: {', '.join(names)}"
