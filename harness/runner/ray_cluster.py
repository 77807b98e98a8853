"""A Ray cluster as the machines of a run: an actor a node, or a card; the tree goes there once. Imports Ray lazily."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import NodeError, UsageError
from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.runner.device import Device
from fastlora_verify.harness.runner.jobs import Setting
from fastlora_verify.harness.runner.node import Answer, Node, packed
from fastlora_verify.harness.runner.nodes import Lost, Nodes, Remote
from fastlora_verify.harness.runner.store import runner_digest
from fastlora_verify.harness.trees.tree import Master

_START = 120.0  # s, for an actor to be placed and to have the tree
_END = 20.0  # s, for one to end what it runs
_REACH = 10.0  # s, for a cluster's address to answer: Ray itself tries for minutes


def check_installed() -> None:
    """Raises UsageError, which says what to install."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("--executor ray needs Ray, which is not installed; pip install 'fastlora-verify[ray]'")


def _reach(address: str | None) -> None:
    """Raises OSError where nothing listens at HOST:PORT or ray://HOST:PORT; other words are Ray's own."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_REACH).close()


class RayCluster:
    """The cluster at an address, else the one that Ray finds, else one of this machine alone."""

    def __init__(self, options: RunOptions, master: Master, scratch: Path, note: Callable[[str], None]) -> None:
        check_installed()
        import ray

        self._ray = ray
        self._options = options
        self._scratch = scratch
        self._note = note
        self._nodes: Nodes | None = None
        try:
            _reach(options.address)
            ray.init(address=options.address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            where = f"--address {options.address}: " if options.address else ""
            raise NodeError(f"{where}no Ray cluster answers ({str(error).partition(chr(10))[0]})") from error
        self._tree = ray.put(packed(master))
        self._same = runner_digest(), master.digest

    def device(self, setting: Setting) -> Device:
        """What the target's interpreter has on every node."""
        self._let_go()
        places = self._places(setting.device)
        if not places:
            return Device(
                f"no node of the Ray cluster has a {'card' if setting.device != 'cpu' else 'processor'}", "", {}
            )
        self._nodes = Nodes(_Wire(self._ray), self._started(places, setting.device), self._scratch, self._note)
        return self._nodes.device(setting, self._same)

    def executor(self, setting: Setting, *, fork: bool, most: int) -> Nodes:
        assert self._nodes is not None
        return self._nodes.open(setting, fork=fork, most=most)

    def close(self) -> None:
        self._let_go()
        self._ray.shutdown()

    def _let_go(self) -> None:
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None

    def _places(self, device: str) -> list[tuple[dict[str, Any], int]]:
        """Nodes, each with how many tasks it runs at once; a node with several cards is there once a card."""
        found = []
        for node in self._ray.nodes():
            if node["Alive"]:
                has = int(node["Resources"].get("CPU" if device == "cpu" else "GPU", 0))
                wanted = self._options.workers
                found += (
                    [(node, min(has, wanted or has))] * bool(has) if device == "cpu" else [(node, wanted or 1)] * has
                )
        return found

    def _started(self, places: Sequence[tuple[dict[str, Any], int]], device: str) -> list[Remote]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remotes = []
        for node, size in places:
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            share = {"num_cpus": size} if device == "cpu" else {"num_cpus": 0, "num_gpus": 1}
            actor = (
                self._ray.remote(Node).options(scheduling_strategy=where, max_restarts=0, **share).remote(self._tree)
            )
            remotes.append(Remote(f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})", size, actor))
        calls = {remote.handle.ask.remote("same"): remote for remote in remotes}
        ready, late = self._ray.wait(list(calls), num_returns=len(calls), timeout=_START)
        for call in late:
            self._note(f"node {calls[call].name} is left out: it has no room within {_START:.0f} s")
            self._ray.kill(calls[call].handle)
        if not ready:
            raise NodeError(f"no node of the Ray cluster has room for this within {_START:.0f} s")
        return [remote for call, remote in calls.items() if call in ready]


class _Wire:
    """Calls of actors."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def call(self, node: Remote, method: str, *arguments: Any) -> Any:
        return node.handle.ask.remote(method, *arguments)

    def wait(self, calls: Collection[Any]) -> Sequence[Any]:
        ready, _ = self._ray.wait(list(calls), num_returns=1)
        return list(ready)

    def get(self, call: Any) -> Answer:
        try:
            answer: Answer = self._ray.get(call)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            raise Lost from error
        return answer

    def end(self, node: Remote) -> None:
        """In order where it answers, since its warm process is to end with it."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(node.handle.ask.remote("close"), timeout=_END)
        self._ray.kill(node.handle)
