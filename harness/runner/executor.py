"""Where a column's tasks run: what the runner asks of it, and this machine as one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.runner.device import Device, device_of
from fastlora_verify.harness.runner.jobs import Setting
from fastlora_verify.harness.runner.pool import Done, Pool, Task, Worker, may_fork, processors
from fastlora_verify.harness.trees.tree import Master


class Executor(Protocol):
    """Runs the tasks of one column, from its controls to its audit."""

    @property
    def forks(self) -> bool:
        """Whether children are forked off a warm process; False: each is a new interpreter."""

    @property
    def why_new(self) -> str:
        """Why they aren't forked, where that was wanted."""

    @property
    def size(self) -> int:
        """How many tasks run at once. So many given at once are one for each place that runs one."""

    @property
    def elsewhere(self) -> bool:
        """Whether its tasks run on other machines, of which nothing is known from earlier runs."""

    def use_new_interpreters(self) -> None:
        """From now on no child is forked."""

    def host(self, libraries: Sequence[str]) -> str:
        """Has the tests collected once a place; the reason why not, if so."""

    def unhost(self) -> None:
        """From now on every task collects the tests itself."""

    def run(self, tasks: Iterable[Task], done: Done) -> None:
        """Runs every task; `done` is called in this thread, in the order in which they end."""

    def close(self) -> None:
        """Ends everything that it started."""


class Machines(Protocol):
    """What a run's columns are run on."""

    def device(self, setting: Setting) -> Device:
        """What the target's interpreter has there. Raises PythonError."""

    def executor(self, setting: Setting, *, fork: bool, most: int) -> Executor:
        """For one column, whose device was asked before; `most` tasks will be given to it at a time."""

    def close(self) -> None:
        """Lets go of the machines."""


class ThisMachine:
    """The machine that the command runs on; workers and their copies serve all columns."""

    def __init__(self, options: RunOptions, master: Master, scratch: Path) -> None:
        self._options = options
        self._master = master
        self._scratch = scratch
        self._workers: list[Worker] = []

    def device(self, setting: Setting) -> Device:
        return device_of(setting, self._scratch)

    def executor(self, setting: Setting, *, fork: bool, most: int) -> Pool:
        count = max(1, min(self._options.workers or processors(), most))
        for index in range(len(self._workers), count):
            self._workers.append(Worker(self._master, self._scratch / f"w{index}"))
        wanted = fork and may_fork(setting.device, cold=self._options.cold)
        return Pool(setting, self._workers, self._scratch, fork=wanted)

    def close(self) -> None:
        """Nothing runs between columns; the copies go with the run's scratch folder."""
