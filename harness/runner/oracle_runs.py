"""The oracles in a column: asked once of the unmutated kernels, then of each mutant that the tests have run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastlora_verify.harness.plan import CRASH, TIMEOUT, Events, MutantOutcome, RunOptions
from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.drift import compared, has_figures
from fastlora_verify.harness.runner.evidence import oracle_facts
from fastlora_verify.harness.runner.executor import Executor
from fastlora_verify.harness.runner.pool import Stage, StageResult, Task
from fastlora_verify.harness.runner.warm import Limits

_WALL = 1800.0  # s, for the unmutated kernels
_FLOOR = 120.0  # s, for a mutant at the least


def unmutated_answers(
    pool: Executor, options: RunOptions, events: Events
) -> tuple[tuple[Mapping[str, Any], ...], Limits | None]:
    """The answers on the unmutated kernels, and the limits that they set for mutants; None: none is asked about."""
    if not options.oracles:
        return (), None
    stage = Stage(jobs.ORACLE, Limits(_WALL, _WALL, options.memory_limit))
    found: list[StageResult] = []
    pool.run([Task("oracles", (stage,))], lambda _, results: found.extend(results))
    facts = oracle_facts(found[0].lines)
    if not facts.ended:
        why = f"{facts.broken.type}: {facts.broken.message}" if facts.broken else found[0].end.how
        events.note(f"the oracles did not run on the unmutated kernels ({why})")
        return facts.answers, None
    if not any(map(has_figures, facts.answers)):
        why = next((str(answer["summary"]) for answer in facts.answers), "no kernel was asked about")
        events.note(f"the oracles say nothing of the unmutated kernels, so none is asked of a mutant ({why})")
        return facts.answers, None
    seconds = max(_FLOOR, options.wall_factor * found[0].end.seconds)
    return facts.answers, Limits(seconds, seconds, options.memory_limit)


def with_answers(outcome: MutantOutcome, result: StageResult, unmutated: Sequence[Mapping[str, Any]]) -> MutantOutcome:
    """The outcome with the oracles' answers, compared with those on the unmutated kernels where they are given."""
    facts = oracle_facts(result.lines)
    status = "ran" if facts.ended else {"timeout": TIMEOUT}.get(result.end.how, CRASH)
    answers = compared(unmutated, facts.answers) if unmutated else facts.answers
    if facts.broken is not None:
        text = f"{facts.broken.type}: {facts.broken.message}"
        answers = (*answers, {"oracle": "", "kernel": "", "ok": None, "summary": text, "error": text})
    return replace(outcome, oracles=answers, oracle_status=status)
