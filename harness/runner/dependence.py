"""Tests that depend on others: by a state that those leave, or by a random stream that they draw from.

A control runs each half of the tests without the other and the last first, so that no test finds there what one
before it leaves, and every test from random states of its own. A test that fares otherwise there depends on a state,
and then every test is run for every mutant. A test that only draws from where the tests before it left off is run
together with these, see `Chain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastlora_verify.harness.runner.evidence import Case, SuiteFacts
from fastlora_verify.harness.runner.jobs import Chosen

NEUTRAL, SETTER, FOLLOWER = "draws nothing", "ends where it always does", "ends where its beginning decides"


@dataclass(frozen=True)
class Chain:
    """A test that draws from a random stream, and those before it, from the last that leaves the stream as always."""

    test: str
    others: tuple[str, ...]  # in their order: any of them may change what `test` draws
    drawing: tuple[str, ...]  # those that move the stream: without them `test` draws something else


def halves(facts: SuiteFacts) -> tuple[Chosen, Chosen]:
    """Every second test, and the others, from the last to the first: none after a test that it comes after else."""
    names = tuple(facts.tests)
    digest = facts.collected_digest
    return Chosen(names[1::2], digest, backwards=True), Chosen(names[::2], digest, backwards=True)


def state_dependence(whole: SuiteFacts, parts: Sequence[SuiteFacts]) -> str:
    """The first test that fares otherwise without the others, in words; empty if none does.

    One that draws from a random stream may: it drew other numbers there.
    """
    for part in parts:
        for name, case in part.tests.items():
            other = whole.tests[name]
            if name not in whole.flaky and case.category != other.category and FOLLOWER not in _kinds(other, case):
                return f"{name} is {other.category} after the tests before it and {case.category} without them"
    return ""


def chains(whole: SuiteFacts, parts: Sequence[SuiteFacts]) -> tuple[Chain, ...]:
    """Every test that draws from a random stream which it has not set, with those that it depends on."""
    alone = {name: case for part in parts for name, case in part.tests.items()}
    kinds = {name: _kinds(case, alone[name]) if name in alone else () for name, case in whole.tests.items()}
    streams = max(map(len, kinds.values()), default=0)
    return tuple(chain for stream in range(streams) for chain in _chains_of(stream, kinds))


def _chains_of(stream: int, kinds: dict[str, tuple[str, ...]]) -> Iterable[Chain]:
    others: list[str] = []
    drawing: list[str] = []
    for name, of_all in kinds.items():
        kind = of_all[stream] if stream < len(of_all) else FOLLOWER
        if kind == SETTER:
            others, drawing = [], []
        if kind == FOLLOWER:
            yield Chain(name, tuple(others), tuple(drawing))
        others.append(name)
        if kind != NEUTRAL:
            drawing.append(name)


def _kinds(here: Case, there: Case) -> tuple[str, ...]:
    """What a test does to each stream, told by two runs of it that began in different states."""
    return tuple(_kind(one, two) for one, two in zip(here.streams, there.streams, strict=False))


def _kind(here: tuple[str, str], there: tuple[str, str]) -> str:
    if here[0] == here[1] and there[0] == there[1]:
        return NEUTRAL
    return SETTER if here[1] == there[1] and here[0] != there[0] else FOLLOWER


def drawn_along(found: Sequence[Chain], tests: set[str]) -> set[str]:
    """What must run beside `tests`: those whose numbers they may change, and all that these numbers depend on."""
    more: set[str] = set()
    for chain in found:
        if chain.test in tests or not tests.isdisjoint(chain.others):
            more |= {chain.test, *chain.drawing}
    return more
