"""The leaders of one process's jobs: forked, told to end, reaped."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from time import monotonic, sleep

from fastlora_verify.harness.child.channel import Channel
from fastlora_verify.harness.child.leader import guard
from fastlora_verify.harness.child.place import Job

_CLOSE_SECONDS = 15.0


class Leaders:
    """By process id, the name of the job that each guards."""

    def __init__(self, events: Channel) -> None:
        self._events = events
        self._names: dict[int, str] = {}

    def start(self, name: str, job: Job) -> bool:
        """Forks a leader, which forks the job's process. True in that one, False in this; the leader never returns."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._names[pid] = name
            return False
        try:
            guard(name, job, self._events, parent)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        self._names = {}
        return True

    def kill(self, name: str) -> None:
        """Ends a job and all that it started; its end is told as any other."""
        for pid, known in self._names.items():
            if known == name:
                os.kill(pid, signal.SIGTERM)

    def reap(self, others: Callable[[int], None] = lambda _: None) -> None:
        """Takes note of children that ended; `others` hears of those that are no leaders."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._names.pop(pid, None)
            if name is None:
                others(pid)
            elif status != 0:
                self._events.send({"event": "lost", "job": name})

    def close(self) -> None:
        """Ends every job."""
        deadline = monotonic() + _CLOSE_SECONDS
        while self._names and monotonic() < deadline:
            for pid in self._names:
                os.kill(pid, signal.SIGTERM)
            sleep(0.05)
            self.reap()
        for pid in self._names:
            os.kill(pid, signal.SIGKILL)
