"""Machines as threads, for what the runner does with several of them: no Ray."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Collection, Sequence
from typing import Any

from fastlora_verify.harness.runner.node import Answer
from fastlora_verify.harness.runner.nodes import Lost, Remote


class Threads:
    """Machines as threads; what is said goes through pickle, as it does between real ones."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._calls: queue.SimpleQueue[tuple[int, Answer | None]] = queue.SimpleQueue()
        self._got: dict[int, Answer | None] = {}
        self._number = 0

    def call(self, node: Remote, method: str, *arguments: Any) -> int:
        self._number += 1
        number, said = self._number, pickle.dumps((method, arguments))

        def ask() -> None:
            name, words = pickle.loads(said)
            try:
                answer = pickle.loads(pickle.dumps(node.handle.ask(name, *words)))
            except Lost:
                answer = None
            self._calls.put((number, answer))

        threading.Thread(target=ask, daemon=True).start()
        return number

    def wait(self, calls: Collection[int]) -> Sequence[int]:
        while not (ready := [call for call in calls if call in self._got]):
            number, answer = self._calls.get(timeout=120)
            self._got[number] = answer
        return ready

    def get(self, call: int) -> Answer:
        answer = self._got[call]
        if answer is None:
            raise Lost
        return answer

    def end(self, node: Remote) -> None:
        self.ended.append(node.name)
