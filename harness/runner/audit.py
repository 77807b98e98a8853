"""Mutants once more, as a plain pytest in a new interpreter on an edited copy: no plugin, no probe, no fork.

What pytest prints and what its JUnit file lists is compared with the record. Any difference is a fault of
ours, or a suite that doesn't give the same answer twice.
"""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path

from fastlora_verify.harness.plan import (
    KILLED,
    SURVIVED,
    AuditDifference,
    Counts,
    MutantOutcome,
)

_WORDS = {
    "passed": "passed",
    "failed": "failed",
    "error": "errors",
    "errors": "errors",
    "skipped": "skipped",
    "xfailed": "xfailed",
    "xpassed": "xpassed",
}
_LAST_LINE = re.compile(r"^=*\s*(no tests ran|(?:\d+ [a-z ]+?(?:, )?)+) in \d+\.\d+s")

Key = tuple[str, str]  # classname and name of a JUnit test case


def chosen(outcomes: Iterable[MutantOutcome], count: int, seed: int) -> list[str]:
    """Names to audit: every survivor and `count` more at random, in the record's order."""
    judged = [outcome for outcome in outcomes if outcome.status in (KILLED, SURVIVED)]
    survivors = {outcome.mutant for outcome in judged if outcome.status == SURVIVED}
    rest = [outcome.mutant for outcome in judged if outcome.mutant not in survivors]
    picked = set(random.Random(seed).sample(rest, min(count, len(rest)))) if count else set()
    return [outcome.mutant for outcome in judged if outcome.mutant in survivors | picked]


def difference(
    outcome: MutantOutcome, output: str, junit: Path, problem: str, flaky: Iterable[str] = ()
) -> AuditDifference | None:
    """What the plain run says otherwise; `problem` is how its process ended, if not by itself."""
    recorded = f"{outcome.status} (stopped)" if outcome.stopped else told(outcome.counts)
    if problem:
        return AuditDifference(outcome.mutant, outcome.column, recorded, problem)
    counts = printed_counts(output)
    if counts is None:
        return AuditDifference(outcome.mutant, outcome.column, recorded, "pytest printed no last line")
    unsteady = {junit_key(test) for test in flaky}
    if counts != outcome.counts and not (outcome.stopped or unsteady):
        return AuditDifference(outcome.mutant, outcome.column, recorded, told(counts))
    failing = failing_cases(junit)
    missing = [killer.test for killer in outcome.killers if not _is_among(killer.test, failing)]
    known = failing if outcome.stopped else {junit_key(test) for test in _may_fail(outcome)}
    more = [" ".join(key) for key in sorted(failing - unsteady) if key not in known]
    if not missing and not more:
        return None
    return AuditDifference(
        outcome.mutant,
        outcome.column,
        f"{recorded}; killed by {_some(missing)}" if missing else recorded,
        f"{told(counts)}; fails: {_some(more)}" if more else f"{told(counts)}; these pass",
    )


def printed_counts(output: str) -> Counts | None:
    """The numbers of pytest's last line, None without one (`-qq`)."""
    for line in reversed(output.splitlines()):
        match = _LAST_LINE.match(line.strip())
        if match:
            shown: dict[str, int] = {}
            for part in match.group(1).split(", "):
                number, _, word = part.strip().partition(" ")
                if word in _WORDS:
                    shown[_WORDS[word]] = int(number)
            return Counts(**shown)
    return None


def failing_cases(junit: Path) -> set[Key]:
    """The test cases with a failure or an error."""
    try:
        root = ET.parse(junit).getroot()
    except (OSError, ET.ParseError):
        return set()
    return {
        (case.get("classname", ""), case.get("name", ""))
        for case in root.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    }


def junit_key(test: str) -> Key:
    """A node id as pytest's JUnit writer spells it."""
    path, bracket, parameters = test.partition("[")
    names = path.split("::")
    names[0] = re.sub(r"\.py$", "", names[0].replace("/", "."))
    names[-1] += bracket + parameters
    return ".".join(names[:-1]), names[-1]


def told(counts: Counts) -> str:
    """Counts in pytest's words and order."""
    shown = [
        (counts.failed, "failed"),
        (counts.passed, "passed"),
        (counts.skipped, "skipped"),
        (counts.xfailed, "xfailed"),
        (counts.xpassed, "xpassed"),
        (counts.errors, "error" if counts.errors == 1 else "errors"),
    ]
    return ", ".join(f"{number} {word}" for number, word in shown if number) or "no tests ran"


def _is_among(test: str, failing: set[Key]) -> bool:
    """Itself, or the module that could not be collected."""
    return junit_key(test) in failing or junit_key(test.partition("::")[0]) in failing


def _may_fail(outcome: MutantOutcome) -> list[str]:
    tests = [killer.test for killer in outcome.killers] + [test for test, _ in outcome.differences]
    return tests + [test.partition("::")[0] for test in tests]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
