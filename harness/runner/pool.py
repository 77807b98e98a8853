"""Runs tasks on workers: each has a scratch copy, which a task changes before its stages run in it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.discarded import discard
from fastlora_verify.harness.runner.evidence import read_lines
from fastlora_verify.harness.runner.jobs import Alone, Chosen, Probed, Setting, Until
from fastlora_verify.harness.runner.judge import End
from fastlora_verify.harness.runner.warm import Limits, Warm
from fastlora_verify.harness.trees.tree import Copy, Master

_TICK = 0.25  # s between two looks at the limits
_HOST_SECONDS = 600.0  # for collecting the tests, libraries included
_ATTEMPTS = 2  # a job whose warm process died is tried once more


@dataclass(frozen=True)
class Stage:
    """One process of a task."""

    kind: str  # jobs.SUITE, ORACLE, PLAIN or AUDIT
    limits: Limits
    kernels: tuple[str, ...] = ()
    mapped: Mapping[str, Sequence[int]] | None = None  # functions whose running is told test by test
    only: Chosen | None = None
    until: Until | None = None  # None: to the end
    printed: bool = False  # what tests print is kept
    alone: Alone | None = None
    stir: bool = False  # every test begins with random states of its own
    libraries: bool = False  # what the tests import from elsewhere is told, and which files they read
    harm: bool = False  # what the run leaves behind is told; of chosen tests it always is


@dataclass(frozen=True)
class Task:
    """Something to run on a changed copy."""

    name: str
    stages: tuple[Stage, ...]
    edits: Mapping[str, bytes | None] = field(default_factory=dict)  # by path in the copy; None: the file goes
    probed: tuple[Probed, ...] = ()


@dataclass(frozen=True)
class StageResult:
    """What became of a stage."""

    kind: str
    end: End
    lines: Sequence[Mapping[str, Any]]
    output: str
    copy: Path
    scratch: Path


Done = Callable[[Task, list[StageResult]], None]


@dataclass(frozen=True)
class Hosted:
    """A process that has collected the tests in a worker's copy."""

    name: str
    imported: frozenset[str]  # files of the copy that it has in memory


class Worker:
    """A scratch copy and what runs in it."""

    def __init__(self, master: Master, folder: Path) -> None:
        self.copy = Copy(master, folder / "tree")
        self.scratch = folder / "tmp"
        self.host_scratch = folder / "host"
        self.host: Hosted | None = None
        self.task: Task | None = None
        self.results: list[StageResult] = []
        self.attempts = 0

    def begin(self, task: Task) -> None:
        """Makes the copy the task's."""
        self.copy.restore()
        for path, data in task.edits.items():
            if data is None:
                self.copy.delete(path)
            else:
                self.copy.write(path, data)
        self.task, self.results, self.attempts = task, [], 0

    def new_scratch(self) -> Path:
        """An empty folder for the next stage; `results` keeps what it needs of the last."""
        discard(self.scratch)
        self.scratch.mkdir(parents=True, exist_ok=True)
        return self.scratch


class Pool:
    """The workers of a column and its warm process."""

    def __init__(self, setting: Setting, workers: Sequence[Worker], scratch: Path, *, fork: bool) -> None:
        self._setting = setting
        self._workers = workers
        self._scratch = scratch
        self._fork = fork
        self.warm = Warm(setting, scratch, fork=fork)

    def use_new_interpreters(self) -> None:
        """From now on no child is forked off warm libraries."""
        self.unhost()
        self.warm.close()
        self._fork = False
        self.warm = Warm(self._setting, self._scratch, fork=False)

    @property
    def size(self) -> int:
        """How many tasks run at once."""
        return len(self._workers)

    @property
    def forks(self) -> bool:
        """Whether children are forked off the warm process."""
        return self.warm.forks

    @property
    def why_new(self) -> str:
        """Why they aren't, where that was wanted."""
        return str(self.warm.ready.get("reason", ""))

    @property
    def elsewhere(self) -> bool:
        """Its tasks run on this machine."""
        return False

    def host(self, libraries: Sequence[str]) -> str:
        """Has the tests collected in every worker's copy, with `libraries` in memory; the reason why not, if so."""
        waiting = {}
        for index, worker in enumerate(self._workers):
            worker.copy.restore()
            shutil.rmtree(worker.host_scratch, ignore_errors=True)
            worker.host_scratch.mkdir(parents=True)
            path = jobs.write_job(self._setting, jobs.SUITE, worker.copy.path, worker.host_scratch, preload=libraries)
            waiting[f"host {index}"] = worker
            self.warm.start_host(f"host {index}", path)
        reason = ""
        deadline = monotonic() + _HOST_SECONDS
        while waiting and not reason:
            event = self.warm.next_event(_TICK)
            if event is None:
                reason = "collecting took too long" if monotonic() > deadline else ""
            elif event["event"] == "hosted":
                worker = waiting.pop(event["host"])
                worker.host = Hosted(event["host"], frozenset(event["imported"]))
            elif event["event"] in ("unhosted", "gone"):
                reason = event.get("reason", "the warm process ended")
        if reason:
            self.unhost()
        return reason

    def unhost(self) -> None:
        """From now on every job collects the tests itself."""
        for worker in self._workers:
            worker.host = None

    def run(self, tasks: Iterable[Task], done: Done) -> None:
        """Runs every task; `done` is called in this thread, in the order in which they end."""
        waiting = iter(tasks)
        busy: dict[str, Worker] = {}
        for worker in self._workers:
            self._next(worker, waiting, busy, done)
        while busy:
            event = self.warm.next_event(_TICK)
            self.warm.enforce()
            if event is None:
                continue
            if event["event"] == "gone":
                self._replace_warm(busy, waiting, done)
            elif event["event"] == "exit" and event["job"] in busy:
                self._stage_ended(busy.pop(event["job"]), event, waiting, busy, done)
            elif event["event"] == "unhosted":
                self._host_lost(event["host"], busy, waiting, done)
            elif event["event"] == "lost" and event["job"] in busy:
                self.warm.running.pop(event["job"])
                self._again(busy.pop(event["job"]), waiting, busy, done)

    def close(self, *, orderly: bool = True) -> None:
        """Ends the warm process and every job."""
        self.warm.close(orderly=orderly)

    def _next(self, worker: Worker, waiting: Iterator[Task], busy: dict[str, Worker], done: Done) -> None:
        task = next(waiting, None)
        if task is None:
            return
        worker.begin(task)
        self._start_stage(worker, busy)

    def _start_stage(self, worker: Worker, busy: dict[str, Worker]) -> None:
        assert worker.task is not None
        stage = worker.task.stages[len(worker.results)]
        scratch = worker.new_scratch()
        path = jobs.write_job(
            self._setting,
            stage.kind,
            worker.copy.path,
            scratch,
            worker.task.probed,
            stage.kernels,
            spawn=not self.warm.forks,
            mapped=stage.mapped,
            only=stage.only,
            until=stage.until,
            printed=stage.printed,
            alone=stage.alone,
            libraries=stage.libraries,
            stir=stage.stir,
            harm=stage.harm or stage.only is not None,
        )
        name = f"{worker.task.name}|{stage.kind}|{worker.attempts}"
        busy[name] = worker
        self.warm.submit(name, path, stage.limits, _host_for(worker, stage))

    def _stage_ended(
        self, worker: Worker, event: Mapping[str, Any], waiting: Iterator[Task], busy: dict[str, Worker], done: Done
    ) -> None:
        assert worker.task is not None
        running = self.warm.running.pop(str(event["job"]))
        stage = worker.task.stages[len(worker.results)]
        worker.results.append(_result(stage, event, running.exceeded, running.said, worker))
        if len(worker.results) < len(worker.task.stages):
            self._start_stage(worker, busy)
            return
        done(worker.task, worker.results)
        self._next(worker, waiting, busy, done)

    def _replace_warm(self, busy: dict[str, Worker], waiting: Iterator[Task], done: Done) -> None:
        """The warm process died, not by our wish: its jobs run again on a new one."""
        self.warm.close()
        self.warm = Warm(self._setting, self._scratch, fork=self._fork)
        self.unhost()
        lost = list(busy.values())
        busy.clear()
        for worker in lost:
            self._again(worker, waiting, busy, done)

    def _host_lost(self, name: str, busy: dict[str, Worker], waiting: Iterator[Task], done: Done) -> None:
        """A host died, and its job with it: from now on that worker's jobs collect the tests themselves."""
        for worker in self._workers:
            if worker.host is not None and worker.host.name == name:
                worker.host = None
                for job in [job for job, other in busy.items() if other is worker]:
                    self.warm.running.pop(job, None)
                    self._again(busy.pop(job), waiting, busy, done)

    def _again(self, worker: Worker, waiting: Iterator[Task], busy: dict[str, Worker], done: Done) -> None:
        """A job was lost without its own doing, or with: the whole task runs once more, then it is lost."""
        task, attempts = worker.task, worker.attempts + 1
        assert task is not None
        if attempts < _ATTEMPTS:
            worker.begin(task)
            worker.attempts = attempts
            self._start_stage(worker, busy)
            return
        for stage in task.stages[len(worker.results) :]:
            worker.results.append(_result(stage, {"event": "lost"}, "", "", worker))
        done(task, worker.results)
        self._next(worker, waiting, busy, done)


def _host_for(worker: Worker, stage: Stage) -> str | None:
    """The host that the stage can go on from: one that has no changed file in memory."""
    host, task = worker.host, worker.task
    assert task is not None
    plain = stage.alone is None and stage.mapped is None and not (stage.printed or stage.libraries or stage.stir)
    if host is None or stage.kind != jobs.SUITE or not plain:
        return None
    return None if host.imported & task.edits.keys() else host.name


def processors() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def may_fork(device: str, *, cold: bool = False) -> bool:
    """A CUDA context does not survive a fork, nor do the threads that macOS's own libraries start."""
    return sys.platform == "linux" and device == "cpu" and not cold


def _result(stage: Stage, event: Mapping[str, Any], exceeded: str, said: str, worker: Worker) -> StageResult:
    output = worker.scratch / f"{stage.kind}.out"
    text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
    end = End(
        how=exceeded or event["event"],
        code=event.get("code"),
        signal=event.get("signal"),
        seconds=event.get("wall", 0.0),
        cpu_seconds=event.get("cpu", 0.0),
        limit=said,
        output_tail=_last_line(text),
    )
    lines = read_lines(worker.scratch / f"{stage.kind}.facts")
    return StageResult(stage.kind, end, lines, text, worker.copy.path, worker.scratch)


def _last_line(text: str) -> str:
    """The last complaint, else the last line."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror: ", line, re.IGNORECASE) and "usage:" not in line]
    return (errors or lines or [""])[-1].strip()[:300]
