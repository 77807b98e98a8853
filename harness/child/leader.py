"""One job's guardian: starts its process, keeps its output within bounds, leaves nothing behind.

On Linux everything that the job starts, daemons included, falls to the leader when its own parent dies, so
that all of it can be found and killed. Elsewhere only the job's process group can.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from resource import struct_rusage
from time import monotonic, sleep
from typing import Any

from fastlora_verify.harness.child.channel import Channel, hard_exit
from fastlora_verify.harness.child.place import Job

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LINUX = sys.platform == "linux"
_prctl = getattr(ctypes.CDLL(None), "prctl", None) if _LINUX else None
_CHUNK = 1 << 16
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_KILL_SECONDS = 10.0
_ENDING = 0.002  # s


def guard(name: str, job: Job, events: Channel, parent: int) -> None:
    """Forks the job's process and guards it; reports its start and its end. Returns only in the job's process."""
    _bind_to_parent(parent)
    os.setsid()
    _without_input()
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    stop = _StopFlag()
    reader, writer = os.pipe()
    begin = monotonic()
    me = os.getpid()
    child = os.fork()
    if child == 0:
        events.close()
        _become(writer, me)
        return
    os.close(writer)
    events.send({"event": "start", "job": name, "pid": child, "leader": me})
    pump = _Pump(reader, job["output"], job["output_limit"])
    status, usage = _wait(child, pump, stop)
    seconds = monotonic() - begin
    strays = kill_descendants(child)
    pump.drain()
    events.send(_exit_event(name, status, usage, seconds, strays, pump.dropped))
    hard_exit(0)


def become_guarded(parent: int, output: str) -> None:
    """Makes this process one that dies with `parent`, has no input, and writes into the file `output`."""
    _bind_to_parent(parent)
    os.setsid()
    _without_input()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _without_input() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


class _StopFlag:
    """Set by SIGTERM: the parent's wish that this job ends now."""

    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGTERM, self._set)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _set(self, *_: Any) -> None:
        self.wanted = True


def _bind_to_parent(parent: int) -> None:
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it died before the binding
        hard_exit(1)


def _become(writer: int, leader: int) -> None:
    """The child's first steps: own session, no input, bounded output, the signals of a fresh process."""
    _bind_to_parent(leader)
    os.setsid()
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    os.close(writer)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class _Pump:
    """Copies the pipe into a file until the limit, then reads on and forgets."""

    def __init__(self, reader: int, path: str, limit: int) -> None:
        self.dropped = 0
        self._reader = reader
        self._left = limit
        self._open = True
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.set_blocking(reader, False)

    @property
    def is_open(self) -> bool:
        """Whether somebody may still write."""
        return self._open

    def wait(self, seconds: float) -> None:
        """Copies what is there, or waits for it up to `seconds`."""
        if not self._open:
            sleep(seconds)
            return
        if select.select([self._reader], [], [], seconds)[0]:
            self._copy()

    def drain(self) -> None:
        """Copies the rest without waiting for more."""
        while self._open and select.select([self._reader], [], [], 0)[0]:
            self._copy()

    def _copy(self) -> None:
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        self._open = bool(data)
        kept = data[: self._left]
        self.dropped += len(data) - len(kept)
        self._left -= len(kept)
        while kept:
            kept = kept[os.write(self._file, kept) :]


def _wait(child: int, pump: _Pump, stop: _StopFlag) -> tuple[int, struct_rusage]:
    """The child's wait status and usage; on request, everything it started is killed first."""
    step = 0.002
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid == child:
            return status, usage
        if not pump.is_open:  # the last that held the pipe is ending
            step = min(step, _ENDING)
        if stop.wanted:
            for pid in [child, *descendants()]:
                _kill(pid)
        pump.wait(step)
        step = min(step * 1.5, 0.05)


def kill_descendants(group: int) -> int:
    """Kills what the job left running and reaps it; the number of processes killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    killed: set[int] = set()
    deadline = monotonic() + _KILL_SECONDS
    while monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # nor has anything outlived its own parent: it would have come to this process
            break
        for pid in descendants():
            killed.add(pid)
            _kill(pid)
        sleep(0.005)
    return len(killed)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def descendants() -> list[int]:
    """Ids of the processes under this one that haven't ended (Linux; elsewhere none)."""
    if not _LINUX:
        return []
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = _live_parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _live_parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[1])


def _exit_event(
    name: str, status: int, usage: struct_rusage, seconds: float, strays: int, dropped: int
) -> dict[str, Any]:
    return {
        "event": "exit",
        "job": name,
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "cpu": round(usage.ru_utime + usage.ru_stime, 4),
        "memory": usage.ru_maxrss * _RSS_UNIT,
        "wall": round(seconds, 4),
        "strays": strays,
        "dropped": dropped,
    }
