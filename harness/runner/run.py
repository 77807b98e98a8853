"""Mutants x columns: scratch copies, controls, workers, results as they come."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from fastlora_verify.harness.errors import NoDevice, NothingToRun
from fastlora_verify.harness.plan import (
    RAY,
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
from fastlora_verify.harness.runner.device import Device
from fastlora_verify.harness.runner.executor import Executor, Machines, ThisMachine
from fastlora_verify.harness.runner.jobs import Chosen, Setting, make_bridge
from fastlora_verify.harness.runner.judging import Asked, Judging
from fastlora_verify.harness.runner.keys import Keys
from fastlora_verify.harness.runner.limits import limits_of, plain_limits
from fastlora_verify.harness.runner.normal import Normal
from fastlora_verify.harness.runner.oracle_runs import unmutated_answers
from fastlora_verify.harness.runner.pool import Stage, StageResult, Task
from fastlora_verify.harness.runner.ray_cluster import RayCluster
from fastlora_verify.harness.runner.reach import sources_of
from fastlora_verify.harness.runner.reuse import Found, Reuse, prepared, told
from fastlora_verify.harness.runner.store import Store, runner_digest
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
    target: Target,
    mutants: Sequence[Mutant],
    columns: Sequence[Column],
    options: RunOptions,
    events: Events,
    part: Collection[str] | None = None,
) -> list[ColumnOutcome]:
    """Runs every mutant in every column, the controls of a column first; of the mutants only those named in `part`.

    The controls are those of all mutants, so that they say the same whichever part is run.

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
        own = [mutant for mutant in mutants if part is None or mutant.name in part]
        changed = tuple(dict.fromkeys(change.path for mutant in mutants for change in mutant.changes))
        bridge = make_bridge(scratch / "bridge")
        with closing(_machines(options, master, scratch, events)) as machines:
            run = _Run(target, own, changed, options, events, scratch, master, bridge, store, normal, machines)
            return [run.column(column, alone=len(columns) == 1 and not options.several) for column in columns]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        store.close()
        normal.save()


def _machines(options: RunOptions, master: Master, scratch: Path, events: Events) -> Machines:
    return (
        RayCluster(options, master, scratch, events.note)
        if options.executor == RAY
        else ThisMachine(options, master, scratch)
    )


@dataclass
class _Run:
    target: Target
    mutants: Sequence[Mutant]
    changed: tuple[str, ...]  # files that any mutant of the run changes, new ones included
    options: RunOptions
    events: Events
    scratch: Path
    master: Master
    bridge: Path
    store: Store
    normal: Normal
    machines: Machines

    def __post_init__(self) -> None:
        self._is_source = source_side(self.target, self.master.entries)
        self._paths = tuple(path for path in self.changed if path in self.master.entries)

    def column(self, column: Column, *, alone: bool) -> ColumnOutcome:
        """One column, from the look for its device to the audit."""
        setting = Setting(self.target, self.options, column.device, self.bridge, self.changed)
        device = self.machines.device(setting)
        if device.reason:
            if alone:
                raise NoDevice(column.device, device.reason)
            return replace(not_run(column, self.mutants, device, self._blobs(), device.reason), no_device=True)
        keys = Keys(context_key(self.target, setting, device, self.scratch), self.master, self.normal)
        reuse = Reuse(self.store, keys, self.options, self._paths, self.changed)
        found = reuse.controls(sources_of(self.master, self._paths)) if self.options.resume else None
        known = reuse.exact(self.mutants, found) if found is not None else {}
        self.events.column_started(column, len(self.mutants), len(known))
        if found is not None and len(known) == len(self.mutants) and not self.options.audit:
            return self._outcome(column, device, found, known, tuple(known), controls=False)
        was_cold = found is not None and found.controlled.mode == "cold"
        pool = self.machines.executor(setting, fork=not was_cold, most=len(self.mutants))
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
        pool: Executor,
        keys: Keys,
        reuse: Reuse,
        earlier: Found | None,
    ) -> ColumnOutcome:
        found = earlier
        if found is None or not prepared(found, pool, self.events):
            found, earlier = self._controls(column, pool, keys), None
            reuse.keep_controls(found)
        outcomes = reuse.exact(self.mutants, found)  # none without `resume`: the store has none then
        unknown = [mutant for mutant in self.mutants if mutant.name not in outcomes]
        outcomes |= reuse.narrow(unknown, found)
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
        asked = Asked(found.oracle_limits, () if has_kernel_entries(self.target) else found.oracles)
        judging = Judging(column.id, found.controlled, self.options, self.master, self._is_source, asked, done)
        judging.run(pool, waiting)
        outcome = self._outcome(column, device, found, outcomes, known, controls=earlier is None)
        audited, differences = self._audit(pool, found.controlled, outcome.mutants)
        return replace(outcome, audited=audited, audit_differences=differences)

    def _controls(self, column: Column, pool: Executor, keys: Keys) -> Found:
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

    def _audit(
        self, pool: Executor, controlled: Controlled, outcomes: Sequence[MutantOutcome]
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

    def _blobs(self) -> Blobs:
        return blobs_of(self.target, self.master.entries, self.options.tests or self.target.tests)
