"""From what the children told to the record of a sweep's arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fastlora_verify.harness.runner.evidence import ABSENT, Case, SuiteFacts, suite_facts
from fastlora_verify.harness.runner.pool import StageResult
from fastlora_verify.harness.sweep.find import Item
from fastlora_verify.harness.sweep.labelled import distributions, highest
from fastlora_verify.reports.record import Section
from fastlora_verify.reports.sweep_record import Arm, Measured, Run, Way

NOT_RUN = "not-run"
_PASSING = ("passed", "xpassed")

_TEXT = 1000  # characters of a failure's text that are kept
_HELD = 6  # assertions of a run
_MEASURED = ("value", "limit", "unit", "least", "close", "source")


def run_at(number: int, arms: Sequence[str], result: StageResult, *, edited: bool) -> dict[str, Run]:
    """What became of each arm in one process."""
    facts = suite_facts(result.lines, str(result.copy))
    chosen = {arm: test for line in result.lines if line["event"] == "chosen" for test, arm in line["arms"].items()}
    swept = {line["arm"]: line for line in result.lines if line["event"] == "swept"}
    runs = {}
    for arm in arms:
        case = facts.tests.get(chosen.get(arm, ""))
        if case is None:
            runs[arm] = _unfinished(number, chosen.get(arm, ""), facts, result)
        elif not swept.get(arm, {}).get("applied", True):
            runs[arm] = Run(number=number, outcome=NOT_RUN, message="this pytest did not give the test the seed")
        else:
            runs[arm] = _run(number, case, swept.get(arm, {}), edited=edited)
    return runs


def arms_swept(
    items: Sequence[Item], runs: Sequence[Mapping[str, Run]], swept: Sequence[Mapping[str, Any]], way: str
) -> tuple[Arm, ...]:
    """The arms of `items` with their runs, in the order of both; without a `way`, each arm's own is told."""
    told = []
    firsts: dict[str, Item] = {}
    for item in items:
        firsts.setdefault(item.arm, item)
    for first in firsts.values():
        own = tuple(run[first.arm] for run in runs)
        given = dict.fromkeys(seed for line in swept if line["arm"] == first.arm for seed in line["given"])
        passing = [(run.number, [section.text for section in run.printed]) for run in own if run.outcome in _PASSING]
        spread = distributions(passing)
        told.append(
            Arm(
                test=first.test,
                label=first.label,
                way=cast(Way, way or _way(first, list(given))),
                argument=first.argument,
                given=tuple(given)[:20],
                runs=tuple(_with_highest(run, [one.label for one in spread]) for run in own),
                printed=spread,
            )
        )
    return tuple(told)


def _with_highest(run: Run, labels: Sequence[str]) -> Run:
    value, label = highest([section.text for section in run.printed], labels)
    return replace(run, highest=value, highest_label=label)


def _way(item: Item, given: Sequence[str]) -> str:
    if item.argument:
        return "argument"
    return "shift" if given else "streams"


def _run(number: int, case: Case, swept: Mapping[str, Any], *, edited: bool) -> Run:
    text = swept.get("text") or (case.raised.message if case.raised else "")
    return Run(
        number=number,
        outcome=case.category if case.category != ABSENT else NOT_RUN,
        seconds=case.seconds,
        measured=_measured(case, swept),
        held=_held(swept),
        exception=case.raised.type if case.raised else "",
        message=text[:_TEXT] or case.reason,
        printed=tuple(Section(title=title, text=text) for title, text in case.printed),
        edited_line_ran=case.triggered if edited else None,
    )


def _measured(case: Case, swept: Mapping[str, Any]) -> Measured | None:
    """The figure of the failure, or the comparison that came nearest to its limit.

    Of those that held, comparisons of whole numbers (shapes, counts) are told only for want of others.
    """
    if case.raised is None:
        return next(iter(_held(swept)), None)
    failure = swept.get("failure")
    return _figure(failure) if failure else None


def _held(swept: Mapping[str, Any]) -> tuple[Measured, ...]:
    facts = swept.get("asserted", ())
    measured = [fact for fact in facts if not fact["exact"]]
    return tuple(map(_figure, (measured or facts)[:_HELD]))


def _figure(fact: Mapping[str, Any]) -> Measured:
    return Measured(**{name: fact[name] for name in _MEASURED if name in fact})


def _unfinished(number: int, test: str, facts: SuiteFacts, result: StageResult) -> Run:
    """An arm that its process did not come to an end with."""
    end = result.end
    failed = next((case.raised for case in facts.collected.values() if case.raised is not None), None)
    if failed is not None:
        return Run(number=number, outcome="error", exception=failed.type, message=failed.message)
    if end.how == "exit" and facts.ended:
        return Run(number=number, outcome=NOT_RUN, message=facts.broken.message if facts.broken else end.output_tail)
    if test and facts.running and facts.running != test:
        return Run(number=number, outcome=NOT_RUN, message=f"the process ended in {facts.running}")
    said = end.limit or (f"signal {end.signal}" if end.signal is not None else f"status {end.code}")
    return Run(number=number, outcome="timeout" if end.how == "timeout" else "crash", message=said, seconds=end.seconds)
