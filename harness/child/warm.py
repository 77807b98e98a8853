"""The warm process of a column: imports the libraries once, then forks one leader a job.

It reads JSON lines on stdin and writes JSON lines on stdout.

| line in | meaning |
| --- | --- |
| first line | `libraries`, `fork`, `scratch` |
| `{"job": name, "file": path}` | start it; `place.Job` says what is in the file |
| `{"kill": name}` | end it and all that it started |
| `{"bye": true}` | all is well, leave `scratch` alone |

| line out | meaning |
| --- | --- |
| ready | `mode` ("fork" or "spawn"), `reason` for spawn, `failed` imports |
| start, exit | of a job, written by its leader |
| lost | a leader died without a word |

When stdin ends without a goodbye the parent is gone: every job is killed and `scratch` removed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

from fastlora_verify.harness.child.channel import Channel, private_fd
from fastlora_verify.harness.child.leader import lead
from fastlora_verify.harness.child.threads import reason_not_to_fork

_CLOSE_SECONDS = 15.0


def main() -> None:
    """Serves jobs until stdin ends."""
    events = Channel(private_fd(1), vital=False)
    os.dup2(2, 1)  # what a library prints while it is imported must not get between the lines
    lines = _Lines(0)
    config = lines.first()
    server = _Server(events, config)
    events.send({"event": "ready", **server.warm_up()})
    server.serve(lines)


class _Lines:
    """Complete lines of a file descriptor, as JSON."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self.ended = False

    def first(self) -> dict[str, Any]:
        """Waits for the first line."""
        while not self.ended:
            for line in self.read(3600.0):
                return line
        raise SystemExit(0)

    def read(self, seconds: float) -> Iterator[dict[str, Any]]:
        """The lines that are there, or that come within `seconds`."""
        if b"\n" not in self._rest and select.select([self._fd], [], [], seconds)[0]:
            data = os.read(self._fd, 1 << 16)
            self.ended = not data
            self._rest += data
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            yield json.loads(line)


class _Server:
    def __init__(self, events: Channel, config: dict[str, Any]) -> None:
        self._events = events
        self._config = config
        self._leaders: dict[int, str] = {}
        self._orderly = False

    def warm_up(self) -> dict[str, Any]:
        """Imports the libraries and pytest; nothing of the target, no tensor operation."""
        failed: dict[str, str] = {}
        reason = "" if self._config["fork"] else "asked for"
        if not reason:
            for name in self._config["libraries"]:
                try:
                    importlib.import_module(name)
                except Exception as error:
                    failed[name] = f"{type(error).__name__}: {error}"[:300]
            _import_pytest()
            reason = _reason_not_to_fork()
        gc.collect()
        gc.freeze()
        return {"mode": "spawn" if reason else "fork", "reason": reason, "failed": failed}

    def serve(self, lines: _Lines) -> None:
        """Until stdin ends; then every job is ended."""
        while not lines.ended:
            for line in lines.read(0.2):
                self._obey(line)
            self._reap()
        self._close()

    def _obey(self, line: dict[str, Any]) -> None:
        if "job" in line:
            self._start(line["job"], line["file"])
        elif "kill" in line:
            for pid, name in self._leaders.items():
                if name == line["kill"]:
                    os.kill(pid, signal.SIGTERM)
        self._orderly = self._orderly or "bye" in line

    def _start(self, name: str, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            job = json.load(file)
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._leaders[pid] = name
            return
        try:
            lead(name, job, _work(job), self._events, parent)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while self._leaders:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._leaders.pop(pid, None)
            if name is not None and status != 0:
                self._events.send({"event": "lost", "job": name})

    def _close(self) -> None:
        deadline = monotonic() + _CLOSE_SECONDS
        while self._leaders and monotonic() < deadline:
            for pid in self._leaders:
                os.kill(pid, signal.SIGTERM)
            sleep(0.05)
            self._reap()
        for pid in self._leaders:
            os.kill(pid, signal.SIGKILL)
        if not self._orderly and self._config["scratch"]:
            shutil.rmtree(self._config["scratch"], ignore_errors=True)


def _import_pytest() -> None:
    """pytest's own modules, which every child would import again. Plugins stay out: pytest rewrites them."""
    from _pytest.config import default_plugins

    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    importlib.import_module("fastlora_verify.harness.child.suite")


def _reason_not_to_fork() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "importing the libraries made a CUDA context"
    return reason_not_to_fork()


def _work(job: dict[str, Any]) -> Callable[[], None]:
    """What the job's process does: another program, or the job in this very process."""
    command: list[str] | None = job["exec"]
    if command is None:
        from fastlora_verify.harness.child.suite import run_job

        return lambda: run_job(job)

    def execute() -> None:
        os.chdir(job["copy"])
        os.execve(command[0], command, job["full_env"])

    return execute


if __name__ == "__main__":
    main()
