"""Findings in sentences, one for each cause: a constant that thirty tests use is one finding with thirty tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fastlora_verify.harness.suite_diff.checks import Body, Check, Skip
from fastlora_verify.harness.suite_diff.collected import Arms, Item
from fastlora_verify.harness.suite_diff.pairing import Pair
from fastlora_verify.harness.suite_diff.sources import Place
from fastlora_verify.harness.suite_diff.ways import Change, Way
from fastlora_verify.reports.suite_record import SuiteFinding, SuiteKind

LONGEST = 160  # characters of code in a sentence

_KINDS: dict[Way, SuiteKind] = {
    Way.LOOSER: "loosened",
    Way.UNTOLD: "rewritten",
    Way.EXPECTED: "expected",
    Way.TIGHTER: "tightened",
}


def code(text: str) -> str:
    """Code in a sentence."""
    flat = " ".join(text.split()).replace("`", "'")
    return f"`{flat if len(flat) <= LONGEST else flat[: LONGEST - 1] + '…'}`"


def where(place: Place | None) -> str:
    """File and line of a function."""
    return f"{place.module.path}:{place.node.lineno}" if place is not None else ""


def ids(items: Sequence[Item]) -> tuple[str, ...]:
    return tuple(item.test for item in items)


def removed(items: Sequence[Item], place: Place | None, near: tuple[str, float] | None) -> SuiteFinding:
    """A test that the head doesn't have."""
    arms = f" with its {len(items)} arms" if len(items) > 1 else ""
    hint = f"; the new test that reads most like it is {code(near[0])} ({near[1]:.0%} alike)" if near else ""
    text = f"{code(items[0].function)} is deleted{arms}{hint}"
    return SuiteFinding(kind="test-removed", text=text, base=where(place), tests=ids(items))


def moved(old: Sequence[Item], new: Sequence[Item], before: Place | None, after: Place | None) -> SuiteFinding:
    """A test whose body goes on under another name."""
    text = f"{code(old[0].function)} is gone; a test with the same body is now {code(new[0].function)}"
    return SuiteFinding(kind="test-moved", text=text, base=where(before), head=where(after), tests=ids(old))


def file_skipped(items: Sequence[Item], place: Place | None, file: str, reason: str) -> SuiteFinding:
    """A test that isn't collected because its file skips itself."""
    text = f"{code(items[0].function)} is not collected: {code(file)} skips itself ({code(reason)})"
    return SuiteFinding(kind="skip-added", text=text, base=where(place), tests=ids(items))


def not_collected(side: str, name: str, why: str, hidden: Sequence[str]) -> SuiteFinding:
    """A file that doesn't import, so that nothing can be said of its tests."""
    other = "head" if side == "base" else "base"
    many = f"; its {len(hidden)} tests in the {other} are compared with nothing" if hidden else ""
    text = f"{code(name)} can't be collected in the {side}: {code(why)}{many}"
    place = {"base": name} if side == "base" else {"head": name}
    return SuiteFinding(kind="not-collected", text=text, tests=tuple(hidden), **place)


def nothing_collected(side: str, why: str, hidden: Sequence[str]) -> SuiteFinding:
    """A suite that can't be collected at all."""
    text = f"pytest collects nothing in the {side}: {code(why)}; the two suites are not compared"
    return SuiteFinding(kind="not-collected", text=text, tests=tuple(hidden))


def arms(found: Arms, before: Place | None, after: Place | None) -> Iterator[SuiteFinding]:
    """What became of a test's arms, one finding for each way."""
    places = {"base": where(before), "head": where(after)}
    if found.removed:
        names, first = ids(found.removed), found.removed[0]
        which = ", ".join(item.param or "the one without parameters" for item in found.removed)
        text = f"{code(first.function)} has lost {_count(len(names), 'arm')}: {code(which)}"
        yield SuiteFinding(kind="arm-removed", text=text, tests=names, **places)
    if found.changed:
        names = ids([old for old, _ in found.changed])
        told = "; ".join(_values(old, new) for old, new in found.changed[:3])
        text = f"{code(found.changed[0][0].function)} has {_count(len(names), 'arm')} with other values: {told}"
        yield SuiteFinding(kind="arm-changed", text=text, tests=names, **places)
    if found.continued:
        old, new = found.continued[0]
        more = f", and {len(found.continued) - 1} more like it" if len(found.continued) > 1 else ""
        text = f"{code(old.test)} goes on as {code(new.test)}{more}"
        yield SuiteFinding(kind="arm-continued", text=text, tests=ids([o for o, _ in found.continued]), **places)


def _values(old: Item, new: Item) -> str:
    changed = [name for name in old.values if new.values.get(name) != old.values[name]]
    told = ", ".join(f"{name}: {old.values[name]} to {new.values.get(name, 'nothing')}" for name in changed)
    return f"{code(old.param or '')} ({code(told)})"


def mark(change: tuple[str, ...], items: Sequence[Item], after: Place | None) -> SuiteFinding:
    """A mark that came or went, on all the tests that it concerns."""
    kind, what, text = change
    tests = ids(items)
    many = f"{code(tests[0])}{f' and {len(tests) - 1} more' if len(tests) > 1 else ''}"
    if what == "deselected":
        left = "is left out by" if kind == "skip-added" else "is no longer left out by"
        said = f"{many} {left} the target's own pytest arguments"
    elif kind == "marker-changed":
        said = f"{many}: the marker {code(text)} is {what}"
    else:
        way = "is new" if kind == "skip-added" else "is gone"
        said = f"{many}: the mark {code(f'{what}({text})')} {way}"
    kinds: dict[str, SuiteKind] = {"skip-added": "skip-added", "skip-removed": "skip-removed"}
    return SuiteFinding(kind=kinds.get(kind, "marker-changed"), text=said, head=where(after), tests=tests)


@dataclass
class Grouped:
    """Findings from sources, gathered test by test."""

    _found: dict[tuple[str, ...], SuiteFinding] = field(default_factory=dict)

    def changed(self, pair: Pair, tests: Sequence[str]) -> None:
        """An assertion that goes on in another form."""
        for change in pair.changes:
            base = _place(change.was, pair.old)
            head = _place(change.node, pair.new)
            self._put(
                SuiteFinding(kind=_KINDS[change.way], text=_told(change, pair), base=base, head=head), tests, change
            )

    def removed(self, check: Check, other: Body, added: Sequence[Check], tests: Sequence[str]) -> None:
        """An assertion that is gone; `other` is the test as it is now, with what it asserts besides."""
        after, empty = other.place, "" if other.checks else "; the test asserts nothing any more"
        if added:
            more = f" and {len(added) - 1} more" if len(added) > 1 else ""
            empty = f"; new in the test: {code(added[0].shown)}{more}"
        part = f"{code(ast.unparse(check.expr))} of " if check.is_part else ""
        text = f"{part}{code(check.shown)} is gone{empty}"
        self._put(
            SuiteFinding(kind="assertion-removed", text=text, base=f"{check.file}:{check.line}", head=where(after)),
            tests,
        )

    def skip(self, skip: Skip, tests: Sequence[str]) -> None:
        """A call that skips, and wasn't there."""
        under = f" if {code(' and '.join(skip.guards))}" if skip.guards else ""
        text = f"{code(skip.text)} is new{under}"
        self._put(SuiteFinding(kind="skip-added", text=text, head=f"{skip.file}:{skip.line}"), tests)

    def condition(self, change: tuple[str, str, str], after: Place, tests: Sequence[str]) -> None:
        """Another condition in a mark that skips."""
        name, was, now = change
        text = f"the condition of {code(name)} was {code(was)} and is {code(now)}"
        self._put(SuiteFinding(kind="skip-changed", text=text, head=where(after)), tests)

    def findings(self) -> list[SuiteFinding]:
        """Each once, with its tests."""
        return list(self._found.values())

    def _put(self, finding: SuiteFinding, tests: Sequence[str], change: Change | None = None) -> None:
        key: tuple[str, ...] = (finding.kind, finding.base, finding.text)
        if change is not None and not change.words and change.node is not None:
            # Known by the number itself, whatever assertions it stands in.
            key = (finding.kind, finding.base, finding.head, change.old, change.new, change.case)
        known = self._found.get(key, finding)
        self._found[key] = replace(known, tests=tuple(dict.fromkeys((*known.tests, *tests))))


def _told(change: Change, pair: Pair) -> str:
    shown = code(pair.new.shown)
    case = f" for {code(change.case)}" if change.case else ""
    if change.words:
        return f"{shown}: was {change.old}, is {change.new}"
    if change.call:
        return f"{code(change.old)} is rewritten as {code(change.new)}, which asserts {shown}"
    if change.node is None:
        of = f" in {shown}" if pair.new.shown == pair.old.shown else ""
        return f"{code(change.old)} is rewritten as {code(change.new)}{of}"
    return f"{code(change.old)} is now {code(change.new)}{case} in {shown}"


def _place(node: ast.AST | None, check: Check) -> str:
    """Where a number itself stands: a constant's line, where a constant it is."""
    file, line = getattr(node, "file", None), getattr(node, "lineno", None)
    return f"{file}:{line}" if file and line else f"{check.file}:{check.line}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
