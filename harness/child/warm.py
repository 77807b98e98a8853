"""The warm process of a column: imports the libraries once, then forks one leader a job.

It reads JSON lines on stdin and writes JSON lines on stdout.

| line in | meaning |
| --- | --- |
| first line | `libraries`, `fork`, `scratch` |
| `{"host": name, "file": path}` | start a process that collects the tests, see `host.py` |
| `{"job": name, "file": path, "host": name or null}` | start it; `place.Job` says what is in the file |
| `{"kill": name}` | end it and all that it started |
| `{"bye": true}` | all is well, leave `scratch` alone |

| line out | meaning |
| --- | --- |
| ready | `mode` ("fork" or "spawn"), `reason` for spawn, `failed` imports |
| start, exit | of a job, written by its leader |
| lost | a leader died without a word |
| hosted, unhosted | of a host, written by itself; unhosted also when it died |

When stdin ends without a goodbye the parent is gone: every job is killed and `scratch` removed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import shutil
import sys
import traceback
from typing import Any, NoReturn

from fastlora_verify.harness.child.channel import Channel, hard_exit, private_fd
from fastlora_verify.harness.child.harm import keep_libraries
from fastlora_verify.harness.child.leaders import Leaders
from fastlora_verify.harness.child.lines import Lines
from fastlora_verify.harness.child.threads import reason_not_to_fork


def main() -> None:
    """Serves jobs until stdin ends."""
    events = Channel(private_fd(1), vital=False)
    os.dup2(2, 1)  # what a library prints while it is imported must not get between the lines
    lines = Lines(0)
    config = lines.first()
    server = _Server(events, config)
    events.send({"event": "ready", **server.warm_up()})
    server.serve(lines)


class _Server:
    def __init__(self, events: Channel, config: dict[str, Any]) -> None:
        self._events = events
        self._config = config
        self._leaders = Leaders(events)
        self._hosts: dict[str, _Host] = {}
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
            keep_libraries()
            reason = _reason_not_to_fork()
        gc.collect()
        gc.freeze()
        return {"mode": "spawn" if reason else "fork", "reason": reason, "failed": failed}

    def serve(self, lines: Lines) -> None:
        """Until stdin ends; then every job is ended."""
        while not lines.ended:
            for line in lines.read(0.2):
                self._obey(line)
            self._leaders.reap(self._forget_host)
        self._close()

    def _obey(self, line: dict[str, Any]) -> None:
        if "kill" in line:
            self._leaders.kill(line["kill"])
            for host in self._hosts.values():
                host.tell(line)
        elif line.get("job") and line.get("host") in self._hosts:
            self._hosts[line["host"]].tell(line)
        elif "job" in line:
            self._start(line["job"], line["file"])
        elif "host" in line:
            self._start_host(line["host"], line["file"])
        self._orderly = self._orderly or "bye" in line

    def _start(self, name: str, path: str) -> None:
        job = _read(path)
        if self._leaders.start(name, job):
            try:
                _work(job)
            finally:
                hard_exit(127)

    def _start_host(self, name: str, path: str) -> None:
        job = _read(path)
        parent = os.getpid()
        commands, writer = os.pipe()
        pid = os.fork()
        if pid:
            os.close(commands)
            self._hosts[name] = _Host(pid, private_fd(writer))
            os.close(writer)
            return
        try:
            os.close(writer)
            for host in self._hosts.values():
                os.close(host.commands)
            from fastlora_verify.harness.child.host import serve

            serve(name, job, private_fd(commands), self._events, parent)
        except BaseException:
            traceback.print_exc()
        finally:
            hard_exit(127)

    def _forget_host(self, pid: int) -> None:
        for name, host in list(self._hosts.items()):
            if host.pid == pid:
                os.close(self._hosts.pop(name).commands)
                self._events.send({"event": "unhosted", "host": name, "reason": "the process that collects ended"})

    def _close(self) -> None:
        for host in self._hosts.values():
            os.close(host.commands)  # it ends its jobs and itself; at the latest when this process ends
        self._leaders.close()
        for host in self._hosts.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(host.pid, 0)
        if not self._orderly and self._config["scratch"]:
            shutil.rmtree(self._config["scratch"], ignore_errors=True)


class _Host:
    def __init__(self, pid: int, commands: int) -> None:
        self.pid = pid
        self.commands = commands

    def tell(self, line: dict[str, Any]) -> None:
        """Passes a line on; a host that died is told of elsewhere."""
        with contextlib.suppress(OSError):
            os.write(self.commands, json.dumps(line).encode() + b"\n")


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        job: dict[str, Any] = json.load(file)
    return job


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


def _work(job: dict[str, Any]) -> NoReturn:
    """What the job's process does: another program, or the job in this very process."""
    command: list[str] | None = job["exec"]
    if command is not None:
        os.chdir(job["copy"])
        os.execve(command[0], command, job["full_env"])
    from fastlora_verify.harness.child.suite import run_job

    run_job(job)


if __name__ == "__main__":
    main()
