"""A process that has collected the target's tests: each job goes on in a fork of it, without pytest's start.

Only for mutants whose file was neither imported nor read while the tests were collected: what the fork finds in
memory is then the same as if it had collected them itself. The parent runs a control on it.

It reads the lines `{"job": name, "file": path}` and `{"kill": name}`.

| line out | meaning |
| --- | --- |
| hosted | `imported`: the files of the copy that are in memory, or were |
| unhosted | `reason`: it serves no job |
| start, exit, lost | as in `warm.py` |
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import linecache
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from fastlora_verify.harness.child.channel import Channel, hard_exit
from fastlora_verify.harness.child.elsewhere import watch_elsewhere, watch_runs
from fastlora_verify.harness.child.facts import Facts, Kept
from fastlora_verify.harness.child.harm import Harm, keep_libraries
from fastlora_verify.harness.child.leader import become_guarded
from fastlora_verify.harness.child.leaders import Leaders
from fastlora_verify.harness.child.lines import Lines
from fastlora_verify.harness.child.place import Job, enter, files_in_memory, probe_of
from fastlora_verify.harness.child.probe import Probe
from fastlora_verify.harness.child.suite import finish, only_of, session, stop_early
from fastlora_verify.harness.child.threads import reason_not_to_fork


def serve(name: str, job: Job, commands: int, events: Channel, parent: int) -> NoReturn:
    """Collects the job's tests, then serves until `commands` ends."""
    become_guarded(parent, job["output"])
    enter(job)
    elsewhere: list[bool] = []
    real = {os.path.realpath(os.path.join(job["copy"], path)): path for path in job["watch"]}
    ran: set[str] = set()
    watch_elsewhere(lambda: elsewhere.append(True), frozenset(real))
    watch_runs(lambda path: ran.add(real[path]), frozenset(real))
    preload(job["preload"])
    kept = Kept()
    facts = Facts(kept, Probe({}), job["copy"], job["gpu_marker"])
    host = Host(name, job, Lines(commands), events, facts, elsewhere, ran)
    status = session(job, [facts, host], facts)
    if host.job is None:
        events.send({"event": "unhosted", "host": name, "reason": "the tests were not collected to the end"})
        hard_exit(0)
    finish(host.job, facts, facts, host.probe, status)


def preload(names: list[str]) -> None:
    """Imports what the unmutated tests imported from elsewhere than the target, in their order."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


class Host:
    """The plugin that stops before the first test, and goes on in each job's process."""

    def __init__(
        self,
        name: str,
        job: Job,
        lines: Lines,
        events: Channel,
        facts: Facts,
        elsewhere: list[bool],
        ran: set[str],
    ) -> None:
        self.job: Job | None = None  # in a job's process: its own
        self.probe = Probe({})
        self._name = name
        self._first = job
        self._lines = lines
        self._events = events
        self._leaders = Leaders(events)
        self._facts = facts
        self._elsewhere = elsewhere
        self._ran = ran  # mutated files that were run, relative to the copy

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Serves; in a job's process it returns, and pytest's own loop follows."""
        reason = self._reason(session)
        if reason:
            self._events.send({"event": "unhosted", "host": self._name, "reason": reason})
            hard_exit(0)
        files = sorted({*files_in_memory(self._first["copy"]), *self._ran})
        keep_libraries()
        gc.collect()
        gc.freeze()
        sys.stdout.flush()
        sys.stderr.flush()
        self._events.send({"event": "hosted", "host": self._name, "imported": files})
        self._go_on(self._next_job(), session)

    def _reason(self, session: pytest.Session) -> str:
        """Why no job can go on from here."""
        if self._elsewhere:
            return "a process is started, or a mutated file read, while the tests are collected"
        if session.testsfailed or session.shouldstop or session.shouldfail:
            return "not every test is collected"
        return reason_not_to_fork()

    def _next_job(self) -> Job:
        """Returns in the process of a job only."""
        while True:
            for line in self._lines.read(0.2):
                if "kill" in line:
                    self._leaders.kill(line["kill"])
                elif (job := self._started(line)) is not None:
                    return job
            self._leaders.reap()
            if self._lines.ended:
                self._leaders.close()
                hard_exit(0)

    def _started(self, line: dict[str, Any]) -> Job | None:
        with open(line["file"], encoding="utf-8") as file:
            job: Job = json.load(file)
        return job if self._leaders.start(line["job"], job) else None

    def _go_on(self, job: Job, session: pytest.Session) -> None:
        """Makes this process the job's, as if it had collected the tests itself."""
        _redirect(self._first["output"])
        _renew_capture(session.config)
        _renew_places(self._first, job, session.config)
        self.job, self.probe = job, probe_of(job)
        stop_early(job, self._facts, self._facts, self.probe)
        harm = Harm(job["copy"]) if job["harm"] else None
        self._facts.go_on(Channel.to_file(job["facts"]), self.probe, only_of(job), harm, session.items)


def _redirect(output: str) -> None:
    """What pytest and its plugins hold as the first standard output is now the job's."""
    first = os.stat(output)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            there = os.fstat(int(name))
            if (there.st_dev, there.st_ino) == (first.st_dev, first.st_ino):
                os.dup2(1, int(name))


def _renew_capture(config: pytest.Config) -> None:
    """What pytest captures goes to files that all forks share: one killed while it printed leaves its text there."""
    capturing = getattr(config.pluginmanager.getplugin("capturemanager"), "_global_capturing", None)
    for name in ("out", "err"):
        file = getattr(getattr(capturing, name, None), "tmpfile", None)
        with contextlib.suppress(AttributeError, OSError, ValueError), tempfile.TemporaryFile() as own:
            os.dup2(own.fileno(), file.fileno(), inheritable=False)  # type: ignore[union-attr]


def _renew_places(first: Job, job: Job, config: pytest.Config) -> None:
    """Folders of the job instead of the host's, and no memory of files that have changed since."""
    old = os.environ.get("TMPDIR")
    os.environ.update(job["env"])
    if tempfile.tempdir == old:
        tempfile.tempdir = None
    importlib.invalidate_caches()
    linecache.clearcache()
    cache: Any = getattr(config, "cache", None)
    if hasattr(cache, "_cachedir"):
        cache._cachedir = Path(job["cache"])
