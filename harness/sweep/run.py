"""Runs one test over and over in scratch copies: forked children under a seed each, or a pytest of its own each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import NoDevice, NothingToRun
from fastlora_verify.harness.plan import Column, RunOptions
from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.device import Device, device_of
from fastlora_verify.harness.runner.evidence import SuiteFacts, suite_facts
from fastlora_verify.harness.runner.green import first_difference
from fastlora_verify.harness.runner.jobs import Alone, Probed, Setting, make_bridge
from fastlora_verify.harness.runner.limits import limits_of, plain_limits
from fastlora_verify.harness.runner.pool import Pool, Stage, StageResult, Task, Worker, may_fork, processors
from fastlora_verify.harness.runner.warm import Limits
from fastlora_verify.harness.sweep.find import Item, items_in, meant
from fastlora_verify.harness.sweep.outcome import arms_swept, run_at
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.tree import Master, make_master
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.reports.names import counted
from fastlora_verify.reports.sweep_record import Run, SweepColumn

_UNKNOWN = 3600.0  # s, until the test as written has been timed
_FIGURES = ("-o", "enable_assertion_pass_hook=true")


@dataclass(frozen=True)
class Ask:
    """What is to be swept."""

    test: str
    paths: tuple[str, ...]  # where it is looked for, in the copy
    seeds: tuple[int, ...] = ()  # empty: `runs` repetitions
    runs: int = 0
    env: tuple[str, ...] = ()  # variables that the seed is given in
    mutant: Mutant | None = None


Tell = Callable[[str], None]


def sweep_column(
    target: Target, ask: Ask, column: Column, options: RunOptions, tell: Tell
) -> tuple[SweepColumn, Device]:
    """The test in one column. The target's own files are only read.

    Raises errors.NothingToRun if the test isn't there, errors.UsageError if it isn't one test, errors.NoDevice if
    the device is missing, errors.PythonError when the interpreter can't run a suite.
    """
    scratch = Path(tempfile.mkdtemp(prefix="fastlora-verify-")).resolve()
    try:
        master = make_master(target, scratch / "master", options.run_dir.resolve())
        bridge = make_bridge(scratch / "bridge")
        count = min(options.workers or processors(), max(2, len(ask.seeds), ask.runs))
        workers = [Worker(master, scratch / f"w{index}") for index in range(count)]
        setting = Setting(target, options, column.device, bridge, ())
        device = device_of(setting, scratch)
        if device.reason:
            raise NoDevice(column.device, device.reason)
        pool = Pool(setting, workers, scratch, fork=may_fork(column.device))
        try:
            return _Sweep(ask, column, pool, master, options, tell).run(device), device
        finally:
            pool.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Sweep:
    """One column of a sweep."""

    def __init__(self, ask: Ask, column: Column, pool: Pool, master: Master, options: RunOptions, tell: Tell) -> None:
        self._ask, self._column, self._pool = ask, column, pool
        self._options, self._tell = options, tell
        changes = ask.mutant.changes if ask.mutant else ()
        self._edits = master.edits(changes)
        self._probed = tuple(
            Probed(change.path, (), change.probes.triggered or change.probes.reached)
            for change in changes
            if change.source is not None
        )
        self._notes: list[str] = []
        self._unseeded: list[str] = []  # arms that set no seed
        self._seeds_given = bool(ask.seeds) and not ask.env  # by us, to the test itself

    def run(self, device: Device) -> SweepColumn:
        """Finds the test, runs it as written, then once a seed."""
        items = meant(self._ask.test, self._listed(), seeded=self._seeds_given)
        if self._ask.seeds:
            limits, mode = self._as_written(items)
            kind = jobs.SUITE
        else:
            limits, mode, kind = self._unknown(), "plain", jobs.PLAIN
        arms = list(dict.fromkeys(item.arm for item in items))
        numbers = self._ask.seeds or tuple(range(1, self._ask.runs + 1))
        self._tell(f"{self._column.id}: {items[0].function}: {counted(len(arms), 'arm')}, {len(numbers)} runs")
        found: dict[int, dict[str, Run]] = {}
        seeds: list[Mapping[str, Any]] = []

        def done(task: Task, results: list[StageResult]) -> None:
            number = int(task.name)
            found[number] = run_at(number, arms, results[0], edited=bool(self._probed))
            seeds.extend(line for line in results[0].lines if line["event"] == "swept")
            self._told(number, found[number], len(found), len(numbers))

        self._pool.run((self._task(number, items, arms, kind, limits) for number in numbers), done)
        way = "" if self._seeds_given else ("environment" if self._ask.env else "repeat")
        return SweepColumn(
            id=self._column.id,
            device=self._column.device,
            device_name=device.device_name or None,
            mode=mode,
            notes=tuple(self._notes),
            arms=arms_swept(items, [found[number] for number in numbers], seeds, way),
        )

    def _listed(self) -> list[Item]:
        alone = Alone(self._ask.paths, _sweep(jobs.LIST), ("--collect-only", "-q"))
        task = Task(jobs.LIST, (Stage(jobs.SUITE, self._unknown(), alone=alone),), self._edits)
        result = self._all([task])[jobs.LIST]
        items = items_in(result.lines)
        if items:
            return items
        facts = suite_facts(result.lines, str(result.copy))
        failed = [case for case in facts.collected.values() if case.raised is not None]
        if failed and failed[0].raised:
            raised = failed[0].raised
            raise NothingToRun(f"{failed[0].test} cannot be collected: {raised.type}: {raised.message}")
        skipped = next((case for case in facts.collected.values() if case.reason), None)
        why = f"{skipped.test} skips itself: {skipped.reason}" if skipped else result.end.output_tail
        raise NothingToRun(f"no test was collected from {', '.join(self._ask.paths)}: {why}")

    def _as_written(self, items: Sequence[Item]) -> tuple[Limits, str]:
        """The test with the seeds that stand in it: in a child, and as a plain pytest, which must agree."""
        tests = {item.test for item in items}
        for mode in ("fork", "spawn") if self._pool.warm.forks else ("spawn",):
            if mode == "spawn" and self._pool.warm.forks:
                self._pool.use_new_interpreters()
            ours = Alone((items[0].select,), _sweep(jobs.NOTED, sorted(tests)), _FIGURES)
            plain = Alone((items[0].select,), None)
            results = self._all(
                [
                    Task(jobs.SUITE, (Stage(jobs.SUITE, self._unknown(), alone=ours),), self._edits),
                    Task(jobs.PLAIN, (Stage(jobs.PLAIN, self._unknown(), alone=plain),), self._edits),
                ]
            )
            here, there = (_outcomes(results[kind], tests) for kind in (jobs.SUITE, jobs.PLAIN))
            difference = first_difference(here, there)
            if not difference:
                break
            self._tell(f"note: as written, {difference} ({mode} and plain pytest)")
        if difference:
            self._notes.append(f"as written, {difference}, in a child and in a plain pytest: is it deterministic?")
        red = [test for test, category in there.items() if category in ("failed", "error")]
        if red:
            self._notes.append(f"as written, {len(red)} of {len(there)} arms with their own seeds fail: {red[0]}")
        noted = [line for line in results[jobs.SUITE].lines if line["event"] == "swept"]
        self._unseeded = [line["arm"] for line in noted if not line["given"]]
        return limits_of(self._options, results[jobs.SUITE].end), mode

    def _task(self, number: int, items: Sequence[Item], arms: Sequence[str], kind: str, limits: Limits) -> Task:
        sweep = _sweep(jobs.SEEDED if self._seeds_given else jobs.AS_WRITTEN, arms, number, self._unseeded)
        env = dict.fromkeys(self._ask.env, str(number))
        alone = Alone((items[0].select,), sweep, _FIGURES, env)
        bounds = plain_limits(limits) if kind == jobs.PLAIN else limits
        return Task(str(number), (Stage(kind, bounds, printed=True, alone=alone),), self._edits, self._probed)

    def _all(self, tasks: Sequence[Task]) -> dict[str, StageResult]:
        """The first stage's result of each task, by name."""
        found: dict[str, StageResult] = {}
        self._pool.run(tasks, lambda task, results: found.update({task.name: results[0]}))
        return found

    def _unknown(self) -> Limits:
        return Limits(_UNKNOWN, _UNKNOWN, self._options.memory_limit)

    def _told(self, number: int, runs: Mapping[str, Run], done: int, total: int) -> None:
        unit = "seed" if self._ask.seeds else "run"
        bad = [run.outcome for run in runs.values() if run.outcome not in ("passed", "skipped", "xfailed", "xpassed")]
        if bad:
            self._tell(f"  {unit} {number}: {', '.join(dict.fromkeys(bad))}")
        if done == total or done % 10 == 0:
            self._tell(f"{self._column.id}: {done}/{total}")


def _sweep(mode: str, wanted: Sequence[str] = (), seed: int = 0, unseeded: Sequence[str] = ()) -> dict[str, object]:
    return {"mode": mode, "wanted": list(wanted), "seed": seed, "unseeded": list(unseeded)}


def _outcomes(result: StageResult, tests: set[str]) -> dict[str, str]:
    """What became of these tests; of those that the process did not come to, that it ended before."""
    facts: SuiteFacts = suite_facts(result.lines, str(result.copy))
    return {test: facts.tests[test].category if test in facts.tests else result.end.how for test in sorted(tests)}
