"""Why an unmutated suite is not green, and where two runs of it differ: in words, empty where there is nothing."""

from __future__ import annotations

from fastlora_verify.harness.runner.audit import told
from fastlora_verify.harness.runner.evidence import SuiteFacts
from fastlora_verify.harness.runner.judge import failing, is_green
from fastlora_verify.harness.runner.pool import StageResult
from fastlora_verify.reports.escape import one_line

_NO_TESTS = 5  # pytest's exit status


def first_difference(left: dict[str, str], right: dict[str, str]) -> str:
    """The first test whose category differs, in words; empty if none does."""
    for test in dict.fromkeys([*left, *right]):
        here, there = left.get(test, "absent"), right.get(test, "absent")
        if here != there:
            return f"{test} is {here} in one and {there} in the other"
    return ""


def is_empty(facts: SuiteFacts) -> bool:
    """A whole run that found nothing, neither a test nor a file that failed or skipped itself; no usage error."""
    found = facts.tests or facts.collected
    return facts.ended and facts.broken is None and not found and facts.status in (0, _NO_TESTS)


def problem_of(facts: SuiteFacts, result: StageResult) -> str:
    """Why an unmutated suite isn't green; empty if it is."""
    if result.end.how != "exit" or not facts.ended:
        return f"the suite did not end: {how_ended(result)}"
    if is_green(facts):
        return ""
    failed = failing(facts)
    if failed:
        case = facts.tests.get(failed[0]) or facts.collected[failed[0]]
        why = f" ({case.raised.type}: {one_line(case.raised.message, 160)})" if case.raised is not None else ""
        return f"{told(facts.counts)}; the first: {failed[0]}{why}"
    if facts.broken is not None:
        return f"pytest broke: {facts.broken.type}: {facts.broken.message}"
    if facts.counts.skipped:
        return f"no test passed ({told(facts.counts)})"
    return f"no test ran: {result.end.output_tail}"


def how_ended(result: StageResult) -> str:
    """How a run came to another end than its own: the limit that it hit, its signal or its status."""
    end = result.end
    how = end.limit or (f"signal {end.signal}" if end.signal is not None else f"status {end.code}")
    return f"{how}; {end.output_tail}" if end.output_tail else how
