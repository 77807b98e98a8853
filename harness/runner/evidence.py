"""The facts that a child streamed, read into data. Nothing is decided here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlora_verify.harness.plan import Counts

ABSENT = "absent"
# The first that a test has is its own.
CATEGORIES = ("failed", "error", "xpassed", "xfailed", "skipped", "passed")


@dataclass(frozen=True)
class Raised:
    """An exception that ended a phase of a test, a collection or an import."""

    type: str
    mro: tuple[str, ...] = ()
    judges: bool = False  # AssertionError, pytest.fail() and their like
    message: str = ""
    name: str | None = None  # of a NameError
    frames: tuple[tuple[str, int, str], ...] = ()  # (path in the copy, line, function), outermost first


@dataclass(frozen=True)
class Case:
    """One test of one run."""

    test: str
    category: str  # one of CATEGORIES
    raised: Raised | None = None  # of the first phase that failed
    reason: str = ""  # of a skip or an expected failure
    reached: bool = False
    triggered: bool = False
    gpu: bool = False
    seconds: float = 0.0
    ran: frozenset[int] = frozenset()  # with a map: its marks
    streams: tuple[tuple[str, str], ...] = ()  # with a map: each random stream's state before and after
    leaves: bool = False  # with a map: it changed what later tests may see
    printed: tuple[tuple[str, str], ...] = ()  # if asked: (pytest's title, text)


@dataclass(frozen=True)
class SuiteFacts:
    """One run of the suite, as far as it came."""

    tests: Mapping[str, Case] = field(default_factory=dict)
    # Collectors that failed or skipped themselves.
    collected: Mapping[str, Case] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    ended: bool = False  # the end line is there: the session came to its own end
    status: int | None = None  # pytest's exit status; never an outcome
    running: str = ""  # the test that had begun and not ended
    broken: Raised | None = None  # pytest's internal error, an interrupt, or what escaped pytest
    broken_by: str = ""  # "internal-error" | "interrupt" | "escaped"
    import_errors: tuple[tuple[str, Raised], ...] = ()  # (path in the copy, what its import raised)
    foreign: Mapping[str, str] = field(default_factory=dict)
    probes_missing: tuple[int, ...] = ()
    reached_import: bool = False
    triggered_import: bool = False
    collected_digest: str = ""  # of all tests' ids, in order
    imported: frozenset[str] = frozenset()  # files of the copy that were in memory when the tests were collected
    early: bool = False  # with a map: a process was started, or a source read, before the first test
    libraries: tuple[str, ...] = ()  # if asked: modules imported from elsewhere than the copy
    reads: tuple[str, ...] = ()  # if asked: files of the copy that were read, other than to import them
    starts: bool = False  # if asked: a process was started
    recollected: bool = False  # other tests than expected were collected, so all were run
    ran_outside: frozenset[int] = frozenset()  # with a map: marks hit while no test ran
    flaky: frozenset[str] = frozenset()  # tests whose outcome differs from run to run without any mutation
    harmed: frozenset[str] | None = None  # what is not as it was before the first test, by name; None: not looked at
    stops: bool = False  # the suite stops at its first failures
    captures: bool = True  # pytest takes what tests print; else it goes where the tests' process prints


@dataclass(frozen=True)
class OracleFacts:
    """What the oracles answered, as far as they came."""

    answers: tuple[Mapping[str, Any], ...] = ()
    ended: bool = False
    broken: Raised | None = None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a facts file; a torn last one is left out."""
    if not path.exists():
        return []
    lines = []
    for line in path.read_bytes().split(b"\n"):
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return [line for line in lines if isinstance(line, dict)]


def suite_facts(lines: Iterable[Mapping[str, Any]], root: str) -> SuiteFacts:
    """Reads the lines that `child/facts.py` describes. `root` is the copy's path."""
    tests: dict[str, Case] = {}
    collected: dict[str, Case] = {}
    running, broken, broken_by = "", None, ""
    digest, recollected = "", False
    imported: frozenset[str] = frozenset()
    early = False
    end: Mapping[str, Any] = {}
    for line in lines:
        event = line["event"]
        if event == "start":
            running = line["test"]
        elif event == "test":
            tests[line["test"]] = _test(line)
            running = ""
        elif event == "collected":
            digest, imported, early = line["digest"], frozenset(line["imported"]), line["elsewhere"]
        elif event == "recollected":
            recollected = True
        elif event == "collect":
            collected[line["test"]] = _collector(line)
        elif event == "end":
            end = line
        elif event in ("internal-error", "interrupt", "escaped"):
            broken, broken_by = _raised(line["exception"]), event
    return SuiteFacts(
        tests=tests,
        collected=collected,
        counts=_counts(end["counts"]) if end else _tally([*tests.values(), *collected.values()]),
        ended=bool(end),
        status=end.get("status"),
        running=running,
        broken=broken,
        broken_by=broken_by,
        import_errors=tuple(
            (_inside(item["path"], root), _raised(item["exception"])) for item in end.get("import_errors", ())
        ),
        foreign=end.get("foreign", {}),
        probes_missing=tuple(end.get("probes_missing", ())),
        reached_import=end.get("reached_import", False),
        triggered_import=end.get("triggered_import", False),
        collected_digest=digest,
        imported=imported,
        early=early,
        libraries=tuple(end.get("libraries", ())),
        reads=tuple(end.get("reads", ())),
        starts=end.get("starts", False),
        recollected=recollected,
        ran_outside=frozenset(end.get("ran_outside", ())),
        harmed=frozenset(end["harmed"]) if end.get("harmed") is not None else None,
        stops=end.get("stops", False),
        captures=end.get("captures", True),
    )


def oracle_facts(lines: Iterable[Mapping[str, Any]]) -> OracleFacts:
    """Reads the lines that `child/oracle.py` writes."""
    answers, ended, broken = [], False, None
    for line in lines:
        if line["event"] == "oracle":
            answers.append({name: value for name, value in line.items() if name != "event"})
        elif line["event"] == "escaped":
            broken = _raised(line["exception"])
        ended = ended or line["event"] == "end"
    return OracleFacts(tuple(answers), ended, broken)


def category_of(facts: SuiteFacts, test: str) -> str:
    """A test's category, ABSENT if there was none; its module's where that failed or skipped itself."""
    if test in facts.tests:
        return facts.tests[test].category
    collector = collector_of(facts, test)
    return collector.category if collector is not None else ABSENT


def collector_of(facts: SuiteFacts, test: str) -> Case | None:
    """The collector that failed or skipped itself and so left the test out."""
    for name, fact in facts.collected.items():
        if not name or test == name or test.startswith((name + "::", name.rstrip("/") + "/")):
            return fact
    return None


def _test(line: Mapping[str, Any]) -> Case:
    phases = line["phases"]
    shown = {phase["category"] for phase in phases}
    raised = next((phase["exception"] for phase in phases if "exception" in phase), None)
    return Case(
        test=line["test"],
        category=next((category for category in CATEGORIES if category in shown), ABSENT),
        raised=_raised(raised) if raised else None,
        reason=next((phase["reason"] for phase in phases if phase.get("reason")), ""),
        reached=line["reached"],
        triggered=line["triggered"],
        gpu=line["gpu"],
        seconds=line["seconds"],
        ran=frozenset(line.get("ran", ())),
        leaves=line.get("leaves", False),
        streams=tuple(zip(*line.get("streams", ((), ())), strict=True)),
        printed=tuple((title, text) for title, text in line.get("printed", ())),
    )


def _collector(line: Mapping[str, Any]) -> Case:
    raised = _raised(line["exception"]) if "exception" in line else None
    return Case(line["test"], line["category"], raised, line.get("reason", ""))


def _raised(data: Mapping[str, Any]) -> Raised:
    frames = tuple((path, line, function) for path, line, function in data["frames"])
    return Raised(data["type"], tuple(data["mro"]), data["judges"], data["message"], data.get("name"), frames)


def _counts(shown: Mapping[str, int]) -> Counts:
    return Counts(
        passed=shown.get("passed", 0),
        failed=shown.get("failed", 0),
        errors=shown.get("error", 0),
        skipped=shown.get("skipped", 0),
        xfailed=shown.get("xfailed", 0),
        xpassed=shown.get("xpassed", 0),
    )


def _tally(facts: Iterable[Case]) -> Counts:
    """Counts of a run that did not come to its end."""
    shown: dict[str, int] = {}
    for fact in facts:
        shown[fact.category] = shown.get(fact.category, 0) + 1
    return _counts(shown)


def _inside(path: str, root: str) -> str:
    return path.removeprefix(root).lstrip("/\\").replace("\\", "/")
