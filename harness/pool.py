"""Runs tasks on workers: each has a scratch copy, which a task changes before its stages run in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlora_verify.harness import jobs
from fastlora_verify.harness.evidence import read_lines
from fastlora_verify.harness.jobs import Probed, Setting
from fastlora_verify.harness.judge import End
from fastlora_verify.harness.tree import Copy, Master
from fastlora_verify.harness.warm import Limits, Warm

_TICK = 0.25  # s between two looks at the limits
_ATTEMPTS = 2  # a job whose warm process died is tried once more


@dataclass(frozen=True)
class Stage:
    """One process of a task."""

    kind: str  # jobs.SUITE, ORACLE, PLAIN or AUDIT
    limits: Limits
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """Something to run on a changed copy."""

    name: str
    stages: tuple[Stage, ...]
    edits: Mapping[str, bytes] = field(default_factory=dict)
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


class Worker:
    """A scratch copy and what runs in it."""

    def __init__(self, master: Master, folder: Path) -> None:
        self.copy = Copy(master, folder / "tree")
        self.scratch = folder / "tmp"
        self.task: Task | None = None
        self.results: list[StageResult] = []
        self.attempts = 0

    def begin(self, task: Task) -> None:
        """Makes the copy the task's."""
        self.copy.restore()
        for path, data in task.edits.items():
            self.copy.write(path, data)
        self.task, self.results, self.attempts = task, [], 0

    def new_scratch(self) -> Path:
        """An empty folder for the next stage; `results` keeps what it needs of the last."""
        shutil.rmtree(self.scratch, ignore_errors=True)
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
        self.warm.close()
        self._fork = False
        self.warm = Warm(self._setting, self._scratch, fork=False)

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
            elif event["event"] in ("exit", "lost") and event["job"] in busy:
                worker = busy.pop(event["job"])
                self._stage_ended(worker, event, waiting, busy, done)

    def close(self, *, orderly: bool = True) -> None:
        """Ends the warm process and every job."""
        self.warm.close(orderly=orderly)

    def _next(self, worker: Worker, waiting: Any, busy: dict[str, Worker], done: Done) -> None:
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
        )
        name = f"{worker.task.name}|{stage.kind}|{worker.attempts}"
        busy[name] = worker
        self.warm.submit(name, path, stage.limits)

    def _stage_ended(
        self, worker: Worker, event: Mapping[str, Any], waiting: Any, busy: dict[str, Worker], done: Done
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

    def _replace_warm(self, busy: dict[str, Worker], waiting: Any, done: Done) -> None:
        """The warm process died, not by our wish: its jobs run again on a new one, once."""
        self.warm.close()
        self.warm = Warm(self._setting, self._scratch, fork=self._fork)
        for name, worker in list(busy.items()):
            del busy[name]
            worker.attempts += 1
            assert worker.task is not None
            if worker.attempts < _ATTEMPTS:
                task, attempts = worker.task, worker.attempts
                worker.begin(task)
                worker.attempts = attempts
                self._start_stage(worker, busy)
            else:
                worker.results += [
                    _result(stage, {"event": "lost"}, "", "", worker)
                    for stage in worker.task.stages[len(worker.results) :]
                ]
                done(worker.task, worker.results)
                self._next(worker, waiting, busy, done)


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
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "E  "))]
    return (errors or lines or [""])[-1].strip()[:300]
