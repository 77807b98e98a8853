"""One machine's share of a column, run where it was sent: its own copies of the tree, its own warm process."""

from __future__ import annotations

import io
import queue
import shutil
import tarfile
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import Failure
from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.device import Device, device_of
from fastlora_verify.harness.runner.jobs import Setting, make_bridge
from fastlora_verify.harness.runner.pool import Pool, StageResult, Task, Worker, may_fork
from fastlora_verify.harness.runner.store import runner_digest
from fastlora_verify.harness.trees.tree import Master, snapshot

JUNIT = "junit.xml"


@dataclass(frozen=True)
class Answer:
    """What became of a question: a value, else why there is none."""

    value: Any = None
    failure: str = ""  # something of the user's, in one line
    fault: str = ""  # anything else: a traceback


@dataclass(frozen=True)
class Ended:
    """A task that came to its end on a node."""

    name: str
    results: list[StageResult]
    junit: bytes | None  # of an audit


def packed(master: Master) -> bytes:
    """The tree of a master as an archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
        archive.add(master.path, arcname="master")
    return data.getvalue()


def unpacked(data: bytes, folder: Path) -> Master:
    """The master that was packed, in a new folder."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(folder, filter="fully_trusted")  # our own copy of the user's own tree
    return Master(folder / "master", snapshot(folder / "master"))


class Node:
    """The far side. Every method but `ask` may raise; `ask` is called from elsewhere, one call at a time."""

    def __init__(self, tree: bytes) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="fastlora-verify-")).resolve()
        self._master = unpacked(tree, self._scratch)
        self._bridge = make_bridge(self._scratch / "bridge")
        self._pool: Pool | None = None
        self._given: queue.SimpleQueue[list[Task] | None] = queue.SimpleQueue()
        self._waiting: deque[Task] = deque()
        self._ended: queue.SimpleQueue[Ended | Answer] = queue.SimpleQueue()
        self._quiet = threading.Lock()  # held while tasks run
        self._thread: threading.Thread | None = None

    def ask(self, method: str, *arguments: Any) -> Answer:
        """The method's value; exceptions become words, since not all of them survive the way back."""
        try:
            return Answer(getattr(self, method)(*arguments))
        except Failure as failure:
            return Answer(failure=str(failure))
        except Exception:
            return Answer(fault=traceback.format_exc())

    def same(self) -> tuple[str, str]:
        """Digests of what must be the same everywhere: the runner's code, and the tree."""
        return runner_digest(), self._master.digest

    def device(self, setting: Setting) -> Device:
        """What the target's interpreter has here."""
        return device_of(self._own(setting), self._scratch)

    def open(self, setting: Setting, workers: int, fork: bool) -> tuple[bool, str]:
        """Makes this ready for tasks; whether children are forked, and why not."""
        copies = [Worker(self._master, self._scratch / f"w{index}") for index in range(workers)]
        wanted = fork and may_fork(setting.device, cold=setting.options.cold)
        self._pool = Pool(self._own(setting), copies, self._scratch, fork=wanted)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        return self._pool.forks, self._pool.why_new

    def use_new_interpreters(self) -> None:
        with self._quiet:
            self._ready.use_new_interpreters()

    def host(self, libraries: Sequence[str]) -> str:
        with self._quiet:
            return self._ready.host(libraries)

    def unhost(self) -> None:
        with self._quiet:
            self._ready.unhost()

    def exchange(self, tasks: list[Task]) -> list[Ended]:
        """Takes these tasks, which run from now on; waits for the end of at least one of all that were given."""
        if tasks:
            self._given.put(tasks)
        found = [self._ended.get()]
        while not self._ended.empty():
            found.append(self._ended.get())
        for one in found:
            if isinstance(one, Answer):
                raise Failure(one.failure) if one.failure else RuntimeError(one.fault)
        return [one for one in found if isinstance(one, Ended)]

    def close(self) -> None:
        """Ends all that runs here and takes the copies away."""
        self._waiting.clear()
        self._given.put(None)
        if self._pool is not None:
            self._pool.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _own(self, setting: Setting) -> Setting:
        return replace(setting, bridge=self._bridge)

    @property
    def _ready(self) -> Pool:
        assert self._pool is not None
        return self._pool

    def _work(self) -> None:
        try:
            while (tasks := self._given.get()) is not None:
                self._waiting.extend(tasks)
                with self._quiet:
                    self._ready.run(self, self._done)
        except Failure as failure:
            self._ended.put(Answer(failure=str(failure)))
        except Exception:
            self._ended.put(Answer(fault=traceback.format_exc()))

    def __iter__(self) -> Iterator[Task]:
        """The tasks given so far; unlike a generator's, its end is not final: more may come while others run."""
        return self

    def __next__(self) -> Task:
        while not self._given.empty():
            tasks = self._given.get()
            if tasks is None:
                self._given.put(None)
                raise StopIteration
            self._waiting.extend(tasks)
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def _done(self, task: Task, results: list[StageResult]) -> None:
        junit = None
        if task.stages[0].kind == jobs.AUDIT and (results[0].scratch / JUNIT).exists():
            junit = (results[0].scratch / JUNIT).read_bytes()
        self._ended.put(Ended(task.name, list(results), junit))
