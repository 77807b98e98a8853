"""The parent's side of a warm process: jobs in, events out, limits, kills."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from fastlora_verify.harness.errors import PythonError
from fastlora_verify.harness.runner.jobs import Setting, module_command, warm_environment

_READY_SECONDS = 600.0  # importing the libraries from a cold disk
_CLOSE_SECONDS = 20.0
_LOOK_SECONDS = 0.25  # between two looks at what the jobs use
_PRINTED = 256 * 1024**2  # bytes that one test may print: pytest keeps them in a file, then in memory


@dataclass(frozen=True)
class Limits:
    """What a job may use before it is killed."""

    wall: float  # s
    cpu: float  # s, of all its processes
    memory: int  # bytes resident, of all its processes


@dataclass
class Running:
    """A job that was handed to the warm process."""

    name: str
    limits: Limits
    began: float = field(default_factory=monotonic)
    leader: int | None = None
    exceeded: str = ""  # "timeout" | "memory" | "output": the limit that it was killed for
    said: str = ""  # the same in words


class Warm:
    """One warm process. `events` yields its lines; a line `{"event": "gone"}` says that it ended."""

    def __init__(self, setting: Setting, scratch: Path, *, fork: bool) -> None:
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.running: dict[str, Running] = {}
        self._next_look = 0.0
        self._log = scratch / "warm.log"
        self._process = _start(setting, scratch, self._log)
        threading.Thread(target=self._read, daemon=True).start()
        config = {"libraries": setting.options.libraries, "fork": fork, "scratch": str(scratch)}
        self._tell(config)
        self.ready = self._wait_until_ready(setting)

    @property
    def forks(self) -> bool:
        """False: its children are new interpreters."""
        return bool(self.ready["mode"] == "fork")

    def submit(self, name: str, job: Path, limits: Limits, host: str | None = None) -> None:
        """Starts a job, on a host if one is named; its end comes as an event."""
        self.running[name] = Running(name, limits)
        self._tell({"job": name, "file": str(job), "host": host})

    def start_host(self, name: str, job: Path) -> None:
        """Starts a process that collects the tests; an event "hosted" or "unhosted" says what became of it."""
        self._tell({"host": name, "file": str(job)})

    def next_event(self, seconds: float) -> dict[str, Any] | None:
        """The next event, None if none comes in time. Ended jobs are no longer `running`."""
        try:
            event = self.events.get(timeout=seconds)
        except queue.Empty:
            return None
        if event["event"] == "start" and event["job"] in self.running:
            self.running[event["job"]].leader = event["leader"]
        return event

    def enforce(self) -> None:
        """Kills the jobs that are over a limit; looks no more often than every _LOOK_SECONDS."""
        if monotonic() < self._next_look:
            return
        self._next_look = monotonic() + _LOOK_SECONDS
        for job in self.running.values():
            if job.exceeded or job.leader is None:
                continue
            exceeded, said = _exceeded(job)
            if exceeded:
                job.exceeded, job.said = exceeded, said
                self._tell({"kill": job.name})

    def close(self, *, orderly: bool = True) -> None:
        """Ends the process and every job; afterwards none of theirs is left."""
        family = _family(self._process.pid)
        with contextlib.suppress(OSError, ValueError):
            if orderly:
                self._tell({"bye": True})
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _tell(self, line: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end comes as an event
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self.events.put(json.loads(line))
        self.events.put({"event": "gone"})

    def _wait_until_ready(self, setting: Setting) -> dict[str, Any]:
        deadline = monotonic() + _READY_SECONDS
        while (left := deadline - monotonic()) > 0:
            event = self.next_event(left)
            if event is not None and event["event"] == "ready":
                return event
            if event is not None and event["event"] == "gone":
                break
        self.close(orderly=True)
        lines = self._log.read_text(errors="replace").strip().splitlines()
        raise PythonError(setting.python, f"the warm process ended: {lines[-1] if lines else 'it said nothing'}")


def _start(setting: Setting, scratch: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as errors:
        try:
            return subprocess.Popen(
                module_command(setting, "warm"),
                cwd=scratch,
                env=warm_environment(setting, scratch),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends everything in order
            )
        except OSError as error:
            raise PythonError(setting.python, f"it doesn't start: {error.strerror}") from error


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _exceeded(job: Running) -> tuple[str, str]:
    wall = monotonic() - job.began
    if wall > job.limits.wall:
        return "timeout", f"more than {job.limits.wall:.0f} s of wall time"
    if wall < 1.0 or job.leader is None:
        return "", ""
    cpu, memory, printed = _usage(job.leader)
    if cpu > job.limits.cpu:
        return "timeout", f"more than {job.limits.cpu:.0f} s of CPU time"
    if memory > job.limits.memory:
        return "memory", f"more than {job.limits.memory / 1024**3:.1f} GiB of memory"
    if printed > _PRINTED:
        return "output", f"more than {_PRINTED >> 20} MiB of output"
    return "", ""


def _usage(leader: int) -> tuple[float, int, int]:
    """CPU seconds and resident bytes of all that a leader's job runs or ran; bytes in the files that it prints to."""
    cpu, memory, printed = 0.0, 0, 0
    for process in _family(leader):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            cpu += times.user + times.system + times.children_user + times.children_system
            memory += process.memory_info().rss
            printed = max(printed, *(_size(f"/proc/{process.pid}/fd/{number}") for number in (1, 2)))
    return cpu, memory, printed


def _size(path: str) -> int:
    """Of a file; 0 of a pipe, and where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
