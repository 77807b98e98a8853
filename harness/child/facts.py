"""A pytest plugin that streams facts, one JSON line each, and decides nothing.

| event | fields |
| --- | --- |
| start | test |
| collected | digest of the collected tests' ids, in order; imported: the copy's files in memory; elsewhere (a mark) |
| recollected | (other tests than those that `only` was chosen from: all are run) |
| test | test, phases, reached, triggered, gpu, param, seconds; with a map ran, streams, leaves; printed if asked |
| collect | test (a collector's id), category ("error" or "skipped"), exception or reason |
| internal-error, interrupt | exception |
| end | counts, status, and what `suite.py` adds |

A phase is `when`, `category` (pytest's own, "" where it shows none), and `exception` or `reason`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from time import perf_counter
from typing import Any, Protocol

import pytest

from fastlora_verify.harness.child.channel import Channel
from fastlora_verify.harness.child.exception import exception_fact
from fastlora_verify.harness.child.harm import Harm
from fastlora_verify.harness.child.left import Left
from fastlora_verify.harness.child.place import files_in_memory
from fastlora_verify.harness.child.printed import sections_within
from fastlora_verify.harness.child.probe import ELSEWHERE, REACHED, TRIGGERED, Marks, Probe
from fastlora_verify.harness.child.reported import failed_collection, skip_reason, unraised
from fastlora_verify.harness.child.selection import Only, digest_of, random_streams, stir


class Line(Protocol):
    """Takes a line of facts."""

    def send(self, record: Mapping[str, Any]) -> None:
        """Writes or keeps it."""


class Kept:
    """The lines told while the tests were collected, for every process that goes on from there."""

    def __init__(self) -> None:
        self.lines: list[Mapping[str, Any]] = []

    def send(self, record: Mapping[str, Any]) -> None:
        """Keeps it."""
        self.lines.append(record)


class Facts:
    """The plugin. `root` is the copy's real path; `quiet` spares tracebacks that nobody reads."""

    def __init__(
        self,
        channel: Line,
        probe: Probe,
        root: str,
        gpu_marker: str = "",
        *,
        quiet: bool = True,
        only: Only | None = None,
        printed: bool = False,
        stirred: bool = False,
        harm: Harm | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.outside: Marks = frozenset()  # hit while no test ran
        self._channel = channel
        self._probe = probe
        self._root = root
        self._gpu_marker = gpu_marker
        self._quiet = quiet
        self._phases: list[dict[str, Any]] = []
        self._exception: dict[str, Any] | None = None
        self._shared: dict[Any, Marks] = {}  # what the set-up of a fixture hit that several tests use
        self._config: pytest.Config | None = None
        self._only = only
        self._printed = printed
        self._stir = stirred
        self._sections: list[tuple[str, str]] = []
        self._left = Left(root, probe.mapped)
        self.harm = harm
        self._harmed: list[str] | None = None  # not looked
        self.after_test: Callable[[Mapping[str, Any]], None] | None = None  # hears every line of a test

    @pytest.hookimpl(hookwrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, Any, None]:
        """Keeps the tests in this process: xdist's workers would be out of reach."""
        self._config = config
        if self._quiet and hasattr(config.option, "numprocesses"):
            config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Spares pytest's long tracebacks, which cost more than most tests; facts come from the exception."""
        self._config = config
        if self._quiet:
            config.option.tbstyle = "no"
            config.option.showlocals = False

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        """Collection errors and modules that skip themselves; pytest counts both."""
        outcome = yield
        fact = failed_collection(outcome.get_result(), self._root)
        if fact is not None:
            self.counts[fact["category"]] += 1
            self._channel.send(fact)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keeps the tests asked for, unless other tests were collected than when they were chosen."""
        names = [item.nodeid for item in items]
        self._take_outside()
        self._channel.send(
            {
                "event": "collected",
                "digest": digest_of(names),
                "imported": files_in_memory(self._root),
                "elsewhere": ELSEWHERE in self.outside,
            }
        )
        self._choose(items)

    def _choose(self, items: list[pytest.Item]) -> None:
        if self._only is None:
            return
        if digest_of([item.nodeid for item in items]) != self._only.collected:
            self._channel.send({"event": "recollected"})
            self.after_test = None  # what was known of the tests may not hold
            return
        items[:] = self._only.in_order(items)

    def go_on(
        self, channel: Channel, probe: Probe, only: Only | None, harm: Harm | None, items: list[pytest.Item]
    ) -> None:
        """From here on for another job: what was told of the collection is told there again."""
        if isinstance(self._channel, Kept):
            for line in self._channel.lines:
                channel.send(line)
        self._channel, self._probe, self._only, self.harm = channel, probe, only, harm
        self._choose(items)
        if harm is not None:
            harm.begin(probe)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, None]:
        """Looks before the first test and after the last, where a job asks for it."""
        if self.harm is not None:
            self.harm.begin(self._probe)
        yield
        self._harmed = self.harm.names() if self.harm is not None else None

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        """One test, from its first set-up to its last tear-down."""
        self._take_outside()
        self._phases, self._sections = [], []
        self._channel.send({"event": "start", "test": item.nodeid})
        if self._stir:
            stir(item.nodeid)
        streams: Any = random_streams() if self._probe.mapped else []
        self._left.begin()
        begin = perf_counter()
        yield
        seconds = perf_counter() - begin
        marks = self._marks_of(item)
        mapped: dict[str, Any] = {}
        if self._probe.mapped:
            streams = [streams, random_streams()]
            mapped = {"ran": sorted(marks), "streams": streams, "leaves": self._left.leaves()}
        printed = {"printed": sections_within(self._sections, self._root)} if self._sections else {}
        callspec = getattr(item, "callspec", None)
        line = {
            "event": "test",
            "test": item.nodeid,
            "phases": self._phases,
            "reached": REACHED in marks,
            "triggered": TRIGGERED in marks,
            **mapped,
            **printed,
            "gpu": bool(self._gpu_marker and item.get_closest_marker(self._gpu_marker)),
            "param": callspec.id if callspec is not None else None,
            "seconds": round(seconds, 4),
        }
        self._channel.send(line)
        if self.after_test is not None:
            self.after_test(line)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, None]:
        """What a shared fixture's set-up hits counts for every test that uses the fixture."""
        if fixturedef.scope == "function":
            yield
            return
        before = self._probe.take()
        with self._left.apart(fixturedef):
            yield
        if self.harm is not None:
            self.harm.set_up(fixturedef)
        marks = self._probe.take()
        self._shared[fixturedef] = marks | self._shared.get(fixturedef, frozenset())
        self._probe.put(before | marks)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, None]:
        """The exception itself is only here; the report has but its text."""
        outcome = yield
        report = outcome.get_result()
        self._exception = None
        if not report.failed:
            return
        if call.excinfo is not None:
            self._exception = exception_fact(call.excinfo.value, self._root)
        else:
            self._exception = unraised(str(report.longrepr))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """One phase of the running test, under the category that pytest's last line counts it in."""
        assert self._config is not None
        category = self._config.hook.pytest_report_teststatus(report=report, config=self._config)[0]
        if category:
            self.counts[category] += 1
        phase: dict[str, Any] = {"when": report.when, "category": category}
        if report.failed:
            phase["exception"] = self._exception or unraised(str(report.longrepr))
        elif report.skipped:
            phase["reason"] = getattr(report, "wasxfail", "") or skip_reason(report)
        self._exception = None
        self._phases.append(phase)
        if self._printed:
            self._sections = list(report.sections)  # of all phases so far

    def pytest_internalerror(self, excinfo: Any) -> None:
        """pytest, or a plugin, broke."""
        self._channel.send({"event": "internal-error", "exception": exception_fact(excinfo.value, self._root)})

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Ctrl-C's exception or pytest.exit(); not pytest's own stop after collection errors or `-x`."""
        if isinstance(excinfo.value, pytest.Session.Interrupted):
            return
        self._channel.send({"event": "interrupt", "exception": exception_fact(excinfo.value, self._root)})

    def send(self, record: Mapping[str, Any]) -> None:
        """Passes a line of another part to the same file."""
        self._channel.send(record)

    def finish(self) -> dict[str, Any]:
        """The plugin's part of the end line."""
        self._take_outside()
        return {
            "counts": dict(self.counts),
            "reached_import": REACHED in self.outside,
            "triggered_import": TRIGGERED in self.outside,
            "ran_outside": sorted(self.outside),
            "harmed": self._harmed,
            "stops": self._stops(),
            "captures": getattr(getattr(self._config, "option", None), "capture", "") != "no",
        }

    def _stops(self) -> bool:
        """Whether the suite is told to stop at a failure, so that which tests run depends on which fail."""
        option = self._config.option if self._config is not None else None
        return bool(getattr(option, "maxfail", 0) or getattr(option, "stepwise", False))

    def _take_outside(self) -> None:
        self.outside |= self._probe.take()

    def _marks_of(self, item: pytest.Item) -> Marks:
        marks = self._probe.take()
        info = getattr(item, "_fixtureinfo", None)
        for definitions in getattr(info, "name2fixturedefs", {}).values():
            for definition in definitions:
                marks |= self._shared.get(definition, frozenset())
        return marks
