"""Mutants run and judged in a column: what is run of each, what is run again, and when its outcome holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastlora_verify.harness.child.harm import OWN
from fastlora_verify.harness.plan import CRASH, KILLED, NOT_VIABLE, SURVIVED, TIMEOUT, MutantOutcome, RunOptions
from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.controls import Controlled
from fastlora_verify.harness.runner.evidence import SuiteFacts, suite_facts
from fastlora_verify.harness.runner.executor import Executor
from fastlora_verify.harness.runner.jobs import Chosen, Probed
from fastlora_verify.harness.runner.judge import Subject, judge
from fastlora_verify.harness.runner.killers_first import KillersFirst
from fastlora_verify.harness.runner.limits import limits_of
from fastlora_verify.harness.runner.oracle_runs import with_answers
from fastlora_verify.harness.runner.pool import Stage, StageResult, Task
from fastlora_verify.harness.runner.reach import completed
from fastlora_verify.harness.runner.store import digest
from fastlora_verify.harness.runner.warm import Limits
from fastlora_verify.harness.trees.tree import Master
from fastlora_verify.mutations.base import Mutant

Report = Callable[[MutantOutcome, Chosen | None], None]


@dataclass(frozen=True)
class Asked:
    """What the column's oracles are asked of a mutant; limits None: nothing."""

    limits: Limits | None
    unmutated: Sequence[Mapping[str, Any]]  # answers to compare with; empty: a mutant's own are judged


@dataclass(frozen=True)
class _Unsure:
    """A mutant whose tests are run once more."""

    only: Chosen | None  # None: all, since what the mutant leaves may make others fail
    answers: list[StageResult]  # the oracles'


class Judging:
    """The mutants of a column, from a changed copy to an outcome; `report` hears each with the tests that it had."""

    def __init__(
        self,
        column: str,
        controlled: Controlled,
        options: RunOptions,
        master: Master,
        is_source: Callable[[str], bool],
        asked: Asked,
        report: Report,
    ) -> None:
        reach = controlled.reach
        self._column = column
        self._baseline = controlled.baseline
        self._reach = reach
        self._usual = reach.usual if reach is not None else frozenset()
        self._limits = limits_of(options, controlled.end)
        self._first = KillersFirst.of(options, controlled.baseline, reach.chains if reach is not None else ())
        self._master = master
        self._is_source = is_source
        self._asked = asked
        self._report = report
        self._logs = options.run_dir / "logs"
        self._unsure: dict[str, _Unsure] = {}
        self._mutants: dict[str, Mutant] = {}

    def run(self, pool: Executor, mutants: Sequence[Mutant]) -> None:
        """Runs every mutant, some of them more than once."""
        self._mutants = {mutant.name: mutant for mutant in mutants}
        pool.run((self._task(mutant, self._chosen(mutant), self._asked.limits) for mutant in mutants), self._done)
        while self._unsure:
            again = [self._task(self._mutants[name], one.only, None) for name, one in self._unsure.items()]
            pool.run(again, self._done)

    def _chosen(self, mutant: Mutant) -> Chosen | None:
        """The tests that can see the mutant; None: all."""
        if self._reach is None:
            return None
        only = self._reach.chosen({change.path: change.source for change in mutant.changes})
        return self._first.ordered(mutant, only) if self._first is not None and only is not None else only

    def _task(self, mutant: Mutant, only: Chosen | None, oracle_limits: Limits | None) -> Task:
        until = self._first.until(mutant, only) if self._first is not None else None
        stages = [Stage(jobs.SUITE, self._limits, only=only, until=until)]
        if oracle_limits is not None:
            stages.append(Stage(jobs.ORACLE, oracle_limits, mutant.kernels))
        return Task(mutant.name, tuple(stages), self._master.edits(mutant.changes), _probed(mutant))

    def _done(self, task: Task, results: list[StageResult]) -> None:
        mutant = self._mutants[task.name]
        suite, stage = results[0], task.stages[0]
        facts = suite_facts(suite.lines, str(suite.copy))
        outcome = self._judged(mutant, stage, facts, suite)
        earlier = self._unsure.pop(mutant.name, None)
        answers = results[1:] or (earlier.answers if earlier is not None else [])
        for only in self._more(stage, facts, outcome, tried=earlier is not None):
            self._unsure[mutant.name] = _Unsure(only, answers)
            return
        if outcome.status in (CRASH, TIMEOUT):
            self._keep_log(mutant.name, suite.output)
        if self._first is not None:
            self._first.learn(mutant, outcome)
        asked = self._asked.unmutated
        self._report(with_answers(outcome, answers[0], asked) if answers else outcome, stage.only)

    def _judged(self, mutant: Mutant, stage: Stage, facts: SuiteFacts, suite: StageResult) -> MutantOutcome:
        whole = stage.only is None and stage.until is None
        subject = Subject(mutant.name, tuple(change.path for change in mutant.changes), mutant.new_names)
        told = facts if whole else completed(facts, self._baseline)
        outcome = judge(subject, self._column, self._baseline, told, suite.end, self._is_source)
        if stage.until is not None and outcome.status == KILLED:
            return replace(outcome, stopped=True, counts=facts.counts)
        return outcome

    def _more(self, stage: Stage, facts: SuiteFacts, outcome: MutantOutcome, *, tried: bool) -> Iterator[Chosen | None]:
        """The tests to run once more before the outcome holds, `None` for all of them; nothing if it does."""
        if stage.only is None:
            return
        if self._first is not None:
            again = self._first.again(stage.only, facts, outcome, tried=tried)
            if again is not None:
                yield again
            if outcome.status == NOT_VIABLE:
                yield None
            if outcome.status == KILLED:
                return
        if self._may_be_seen(facts.harmed, survived=outcome.status == SURVIVED):
            yield None

    def _may_be_seen(self, harmed: frozenset[str] | None, *, survived: bool) -> bool:
        """Whether tests that were not chosen may see what a run left behind.

        What the unmutated tests change as well is no harm by itself. But what a store of the target then holds may be
        another thing on the mutant: before a mutant is said to survive, all tests have looked.
        """
        if harmed is None:  # not looked at: the run did not come to its end
            return survived
        left = harmed - self._usual
        return bool(left) or (survived and any(name.startswith(OWN) for name in harmed))

    def _keep_log(self, name: str, output: str) -> None:
        self._logs.mkdir(exist_ok=True)
        (self._logs / f"{digest(name)[:16]}.txt").write_text(f"{name}\n\n{output}", encoding="utf-8")


def _probed(mutant: Mutant) -> tuple[Probed, ...]:
    """Where each of its files is watched."""
    found = []
    for change in mutant.changes:
        probes = change.probes  # outside of a function, the changed line is all of the scope that runs
        if change.source is not None:
            reached, triggered = probes.reached or probes.triggered, probes.triggered or probes.reached
            found.append(Probed(change.path, reached, triggered))
    return tuple(found)
