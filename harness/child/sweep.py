"""A pytest plugin for one test under one seed: chooses its arms, gives the seed, tells the figures.

| event | fields |
| --- | --- |
| items | items: of all collected tests `test`, `arm`, `argument`, `label`, `select` (an argument of pytest) |
| chosen | arms: of each test that is run now, the arm |
| swept | test, arm, argument, applied, given, asserted, failure, text |

`given` are the seeds that the test itself sets and that were shifted. `asserted` are the comparisons that held,
the narrowest of each assertion; `failure` is the figure in the exception's `text`.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import asdict
from typing import Any

import pytest

from fastlora_verify.harness.child import figures
from fastlora_verify.harness.child.arms import Arm, arms_of, is_taken
from fastlora_verify.harness.child.channel import Channel
from fastlora_verify.harness.child.place import AS_WRITTEN, LIST, NOTED, SEEDED, Job
from fastlora_verify.harness.child.shift import Shift

TEXT = 4000  # characters of a failure's text
ASSERTED = 20  # assertions of a test that are told


class Sweep:
    """`job["sweep"]`: `mode`; `wanted`, ids of arms, as written of items; `seed`; `unseeded`, arms that set none."""

    def __init__(self, channel: Channel, job: Job) -> None:
        self._channel = channel
        self._root: str = job["copy"]
        self._mode: str = job["sweep"]["mode"]
        self._wanted = frozenset(job["sweep"]["wanted"])
        self._seed: int = job["sweep"]["seed"]
        self._unseeded = frozenset(job["sweep"]["unseeded"])
        self._shift = Shift(self._seed)
        self._arms: dict[str, Arm] = {}
        self._asserted: dict[tuple[int, str], dict[str, Any]] = {}
        self._failure: dict[str, Any] = {}
        self._applied = True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Tells the arms, or keeps the wanted ones with the seed given."""
        arms = arms_of(items)
        if self._mode == LIST:
            told = [{"test": item.nodeid, **self._told(arm, item)} for arm in arms for item in arm.items]
            self._channel.send({"event": "items", "items": told})
            return
        if self._mode in (AS_WRITTEN, NOTED):
            arms = [Arm((item,), "") for item in items if item.nodeid in self._wanted]
        else:
            arms = [arm for arm in arms if arm.id in self._wanted]
        if self._mode != AS_WRITTEN:
            self._shift.install(self._root)
        self._arms = {arm.at(self._seed).nodeid: arm for arm in arms}
        self._channel.send({"event": "chosen", "arms": {test: arm.id for test, arm in self._arms.items()}})
        items[:] = [item for item in items if item.nodeid in self._arms]

    def _told(self, arm: Arm, item: pytest.Item) -> dict[str, str]:
        path = os.path.relpath(os.path.realpath(item.path), self._root)
        names = item.nodeid.partition("::")[2].partition("[")[0]
        return {"arm": arm.id, "argument": arm.argument, "label": arm.label, "select": f"{path}::{names}"}

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        """One run; a test without a seed among its arguments has the seeds that it sets shifted."""
        arm = self._arms[item.nodeid]
        self._asserted, self._failure, self._applied = {}, {}, True
        self._shift.given.clear()
        self._shift.active = False
        if self._mode == SEEDED and not arm.argument and (self._seed or arm.id in self._unseeded):
            self._shift.seed_streams()
        self._shift.active = not arm.argument
        yield
        self._shift.active = False
        nearest = sorted(self._asserted.values(), key=lambda fact: -fact["close"])[:ASSERTED]
        self._channel.send(
            {
                "event": "swept",
                "test": item.nodeid,
                "arm": arm.id,
                "argument": arm.argument,
                "applied": self._applied,
                "given": dict(self._shift.given),
                "asserted": nearest,
                "failure": self._failure.get("figure"),
                "text": self._failure.get("text", ""),
            }
        )

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Makes sure that the test has the seed."""
        argument = self._arms[item.nodeid].argument
        if argument:
            self._applied = is_taken(item, argument, self._seed)
        yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: Any) -> Generator[None, Any, None]:
        """The whole text of the first failure, and the figure in it."""
        outcome = yield
        if outcome.get_result().failed and call.excinfo is not None and not self._failure:
            text = _text(call.excinfo.value)
            figure = figures.of_failure(text)
            self._failure = {"text": text[:TEXT], "figure": asdict(figure) if figure is not None else None}

    def pytest_assertion_pass(self, lineno: int, orig: str, expl: str) -> None:
        """A comparison that held; of each assertion the narrowest is kept."""
        for figure in figures.of_comparison(expl):
            known = self._asserted.get((lineno, orig))
            if figure.close is not None and (known is None or figure.close > known["close"]):
                self._asserted[lineno, orig] = {"source": " ".join(orig.split())[:200], **asdict(figure)}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""
