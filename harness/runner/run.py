"""Mutants x columns: scratch copies, controls, workers, results as they come."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import NoDevice, NothingToRun
from fastlora_verify.harness.plan import (
    CRASH,
    KILLED,
    NOT_VIABLE,
    SURVIVED,
    TIMEOUT,
    AuditDifference,
    Column,
    ColumnOutcome,
    Events,
    MutantOutcome,
    RunOptions,
)
from fastlora_verify.harness.runner import audit, jobs
from fastlora_verify.harness.runner.baseline import baseline_of
from fastlora_verify.harness.runner.context import context_key
from fastlora_verify.harness.runner.controls import Controlled, Controls, Red
from fastlora_verify.harness.runner.device import Device, device_of
from fastlora_verify.harness.runner.evidence import suite_facts
from fastlora_verify.harness.runner.jobs import Chosen, Probed, Setting, make_bridge
from fastlora_verify.harness.runner.judge import Subject, judge
from fastlora_verify.harness.runner.keys import Keys
from fastlora_verify.harness.runner.killers_first import KillersFirst
from fastlora_verify.harness.runner.limits import limits_of, plain_limits
from fastlora_verify.harness.runner.normal import Normal
from fastlora_verify.harness.runner.oracle_runs import unmutated_answers, with_answers
from fastlora_verify.harness.runner.pool import Pool, Stage, StageResult, Task, Worker, may_fork, processors
from fastlora_verify.harness.runner.reach import Reach, completed, sources_of
from fastlora_verify.harness.runner.reuse import Found, Reuse, prepared, told
from fastlora_verify.harness.runner.store import Store, digest, runner_digest
from fastlora_verify.harness.runner.unjudged import not_run, red_column
from fastlora_verify.harness.runner.warm import Limits
from fastlora_verify.harness.targets.described import has_kernel_entries
from fastlora_verify.harness.targets.sources import check_copied
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.blobs import Blobs, blobs_of
from fastlora_verify.harness.trees.sides import source_side
from fastlora_verify.harness.trees.tree import Master, make_master
from fastlora_verify.mutations.base import Mutant


def run_columns(
    target: Target, mutants: Sequence[Mutant], columns: Sequence[Column], options: RunOptions, events: Events
) -> list[ColumnOutcome]:
    """Runs every mutant in every column, the controls of a column first.

    Raises errors.RedControl when a control is red, errors.NoDevice when the only column's device is missing; with
    `options.several` neither, the column says so. Raises errors.PythonError when the target's interpreter can't run a
    suite, errors.TargetError when git ignores a module. The target's own files are only read.
    """
    names = [mutant.name for mutant in mutants]
    if len(set(names)) < len(names):
        raise ValueError(f"two mutants are called {next(name for name in names if names.count(name) > 1)}")
    options.run_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="fastlora-verify-")).resolve()
    store = Store(options.run_dir, resume=options.resume)
    normal = Normal(options.run_dir, runner_digest(), resume=options.resume)
    try:
        master = make_master(target, scratch / "master", options.run_dir.resolve())
        check_copied(target, master.path)
        run = _Run(target, mutants, options, events, scratch, master, make_bridge(scratch / "bridge"), store, normal)
        return [run.column(column, alone=len(columns) == 1 and not options.several) for column in columns]
    finally:
        store.close()
        normal.save()
        shutil.rmtree(scratch, ignore_errors=True)


@dataclass
class _Run:
    target: Target
    mutants: Sequence[Mutant]
    options: RunOptions
    events: Events
    scratch: Path
    master: Master
    bridge: Path
    store: Store
    normal: Normal

    def __post_init__(self) -> None:
        self._workers: list[Worker] = []
        self._is_source = source_side(self.target, self.master.entries)
        every = dict.fromkeys(change.path for mutant in self.mutants for change in mutant.changes)
        self._changed = tuple(every)  # files that mutants change, new ones included
        self._paths = tuple(path for path in every if path in self.master.entries)

    def column(self, column: Column, *, alone: bool) -> ColumnOutcome:
        """One column, from the look for its device to the audit."""
        setting = Setting(self.target, self.options, column.device, self.bridge, self._changed)
        device = device_of(setting, self.scratch)
        if device.reason:
            if alone:
                raise NoDevice(column.device, device.reason)
            return replace(not_run(column, self.mutants, device, self._blobs(), device.reason), no_device=True)
        keys = Keys(context_key(self.target, setting, device, self.scratch), self.master, self.normal)
        reuse = Reuse(self.store, keys, self.options, self._paths, self._changed)
        found = reuse.controls(sources_of(self.master, self._paths)) if self.options.resume else None
        known = reuse.exact(self.mutants, found) if found is not None else {}
        self.events.column_started(column, len(self.mutants), len(known))
        if found is not None and len(known) == len(self.mutants) and not self.options.audit:
            return self._outcome(column, device, found, known, tuple(known), controls=False)
        self._make_workers()
        fork = may_fork(column.device, cold=self.options.cold)
        pool = Pool(setting, self._workers, self.scratch, fork=fork and not (found and found.controlled.mode == "cold"))
        try:
            return self._judged_column(column, device, pool, keys, reuse, found)
        except (Red, NothingToRun) as red:
            if not self.options.several:
                raise
            return red_column(column, self.mutants, device, self._blobs(), red)
        finally:
            pool.close()

    def _judged_column(
        self,
        column: Column,
        device: Device,
        pool: Pool,
        keys: Keys,
        reuse: Reuse,
        earlier: Found | None,
    ) -> ColumnOutcome:
        found = earlier
        if found is None or not prepared(found, pool, self.events):
            found, earlier = self._controls(column, pool, keys), None
            reuse.keep_controls(found)
        outcomes = reuse.exact(self.mutants, found) if self.options.resume else {}
        unknown = [mutant for mutant in self.mutants if mutant.name not in outcomes]
        outcomes |= reuse.narrow(unknown, found) if self.options.resume else {}
        known = tuple(outcomes)
        if earlier is None:
            for name in known:
                self.events.mutant_done(name, column.id, outcomes[name].status)
        by_name = {mutant.name: mutant for mutant in self.mutants}

        def done(outcome: MutantOutcome, only: Chosen | None) -> None:
            outcomes[outcome.mutant] = outcome
            reuse.add(by_name[outcome.mutant], outcome, found, only)
            self.events.mutant_done(outcome.mutant, column.id, outcome.status)

        waiting = [mutant for mutant in self.mutants if mutant.name not in known]
        self._judge(pool, column, found.controlled, found.oracle_limits, found.oracles, waiting, done)
        outcome = self._outcome(column, device, found, outcomes, known, controls=earlier is None)
        audited, differences = self._audit(pool, found.controlled, outcome.mutants)
        return replace(outcome, audited=audited, audit_differences=differences)

    def _controls(self, column: Column, pool: Pool, keys: Keys) -> Found:
        controlled = Controls(pool, self.master, column.id, self.options, self._paths, self.events).check()
        oracles, limits = unmutated_answers(pool, self.options, self.events)
        return Found(controlled, oracles, limits, keys.read(controlled.baseline))

    def _outcome(
        self,
        column: Column,
        device: Device,
        found: Found,
        outcomes: Mapping[str, MutantOutcome],
        known: Collection[str],
        *,
        controls: bool,
    ) -> ColumnOutcome:
        """What to hand back; of the outcomes those of `known` were, and unless `controls` ran, so was `found`."""
        controlled = found.controlled
        return ColumnOutcome(
            column=column,
            status="run",
            mode=controlled.mode,
            asked=self.options.mode,
            baseline=baseline_of(controlled.baseline, controlled.end),
            oracles=found.oracles,
            controls=controlled.controls,
            mutants=tuple(replace(outcomes[mutant.name], column=column.id) for mutant in self.mutants),
            reused=tuple(mutant.name for mutant in self.mutants if mutant.name in known),
            device_name=device.device_name,
            versions=device.versions,
            notes=(*controlled.notes, *told(known, self.mutants, controls=controls)),
            blobs=self._blobs(),
        )

    def _judge(
        self,
        pool: Pool,
        column: Column,
        controlled: Controlled,
        oracle_limits: Limits | None,
        unmutated: Sequence[Mapping[str, Any]],
        mutants: Sequence[Mutant],
        report: Callable[[MutantOutcome, Chosen | None], None],
    ) -> None:
        limits = limits_of(self.options, controlled.end)
        by_name = {mutant.name: mutant for mutant in mutants}
        unmutated = () if has_kernel_entries(self.target) else unmutated
        unsure: dict[str, _Unsure] = {}
        reach = controlled.reach
        usual = reach.usual if reach is not None else frozenset()
        first = KillersFirst.of(self.options, controlled.baseline, reach.chains if reach is not None else ())

        def done(task: Task, results: list[StageResult]) -> None:
            mutant = by_name[task.name]
            suite, stage = results[0], task.stages[0]
            ran = facts = suite_facts(suite.lines, str(suite.copy))
            if stage.only is not None or stage.until is not None:
                facts = completed(facts, controlled.baseline)
            outcome = judge(
                Subject(mutant.name, tuple(change.path for change in mutant.changes), mutant.new_names),
                column.id,
                controlled.baseline,
                facts,
                suite.end,
                self._is_source,
            )
            tried = mutant.name in unsure
            answers = results[1:] or (unsure.pop(mutant.name).answers if mutant.name in unsure else [])
            if stage.until is not None and outcome.status == KILLED:
                outcome = replace(outcome, stopped=True, counts=ran.counts)
            again = first.again(stage.only, ran, outcome, tried=tried) if first is not None else None
            harmed = facts.harmed - usual or (stage.until is not None and outcome.status == NOT_VIABLE)
            if again is not None or (stage.only is not None and (outcome.status == SURVIVED or harmed)):
                unsure[mutant.name] = _Unsure(again, answers)
                return
            if outcome.status in (CRASH, TIMEOUT):
                self._keep_log(mutant.name, suite.output)
            if first is not None:
                first.learn(mutant, outcome)
            report(with_answers(outcome, answers[0], unmutated) if answers else outcome, stage.only)

        pool.run((self._task(m, self._chosen(m, reach, first), first, limits, oracle_limits) for m in mutants), done)
        while unsure:
            pool.run([self._task(by_name[n], one.only, first, limits, None) for n, one in unsure.items()], done)

    def _chosen(self, mutant: Mutant, reach: Reach | None, first: KillersFirst | None) -> Chosen | None:
        """The tests that can see the mutant; None: all."""
        only = reach.chosen({change.path: change.source for change in mutant.changes}) if reach is not None else None
        return first.ordered(mutant, only) if first is not None and only is not None else only

    def _task(
        self,
        mutant: Mutant,
        only: Chosen | None,
        first: KillersFirst | None,
        limits: Limits,
        oracle_limits: Limits | None,
    ) -> Task:
        until = first.until(mutant, only) if first is not None else None
        stages = [Stage(jobs.SUITE, limits, only=only, until=until)]
        if oracle_limits is not None:
            stages.append(Stage(jobs.ORACLE, oracle_limits, mutant.kernels))
        return Task(mutant.name, tuple(stages), self.master.edits(mutant.changes), _probed(mutant))

    def _audit(
        self, pool: Pool, controlled: Controlled, outcomes: Sequence[MutantOutcome]
    ) -> tuple[tuple[str, ...], tuple[AuditDifference, ...]]:
        if not self.options.audit:
            return (), ()
        names = audit.chosen(outcomes, self.options.audit, self.options.audit_seed)
        by_name = {outcome.mutant: outcome for outcome in outcomes}
        limits = plain_limits(limits_of(self.options, controlled.end))
        found: list[AuditDifference] = []

        def done(task: Task, results: list[StageResult]) -> None:
            result = results[0]
            problem = "" if result.end.how == "exit" else result.end.limit or result.end.how
            junit, flaky = result.scratch / "junit.xml", controlled.baseline.flaky
            other = audit.difference(by_name[task.name], result.output, junit, problem, flaky)
            if other is not None:
                found.append(other)

        chosen = [mutant for mutant in self.mutants if mutant.name in set(names)]
        pool.run((self._audit_task(mutant, limits) for mutant in chosen), done)
        return tuple(names), tuple(found)

    def _audit_task(self, mutant: Mutant, limits: Limits) -> Task:
        return Task(mutant.name, (Stage(jobs.AUDIT, limits),), self.master.edits(mutant.changes))

    def _make_workers(self) -> None:
        if self._workers:
            return
        count = self.options.workers or processors()
        for index in range(max(1, min(count, len(self.mutants)))):
            self._workers.append(Worker(self.master, self.scratch / f"w{index}"))

    def _blobs(self) -> Blobs:
        return blobs_of(self.target, self.master.entries, self.options.tests or self.target.tests)

    def _keep_log(self, name: str, output: str) -> None:
        folder = self.options.run_dir / "logs"
        folder.mkdir(exist_ok=True)
        (folder / f"{digest(name)[:16]}.txt").write_text(f"{name}\n\n{output}", encoding="utf-8")


@dataclass(frozen=True)
class _Unsure:
    """A mutant whose tests are run once more."""

    only: Chosen | None  # to be sure of a kill; None: all, since what the mutant leaves may make others fail
    answers: list[StageResult]  # the oracles'


def _probed(mutant: Mutant) -> tuple[Probed, ...]:
    """Where each of its files is watched."""
    found = []
    for change in mutant.changes:
        probes = change.probes  # outside of a function, the changed line is all of the scope that runs
        if change.source is not None:
            reached, triggered = probes.reached or probes.triggered, probes.triggered or probes.reached
            found.append(Probed(change.path, reached, triggered))
    return tuple(found)
