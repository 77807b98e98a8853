"""The suite before and after a change: one line where nothing was lost, else the exceptions, each with its place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastlora_verify.reports.escape import code, prose
from fastlora_verify.reports.fit import Part, fixed
from fastlora_verify.reports.record import RunRecord
from fastlora_verify.reports.sections import folded, left_out, paragraphs
from fastlora_verify.reports.suite_record import EXCEPTIONS, UNTOLD, SuiteFinding, SuiteKind, SuiteRecord

_NAMED = 3  # tests that an entry names
_TEXT = 900  # characters of a finding's sentence
_SPANS = re.compile(r"(`[^`\n]+`)")

_WORDS: dict[SuiteKind, tuple[str, str]] = {
    "test-removed": ("test deleted", "tests deleted"),
    "arm-removed": ("arm removed", "arms removed"),
    "assertion-removed": ("assertion removed", "assertions removed"),
    "loosened": ("assertion loosened", "assertions loosened"),
    "skip-added": ("new skip", "new skips"),
    "not-collected": ("not collected", "not collected"),
    "rewritten": ("assertion rewritten", "assertions rewritten"),
    "skip-changed": ("condition of a skip changed", "conditions of skips changed"),
    "arm-changed": ("test with other values in its arms", "tests with other values in their arms"),
    "test-moved": ("test moved", "tests moved"),
    "arm-continued": ("test with a new parameter or new ids", "tests with new parameters or new ids"),
    "expected": ("expected value changed", "expected values changed"),
    "tightened": ("assertion tightened", "assertions tightened"),
    "marker-changed": ("marker changed", "markers changed"),
    "skip-removed": ("skip gone", "skips gone"),
}


def verdict(suite: SuiteRecord) -> str:
    """The line that a reviewer looks for."""
    lost, untold = _of(suite, EXCEPTIONS), _of(suite, UNTOLD)
    numbers = f"{suite.base.collected} to {suite.head.collected}"
    if lost:
        more = "" if _of(suite, ("skip-added",)) else "; no new skip"
        return f"{_exceptions(suite)}: {_counted(lost)} ({numbers}{more})."
    if any(finding.kind == "not-collected" for finding in untold):
        return f"The suites can't be compared in full: {_counted(untold)} ({numbers} collected)."
    line = f"{numbers}, {_survive(suite)}; no new skip."
    if not untold:
        return f"Nothing was deleted or loosened: {line}"
    one = len(untold) == 1
    reader = f"{len(untold)} {'change is' if one else 'changes are'} for a reader to judge: {_counted(untold)}."
    return f"Nothing is seen deleted or loosened: {line} {reader}"


def suite_parts(record: RunRecord, *, alone: bool = False) -> list[Part]:
    """The section of the report, none where no suites were compared; `alone`, the whole of it."""
    suite = record.suite
    if suite is None:
        return []
    title = f"## fastlora-verify: the suite of {prose(record.target.name, 80)}" if alone else "### The suite"
    sides = f"{_side(suite.base.rev, suite.base.commit)} to {_side(suite.head.rev, suite.head.commit)}"
    notes = "\n".join(f"- {prose(note)}" for note in suite.notes)
    top = paragraphs(title, f"**{verdict(suite)}**", f"Compared: {sides}.", notes)
    rest = tuple(kind for kind in _WORDS if kind not in (*EXCEPTIONS, *UNTOLD))
    return [
        fixed(top),
        _entries("", _of(suite, EXCEPTIONS), record, 1),
        _entries("For a reader to judge:", _of(suite, UNTOLD), record, 2),
        _folded(_of(suite, rest), record),
        _added(suite.added, record),
    ]


def _of(suite: SuiteRecord, kinds: Sequence[SuiteKind]) -> list[SuiteFinding]:
    found = [finding for finding in suite.findings if finding.kind in kinds]
    return sorted(found, key=lambda finding: kinds.index(finding.kind))


def _exceptions(suite: SuiteRecord) -> str:
    number = len(_of(suite, EXCEPTIONS))
    return f"{number} exception{'' if number == 1 else 's'}"


def _counted(findings: Sequence[SuiteFinding]) -> str:
    told = []
    for kind in dict.fromkeys(finding.kind for finding in findings):
        own = [finding for finding in findings if finding.kind == kind]
        number = sum(len(finding.tests) for finding in own) if kind == "arm-removed" else len(own)
        told.append(f"{number} {_WORDS[kind][number != 1]}")
    return ", ".join(told)


def _survive(suite: SuiteRecord) -> str:
    """What became of the base's ids, where each goes on."""
    if not suite.base.collected:
        return "the base has none of these tests"
    told = [
        (suite.continued, "under a new id or as an arm of a new parameter"),
        (suite.moved, "under another name"),
    ]
    some = [f"{number} of them {how}" for number, how in told if number]
    return ", ".join(["the original ids survive", *some])


def _side(rev: str, commit: str) -> str:
    return prose(rev, 80) + (f" ({code(commit[:9])})" if commit and commit[:9] not in rev else "")


def _entries(title: str, findings: Sequence[SuiteFinding], record: RunRecord, expendable: int) -> Part:
    lines = [_entry(finding) for finding in findings]

    def text(number: int) -> str:
        if not lines:
            return ""
        return paragraphs(title, "\n".join(lines[:number]), left_out(len(lines) - number, record))

    return Part(text, len(lines), expendable)


def _folded(findings: Sequence[SuiteFinding], record: RunRecord) -> Part:
    lines = [_entry(finding) for finding in findings]

    def text(number: int) -> str:
        if not number:
            return left_out(len(lines), record)
        rest = left_out(len(lines) - number, record)
        return folded(f"What else changed: {_counted(findings)}", "\n".join(lines[:number]), rest)

    return Part(text, len(lines), 4)


def _added(added: Sequence[str], record: RunRecord) -> Part:
    lines = [f"- {code(test, 200)}" for test in added]

    def text(number: int) -> str:
        if not number:
            return left_out(len(lines), record, "new ids")
        one = len(lines) == 1
        rest = left_out(len(lines) - number, record)
        return folded(f"{len(lines)} new {'id' if one else 'ids'}", "\n".join(lines[:number]), rest)

    return Part(text, len(lines), 5)


def _entry(finding: SuiteFinding) -> str:
    """`- **assertion loosened** tests/test_a.py:12 (base: tests/test_a.py:10): what changed (in 30 tests: …)`."""
    word = _WORDS[finding.kind][0]
    return f"- **{word}** {_places(finding)}: {_sentence(finding.text)}{_tests(finding)}"


def _places(finding: SuiteFinding) -> str:
    if finding.head and finding.base and finding.head != finding.base:
        return f"{code(finding.head)} (base: {code(finding.base)})"
    if finding.head:
        return code(finding.head)
    return f"{code(finding.base)} of the base" if finding.base else "the suite"


def _sentence(text: str) -> str:
    """Prose around code, each made harmless."""
    parts = _SPANS.split(text[:_TEXT])
    return "".join(code(part[1:-1], 300) if _SPANS.fullmatch(part) else _plain(part) for part in parts)


def _plain(text: str) -> str:
    before, after = text[: len(text) - len(text.lstrip(" ,;:.)"))], text[len(text.rstrip(" (")) :]
    inner = text[len(before) : len(text) - len(after)]
    return f"{before}{prose(inner)}{after}" if inner else text


def _tests(finding: SuiteFinding) -> str:
    if finding.kind in ("test-removed", "arm-removed", "test-moved", "marker-changed") or len(finding.tests) < 2:
        only = finding.tests[0] if len(finding.tests) == 1 else ""
        return f" (in {code(only, 200)})" if only and only not in finding.text and "::" in only else ""
    names = ", ".join(code(test, 160) for test in finding.tests[:_NAMED])
    more = ", …" if len(finding.tests) > _NAMED else ""
    return f" (in {len(finding.tests)} tests: {names}{more})"
