"""Several machines as one executor: tasks go out, results come back, what a lost machine had goes out again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from fastlora_verify.harness.errors import NodeError
from fastlora_verify.harness.runner.device import Device
from fastlora_verify.harness.runner.jobs import Setting
from fastlora_verify.harness.runner.node import JUNIT, Answer, Ended
from fastlora_verify.harness.runner.pool import Done, Task

AHEAD = 2  # tasks given to a machine at a time, of as many as it runs at once: none waits for the next

Ref = Any  # a call under way


class Lost(Exception):  # noqa: N818 - a machine is
    """A machine went away with all that it ran."""


class Wire(Protocol):
    """How machines are reached."""

    def call(self, node: Remote, method: str, *arguments: Any) -> Ref:
        """Starts `Node.ask` there."""

    def wait(self, calls: Collection[Ref]) -> Sequence[Ref]:
        """Those that ended, one at least."""

    def get(self, call: Ref) -> Answer:
        """What an ended call gave. Raises Lost."""

    def end(self, node: Remote) -> None:
        """Lets go of a machine, whether it answers or not."""


@dataclass(eq=False)
class Remote:
    """A machine, or a card of one."""

    name: str
    size: int  # tasks at once
    handle: Any
    held: dict[str, Task] = field(default_factory=dict)  # tasks that it was given and that have not ended


class Nodes:
    """The executor."""

    def __init__(self, wire: Wire, nodes: Sequence[Remote], scratch: Path, note: Callable[[str], None]) -> None:
        self._wire = wire
        self._nodes = list(nodes)
        self._scratch = scratch
        self._note = note
        self._forks: list[tuple[bool, str]] = []

    def device(self, setting: Setting, same: tuple[str, str]) -> Device:
        """What all of them have. Raises NodeError where they differ in it, or in the tool's code or the tree."""
        for node, found in self._all("same"):
            for name, here, there in zip(("fastlora-verify", "tree"), same, found, strict=True):
                if here != there:
                    raise NodeError(f"node {node.name} has another {name} than this machine")
        devices: list[tuple[Remote, Device]] = self._all("device", setting)
        first, device = devices[0]
        for node, other in devices[1:]:
            for what, mine, theirs in _facts(device, other):
                if mine != theirs:
                    raise NodeError(f"nodes {first.name} and {node.name} differ in {what}: {mine} and {theirs}")
        return device

    def open(self, setting: Setting, *, fork: bool, most: int) -> Nodes:
        """Itself, ready for tasks; children are forked everywhere or nowhere."""
        for node in self._nodes:
            node.size = max(1, min(node.size, most))
        self._forks = [told for _, told in self._all("open", setting, fork)]
        if self.forks != any(forks for forks, _ in self._forks):
            self.use_new_interpreters()
        return self

    @property
    def forks(self) -> bool:
        return all(forks for forks, _ in self._forks)

    @property
    def why_new(self) -> str:
        return next((why for forks, why in self._forks if not forks), "")

    @property
    def size(self) -> int:
        return sum(node.size for node in self._nodes)

    @property
    def elsewhere(self) -> bool:
        return True

    def use_new_interpreters(self) -> None:
        self._all("use_new_interpreters")
        self._forks = [(False, self.why_new)]

    def host(self, libraries: Sequence[str]) -> str:
        reason = next((why for _, why in self._all("host", libraries) if why), "")
        if reason:
            self.unhost()
        return reason

    def unhost(self) -> None:
        self._all("unhost")

    def run(self, tasks: Iterable[Task], done: Done) -> None:
        """As `Executor.run`. Raises NodeError once no machine is left."""
        waiting = iter(tasks)
        again: list[Task] = []
        calls: dict[Ref, Remote] = {}
        self._feed(calls, again, waiting)
        while calls:
            for call in self._wire.wait(list(calls)):
                node = calls.pop(call)
                try:
                    found = self._value(node, self._wire.get(call))
                except Lost:
                    again += self._gone(node)
                    continue
                for ended in found:
                    self._ended(node, ended, done)
            self._feed(calls, again, waiting)

    def close(self) -> None:
        for node in self._nodes:
            self._wire.end(node)
        self._nodes = []

    def _feed(self, calls: dict[Ref, Remote], again: list[Task], waiting: Iterator[Task]) -> None:
        """Gives tasks to every machine that is not being waited for: first as many as run at once, then some ahead."""
        idle = [node for node in self._nodes if node not in calls.values()]
        given: dict[Remote, list[Task]] = {node: [] for node in idle}
        for ahead in range(1, AHEAD + 1):
            for node in idle:
                while len(node.held) < ahead * node.size:
                    task = again.pop(0) if again else next(waiting, None)
                    if task is None:
                        break
                    node.held[task.name] = task
                    given[node].append(task)
        for node in idle:
            if node.held:
                calls[self._wire.call(node, "exchange", given[node])] = node

    def _ended(self, node: Remote, ended: Ended, done: Done) -> None:
        results = ended.results
        if ended.junit is not None:
            folder = self._scratch / "audited"
            folder.mkdir(exist_ok=True)
            (folder / JUNIT).write_bytes(ended.junit)
            results = [replace(results[0], scratch=folder), *results[1:]]
        done(node.held.pop(ended.name), results)

    def _gone(self, node: Remote) -> list[Task]:
        """What the machine was given; it gets nothing any more."""
        self._nodes.remove(node)
        self._wire.end(node)
        tasks = list(node.held.values())
        if not self._nodes:
            raise NodeError(f"node {node.name} was lost, and no other is left; the same command goes on from here")
        self._note(f"node {node.name} was lost: what it ran ({len(tasks)}) is run again on the others")
        return tasks

    def _all(self, method: str, *arguments: Any) -> list[tuple[Remote, Any]]:
        """Every machine's answer; those that are lost meanwhile are left out. Raises NodeError where one fails."""
        calls = [(node, self._call(node, method, arguments)) for node in self._nodes]
        found = []
        for node, call in calls:
            while call not in self._wire.wait([call]):
                pass
            try:
                found.append((node, self._value(node, self._wire.get(call))))
            except Lost:
                self._gone(node)
        return found

    def _call(self, node: Remote, method: str, arguments: tuple[Any, ...]) -> Ref:
        own = (arguments[0], node.size, arguments[1]) if method == "open" else arguments
        return self._wire.call(node, method, *own)

    def _value(self, node: Remote, answer: Answer) -> Any:
        if answer.failure:
            raise NodeError(f"node {node.name}: {answer.failure}")
        if answer.fault:
            raise RuntimeError(f"node {node.name}: {answer.fault}")
        return answer.value


def _facts(one: Device, other: Device) -> Iterator[tuple[str, object, object]]:
    yield "the device", one.reason or one.device_name or "cpu", other.reason or other.device_name or "cpu"
    for name in sorted({*one.versions, *other.versions}):
        yield name, one.versions.get(name, "missing"), other.versions.get(name, "missing")
