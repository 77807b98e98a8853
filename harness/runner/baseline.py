"""The unmutated suite of a column, as what it hands back."""

from __future__ import annotations

from fastlora_verify.harness.plan import Baseline
from fastlora_verify.harness.runner.evidence import SuiteFacts
from fastlora_verify.harness.runner.judge import End
from fastlora_verify.harness.runner.printed import printed_by


def baseline_of(facts: SuiteFacts, end: End) -> Baseline:
    """Counts, times, what was skipped and what passing tests printed."""
    skipped = [fact for fact in facts.tests.values() if fact.category == "skipped"]
    printed, printed_note = printed_by(facts)
    return Baseline(
        counts=facts.counts,
        seconds=end.seconds,
        cpu_seconds=end.cpu_seconds,
        skips=tuple((fact.test, fact.reason) for fact in skipped),
        skipped_here=tuple(fact.test for fact in skipped if fact.gpu),
        printed=printed,
        printed_note=printed_note,
    )
