"""The facts plugin for a plain pytest: `python -m pytest -p fastlora_verify.harness.child.cold`."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from typing import Any

import pytest

from fastlora_verify.harness.child.channel import Channel
from fastlora_verify.harness.child.facts import Facts
from fastlora_verify.harness.child.place import COLD_JOB
from fastlora_verify.harness.child.probe import Probe
from fastlora_verify.harness.child.suite import end_line
from fastlora_verify.harness.child.sweep import Sweep


def pytest_configure(config: pytest.Config) -> None:
    """Registers a plugin that watches and changes nothing: no probes, pytest's own tracebacks."""
    with open(os.environ[COLD_JOB], encoding="utf-8") as file:
        job = json.load(file)
    probe = Probe({}, ())
    channel = Channel.to_file(job["facts"])
    facts = Facts(channel, probe, job["copy"], job["gpu_marker"], quiet=False, printed=job["printed"])
    config.pluginmanager.register(facts, "fastlora-verify-facts")
    if job["sweep"]:
        config.pluginmanager.register(Sweep(channel, job), "fastlora-verify-sweep")
    config.pluginmanager.register(_End(job, facts, probe), "fastlora-verify-end")


class _End:
    def __init__(self, job: dict[str, Any], facts: Facts, probe: Probe) -> None:
        self._job, self._facts, self._probe = job, facts, probe

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, Any, None]:
        """The end line, once every other plugin has finished."""
        yield
        self._facts.send(end_line(self._job, self._facts, self._probe, int(exitstatus)))
