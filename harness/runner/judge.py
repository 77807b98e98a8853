"""Facts to outcome. One pure, total table says what a change of one test means; the rest adds it up.

pytest's exit status is never asked: a suite whose tests all skip exits 0, and an import error inside a test
looks like a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from fastlora_verify.harness.plan import (
    BY_ASSERTION,
    BY_EXCEPTION,
    CRASH,
    KILLED,
    NOT_VIABLE,
    SURVIVED,
    TIMEOUT,
    Killer,
    MutantOutcome,
)
from fastlora_verify.harness.runner.evidence import (
    ABSENT,
    CATEGORIES,
    Case,
    Raised,
    SuiteFacts,
    category_of,
    collector_of,
)


@dataclass(frozen=True)
class Effect:
    """What a change of one test's category means."""

    word: str
    kills: bool = False  # a test that passed on the unmutated tree failed
    tells: bool = True  # worth a line in the report


SAME = Effect("same", tells=False)
FAILS = Effect("fails", kills=True)
ERRORS = Effect("errors", kills=True)
_FLAKY = {False: SAME, True: Effect("fares otherwise, as now and then without the mutant")}

_BECOMES = {
    "failed": "fails",
    "error": "errors",
    "xpassed": "passes unexpectedly",
    "xfailed": "fails as expected",
    "skipped": "skips",
    "passed": "passes",
    ABSENT: "vanished",
}
_WAS = {
    "failed": "failed before",
    "error": "errored before",
    "xpassed": "passed unexpectedly before",
    "xfailed": "expected to fail",
    "skipped": "skipped before",
    ABSENT: "new",
}


def _effect(before: str, after: str) -> Effect:
    if before == after:
        return SAME
    if before == "passed":
        return {"failed": FAILS, "error": ERRORS}.get(after, Effect(_BECOMES[after]))
    if (before, after) == ("xfailed", "failed"):
        return Effect("fails, expected to fail")  # a strict xfail that passes, or another exception than expected
    return Effect(f"{_BECOMES[after]}, {_WAS[before]}")


EFFECTS: dict[tuple[str, str], Effect] = {
    (before, after): _effect(before, after) for before, after in product((*CATEGORIES, ABSENT), repeat=2)
}
"""(category on the unmutated tree, category on the mutant) to effect: every pair there is.

Only a test that passed can kill, by failing or by an error. One that stops passing without failing (it skips,
is expected to fail, vanished) and one that begins to fail without having passed kill nothing: both are told.
"""


@dataclass(frozen=True)
class End:
    """How the process of a suite ended."""

    how: str  # "exit" | "timeout" | "memory" | "output" | "lost"
    code: int | None = None
    signal: int | None = None
    seconds: float = 0.0  # wall
    cpu_seconds: float = 0.0
    limit: str = ""  # the limit that was exceeded, in words
    output_tail: str = ""


@dataclass(frozen=True)
class Subject:
    """The mutant, as far as the judge needs to know it."""

    name: str
    paths: tuple[str, ...]  # of the files that it changes
    new_names: tuple[str, ...]


def judge(
    subject: Subject,
    column: str,
    baseline: SuiteFacts,
    facts: SuiteFacts,
    end: End,
    is_source: Callable[[str], bool],
) -> MutantOutcome:
    """The outcome of a mutant in a column. `is_source` tells the target's modules from its tests' files."""
    killers, differences = _changes(baseline, facts, is_source)
    status, reason = _status(subject, baseline, facts, end, killers)
    reached = [fact for fact in facts.tests.values() if fact.reached]
    return MutantOutcome(
        mutant=subject.name,
        column=column,
        status=status,
        how=_how(killers) if status == KILLED else "",
        reason=reason or _remark(status, differences),
        counts=facts.counts,
        reached=len(reached),
        triggered=sum(fact.triggered for fact in reached),
        reached_import=facts.reached_import,
        triggered_import=facts.triggered_import,
        killers=tuple(killers),
        reached_tests=tuple(
            (fact.test, fact.triggered) for fact in reached if status == SURVIVED and fact.category == "passed"
        ),
        skipped_here=tuple(fact.test for fact in facts.tests.values() if fact.gpu and fact.category == "skipped"),
        differences=tuple(differences),
        seconds=end.seconds,
        cpu_seconds=end.cpu_seconds,
    )


def _changes(
    baseline: SuiteFacts, facts: SuiteFacts, is_source: Callable[[str], bool]
) -> tuple[list[Killer], list[tuple[str, str]]]:
    killers: list[Killer] = []
    differences: list[tuple[str, str]] = []
    for test in dict.fromkeys([*baseline.tests, *facts.tests]):
        before, after = category_of(baseline, test), category_of(facts, test)
        effect = EFFECTS[before, after] if test not in baseline.flaky else _FLAKY[before != after]
        if effect.kills:
            killers.append(_killer(baseline.tests[test], effect, facts, is_source))
        elif effect.tells:
            differences.append((test, effect.word))
    return killers, differences


def _killer(was: Case, effect: Effect, facts: SuiteFacts, is_source: Callable[[str], bool]) -> Killer:
    fact = facts.tests.get(was.test) or collector_of(facts, was.test)
    raised = fact.raised if fact is not None else None
    if raised is None:
        reason = fact.reason if fact is not None else ""
        return Killer(was.test, effect.word, "", reason, BY_EXCEPTION, was.gpu)
    return Killer(was.test, effect.word, raised.type, raised.message, how_of(raised, is_source), was.gpu)


def how_of(raised: Raised, is_source: Callable[[str], bool]) -> str:
    """By assertion if a test judged: not where the target's own code raised below the test's last frame."""
    innermost = raised.frames[-1][0] if raised.frames else ""
    judged = raised.judges and not (innermost and is_source(innermost))
    return BY_ASSERTION if judged else BY_EXCEPTION


def _how(killers: Sequence[Killer]) -> str:
    return BY_ASSERTION if any(killer.how == BY_ASSERTION for killer in killers) else BY_EXCEPTION


def _status(
    subject: Subject, baseline: SuiteFacts, facts: SuiteFacts, end: End, killers: Sequence[Killer]
) -> tuple[str, str]:
    if end.how == "timeout":
        return TIMEOUT, f"{end.limit}{_during(facts)}"
    unviable = _unviable(subject, baseline, facts, killers)
    if unviable:
        return NOT_VIABLE, unviable
    crash = _crash(facts, end)
    if crash:
        return CRASH, crash
    return (KILLED, "") if killers else (SURVIVED, "")


def _unviable(subject: Subject, baseline: SuiteFacts, facts: SuiteFacts, killers: Sequence[Killer]) -> str:
    """Why the mutant was never the code under test; empty if it was."""
    failing_before = {path for path, _ in baseline.import_errors}
    for path, raised in facts.import_errors:
        if path in subject.paths and path not in failing_before:
            return f"the mutated module raises while it is imported: {_said(raised)}"
    causes = [_raised_by(killer.test, facts) for killer in killers]
    causes += [fact.raised for fact in facts.collected.values() if fact.category == "error"]
    causes += [facts.broken]
    raised_all = [raised for raised in causes if raised is not None]
    if not raised_all or len(raised_all) < len(killers):
        return ""
    if all(_at_import(raised, subject.paths) or _unbound(raised, subject) for raised in raised_all):
        return f"the mutant is broken, not wrong: {_said(raised_all[0])}"
    return ""


def _raised_by(test: str, facts: SuiteFacts) -> Raised | None:
    fact = facts.tests.get(test) or collector_of(facts, test)
    return fact.raised if fact is not None else None


def _at_import(raised: Raised, paths: Sequence[str]) -> bool:
    return any(frame in paths and function == "<module>" for frame, _, function in raised.frames)


def _unbound(raised: Raised, subject: Subject) -> bool:
    if "NameError" not in raised.mro:  # UnboundLocalError is one
        return False
    quoted = re.search(r"'([^']+)'", raised.message)
    name = raised.name or (quoted.group(1) if quoted else "")
    return name in subject.new_names


def _crash(facts: SuiteFacts, end: End) -> str:
    if end.how in ("memory", "output"):
        return f"{end.limit}{_during(facts)}"
    if end.how == "lost":
        return f"its process was lost{_during(facts)}"
    if end.signal is not None:
        return f"killed by signal {end.signal}{_during(facts)}"
    if facts.broken is not None:
        return f"pytest ended by {_BROKEN[facts.broken_by]}: {_said(facts.broken)}{_during(facts)}"
    if not facts.ended:
        return f"the process ended with status {end.code} before the tests did{_during(facts)}"
    if facts.status in (3, 4):
        return f"pytest could not run: {end.output_tail or f'status {facts.status}'}"
    return ""


_BROKEN = {"internal-error": "an internal error", "interrupt": "an interrupt", "escaped": "an exception"}


def _during(facts: SuiteFacts) -> str:
    return f", in {facts.running}" if facts.running else ""


def _said(raised: Raised) -> str:
    return f"{raised.type}: {raised.message}" if raised.message else raised.type


def _remark(status: str, differences: Sequence[tuple[str, str]]) -> str:
    """What a reader must know of a survivor that changed the suite without failing a test that passed."""
    if status != SURVIVED or not differences:
        return ""
    words: dict[str, int] = {}
    for _, word in differences:
        words[word] = words.get(word, 0) + 1
    told = "; ".join(f"{count} {'test' if count == 1 else 'tests'}: {word}" for word, count in words.items())
    return f"no test that passed fails, but the suite changed ({told})"


def is_green(facts: SuiteFacts) -> bool:
    """A whole run with a passed test and without a failure: what every control of an unmutated tree asks."""
    counts = facts.counts
    failed = bool(failing(facts)) if facts.flaky else counts.failed + counts.errors > 0
    return facts.ended and facts.broken is None and counts.passed > 0 and not failed


def failing(facts: SuiteFacts) -> list[str]:
    """Tests, and collectors, with a failure or an error, the flaky ones left out."""
    return [test for test, category in outcomes(facts).items() if category in ("failed", "error")]


def outcomes(facts: SuiteFacts) -> dict[str, str]:
    """Every test, and every collector that failed or skipped itself, with its category; the flaky ones left out."""
    every: Iterable[Case] = [*facts.tests.values(), *facts.collected.values()]
    return {fact.test: fact.category for fact in every if fact.test not in facts.flaky}
