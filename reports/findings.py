"""What a run record amounts to: which mutants are findings, and of what sort. No text, no Markdown.

Every mutant belongs to exactly one class; the classes stand in the order in which a reader needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import Enum

from fastlora_verify.reports.record import MutantRecord, OracleRecord, ReachedTest, Result, RunRecord
from fastlora_verify.reports.rounds import lost


class Class(Enum):
    """What became of a mutant over all columns."""

    SURVIVOR = "survives"
    ALLOWED = "allowed survivor"
    NO_VERDICT = "no verdict"
    BY_EXCEPTION = "killed by exception only"
    KILLED = "killed"


@dataclass(frozen=True)
class Classified:
    """A record's mutants by class, in the record's order; of the survivors those lost or seen come first."""

    survivors: tuple[MutantRecord, ...]
    allowed: tuple[MutantRecord, ...]
    no_verdict: tuple[MutantRecord, ...]
    by_exception: tuple[MutantRecord, ...]
    killed: tuple[MutantRecord, ...]


def classify(record: RunRecord) -> Classified:
    """Every mutant of the record in its class."""
    lists: dict[Class, list[MutantRecord]] = {kind: [] for kind in Class}
    for mutant in record.mutants:
        lists[class_of(mutant)].append(mutant)
    lost_now = {change.mutant.name for change in lost(record)}
    lists[Class.SURVIVOR].sort(key=lambda mutant: (mutant.name not in lost_now, *_urgency(mutant)))
    return Classified(*(tuple(lists[kind]) for kind in Class))


def class_of(mutant: MutantRecord) -> Class:
    """The class of one mutant.

    It survives if it did in some column of the tree under review and was killed in none of those: what a CPU suite
    can't show, a card may. A kill by assertion in one column is enough to say that the tests assert something about it.
    """
    if is_survivor(mutant):
        return Class.SURVIVOR if mutant.allowed is None else Class.ALLOWED
    results = deciding(mutant)
    if not any(result.status == "killed" for result in results) or any(map(is_unexplained, results)):
        return Class.NO_VERDICT
    if all(result.how == "exception" for result in results if result.status == "killed"):
        return Class.BY_EXCEPTION
    return Class.KILLED


def class_word(mutant: MutantRecord) -> str:
    """The class in words; where the tests were stopped, an assertion may have followed the exception."""
    found = class_of(mutant)
    return "killed by exception so far" if found is Class.BY_EXCEPTION and is_stopped(mutant) else found.value


def is_stopped(mutant: MutantRecord) -> bool:
    """True where the tests were not run to the end in a column that decides: how the mutant dies is told in part."""
    return any(result.stopped for result in deciding(mutant))


def is_survivor(mutant: MutantRecord) -> bool:
    """True if the mutant survived somewhere and was killed nowhere, allowed or not."""
    statuses = {result.status for result in deciding(mutant)}
    return "survived" in statuses and "killed" not in statuses


def is_killed(mutant: MutantRecord) -> bool:
    """True if the mutant was killed in some column that decides."""
    return any(result.status == "killed" for result in deciding(mutant))


def deciding(mutant: MutantRecord) -> list[Result]:
    """The results that decide: those of the tree under review; those beside it where only these have the mutant."""
    results = list(mutant.results.values())
    own = [result for result in results if not result.beside]
    return own if any(result.status != "no-site" for result in own) else results


def noticed_beside(mutant: MutantRecord) -> list[str]:
    """Ids of the columns beside the tree under review that kill what survives there."""
    if not is_survivor(mutant):
        return []
    return [column for column, result in mutant.results.items() if result.beside and result.status == "killed"]


def is_unexplained(result: Result) -> bool:
    """True for an outcome that says nothing about the tests, or a kill without the mutant having run."""
    if result.status in ("timeout", "crash", "not-viable"):
        return True
    return result.status == "killed" and not result.reached and not result.reached_import


def sightings(mutant: MutantRecord) -> tuple[OracleRecord, ...]:
    """The oracles' answers that are against the mutant."""
    return tuple(answer for answer in mutant.oracles if answer.ok is False)


def discounted(record: RunRecord) -> RunRecord:
    """The record without what an oracle says of mutants where it objects to the unmutated kernel as well."""
    red = {(answer.oracle, answer.kernel, answer.column) for answer in record.oracles if answer.ok is False}
    if not red:
        return record

    def heard(answer: OracleRecord) -> OracleRecord:
        if answer.compared or (answer.oracle, answer.kernel, answer.column) not in red:
            return answer
        return replace(answer, ok=None, summary="objects to the unmutated kernel, too")

    mutants = (replace(mutant, oracles=tuple(map(heard, mutant.oracles))) for mutant in record.mutants)
    return replace(record, mutants=tuple(mutants))


def split_columns(mutant: MutantRecord) -> tuple[list[str], list[str]]:
    """Ids of the columns that killed the mutant and of those in which it survived."""
    killed = [column for column, result in mutant.results.items() if result.status == "killed"]
    return killed, [column for column, result in mutant.results.items() if result.status == "survived"]


def nearest_test(mutant: MutantRecord, record: RunRecord) -> ReachedTest | None:
    """The test to start from when a pin is written: most like the mutant among those that run its scope.

    Where the record names no test that reached this mutant, killers of other mutants in the same scope
    stand in: they run it too, so much is known; whether they run the changed line is not.
    """
    reached = {test.test: test for result in mutant.results.values() for test in result.reached_tests}
    if not reached:
        siblings = (other for other in record.mutants if (other.file, other.scope) == (mutant.file, mutant.scope))
        reached = {test: ReachedTest(test=test, triggered=False) for test in _killers(siblings)}
    if not reached:
        return None
    words = _words(f"{mutant.mutation} {mutant.scope} {mutant.gist} {' '.join(mutant.kernels)}")
    return max(sorted(reached.values(), key=lambda test: test.test), key=lambda test: _likeness(test, words))


def _likeness(test: ReachedTest, words: list[str]) -> tuple[int, bool, float]:
    own = _words(test.test)
    return (
        len(set(own) & set(words)),
        test.triggered,
        SequenceMatcher(None, " ".join(own), " ".join(words)).ratio(),
    )


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]+|\d+", text.lower()) if word not in ("test", "tests", "py")]


def _killers(mutants: Iterable[MutantRecord]) -> list[str]:
    return [k.test for mutant in mutants for result in mutant.results.values() for k in result.killers]


def _urgency(mutant: MutantRecord) -> tuple[bool, bool, str]:
    triggered = any(result.triggered for result in mutant.results.values())
    return not sightings(mutant), not triggered, mutant.name
