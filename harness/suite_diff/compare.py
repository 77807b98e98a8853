"""Two suites compared: from collections and sources to findings.

A test of the base goes on in the head under its id, or under another name where its body is the same. What goes on is
compared arm by arm, mark by mark and assertion by assertion; what doesn't is deleted. A file that doesn't import in one
of the trees is told, and no test of it is called deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fastlora_verify.harness.suite_diff import words
from fastlora_verify.harness.suite_diff.checks import module_body, read_test
from fastlora_verify.harness.suite_diff.collected import Item, arms, marker_names, skips_added
from fastlora_verify.harness.suite_diff.moved import moved, nearest
from fastlora_verify.harness.suite_diff.pairing import new_skips, paired
from fastlora_verify.harness.suite_diff.places import Side, changed_files, leans_on, modules_of, owner_of, place_of
from fastlora_verify.harness.suite_diff.skip_marks import changed_conditions
from fastlora_verify.harness.suite_diff.sources import Place
from fastlora_verify.reports.suite_record import SuiteFinding

Items = list[Item]


@dataclass
class Compared:
    """What came out, in the order in which it was found."""

    findings: list[SuiteFinding] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    kept: int = 0
    continued: int = 0
    moved: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Test:
    """A test on both sides."""

    old: Items
    new: Items
    before: Place | None
    after: Place | None


def compare_suites(old: Side, new: Side) -> Compared:
    """What the second suite lacks, skips, loosens or renames of the first."""
    out = Compared()
    out.findings += _uncollected(old, new)
    if old.collection.failed or new.collection.failed:
        return out
    olds, news = old.collection.functions(), new.collection.functions()
    lost = _files_of_errors(new)
    gone = {name: place_of(old.sources, olds[name]) for name in olds if name not in news and not _in(name, lost)}
    come = {name: place_of(new.sources, news[name]) for name in news if name not in olds}
    renamed = moved(gone, come)
    tests = [_test(old, new, olds[name], news[name]) for name in olds if name in news]
    for name, other in renamed.items():
        test = _test(old, new, olds[name], news[other])
        tests.append(test)
        out.findings.append(words.moved(test.old, test.new, test.before, test.after))
    for name, place in gone.items():
        if name not in renamed:
            rest = {other: p for other, p in come.items() if other not in renamed.values()}
            out.findings.append(_gone(olds[name], place, rest, new))
    out.added += [item.test for name in come if name not in renamed.values() for item in news[name]]
    _arms_and_marks(tests, out)
    _sources(tests, old, new, out)
    return out


def _test(old: Side, new: Side, before: Items, after: Items) -> _Test:
    return _Test(before, after, place_of(old.sources, before), place_of(new.sources, after))


def _gone(items: Items, place: Place | None, come: Mapping[str, Place | None], new: Side) -> SuiteFinding:
    """A test that isn't collected any more: because its file skips itself, or because it isn't there."""
    for file, reason in new.collection.skipped:
        if _in(items[0].function, {file}):
            return words.file_skipped(items, place, file, reason)
    return words.removed(items, place, nearest(place, come) if place is not None else None)


def _in(function: str, files: set[str]) -> bool:
    return any(function == file or function.startswith(f"{file}::") for file in files)


def _files_of_errors(side: Side) -> set[str]:
    return {name for name, _ in side.collection.errors}


def _uncollected(old: Side, new: Side) -> Iterator[SuiteFinding]:
    for which, side in (("base", old), ("head", new)):
        other = new if side is old else old
        if side.collection.failed:
            yield words.nothing_collected(which, side.collection.failed, [i.test for i in other.collection.items])
        for name, why in side.collection.errors:
            hidden = [item.test for item in other.collection.items if _in(item.function, {name})]
            yield words.not_collected(which, name, why, hidden)


def _arms_and_marks(tests: list[_Test], out: Compared) -> None:
    marks: dict[tuple[str, ...], list[tuple[Item, _Test]]] = {}
    for test in tests:
        found = arms(test.old, test.new)
        same_name = test.old[0].function == test.new[0].function
        if same_name:
            out.kept += len(found.kept)
            out.continued += len(found.continued)
        else:
            out.moved += len(found.kept) + len(found.continued)
        out.added += [item.test for item in found.added]
        out.findings += words.arms(found, test.before, test.after)
        for before, after in (*found.kept, *found.continued):
            for change in _marks(before, after):
                marks.setdefault(change, []).append((before, test))
    for change, hits in marks.items():
        out.findings.append(words.mark(change, [item for item, _ in hits], hits[0][1].after))


def _marks(before: Item, after: Item) -> Iterator[tuple[str, ...]]:
    """(kind, name, text) of marks that came or went; to be left out by the target's own arguments counts as one."""
    for name, text in skips_added(before, after):
        yield "skip-added", name, text
    for name, text in skips_added(after, before):
        yield "skip-removed", name, text
    if before.selected and not after.selected:
        yield "skip-added", "deselected", ""
    elif after.selected and not before.selected:
        yield "skip-removed", "deselected", ""
    first, second = marker_names(before), marker_names(after)
    for name in sorted((second - first).keys()):
        yield "marker-changed", "added", name
    for name in sorted((first - second).keys()):
        yield "marker-changed", "removed", name


def _sources(tests: list[_Test], old: Side, new: Side, out: Compared) -> None:
    differ = changed_files(old.sources, new.sources)
    found = words.Grouped()
    for test in tests if differ else ():
        before, after = test.before, test.after
        if before is None or after is None:
            continue
        sides = ((old.sources, before, test.old), (new.sources, after, test.new))
        if not any(leans_on(sources, modules_of(sources, place, items), differ) for sources, place, items in sides):
            continue
        ids = [item.test for item in test.old]
        one = read_test(old.sources, before, owner_of(old.sources, test.old))
        other = read_test(new.sources, after, owner_of(new.sources, test.new))
        result = paired(one, other)
        for pair in result.changed:
            found.changed(pair, ids)
        for check in result.removed:
            found.removed(check, other, result.added, ids)
        for skip in new_skips(one, other):
            found.skip(skip, ids)
        for change in changed_conditions(old.sources, new.sources, before, after):
            found.condition(change, after, ids)
    for path in sorted(differ & old.sources.paths & new.sources.paths):
        first, second = old.sources.module(path), new.sources.module(path)
        if first is not None and second is not None and path.endswith(".py"):
            ids = [item.test for item in old.collection.items if item.file == path]
            for skip in new_skips(module_body(old.sources, first), module_body(new.sources, second)) if ids else ():
                found.skip(skip, ids)
    out.findings += found.findings()
    for path, why in new.sources.broken.items():
        out.notes.append(f"{path} can't be read as Python: {why}")
