"""The assertions of one test before and after: which are the same, which changed and how, which are gone.

Equal ones are set aside first. Of the rest, pairs about the same thing come next, those with the fewest changes first;
then what reads alike is called rewritten, which says neither looser nor not. What finds no partner is gone.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from fastlora_verify.harness.suite_diff.checks import Body, Check, Skip
from fastlora_verify.harness.suite_diff.looser import compare
from fastlora_verify.harness.suite_diff.ways import Change, Renamed, Unlike, Way

ALIKE = 0.6  # of two texts: less is another assertion


@dataclass(frozen=True)
class Pair:
    """An assertion of the base and what became of it."""

    old: Check
    new: Check
    changes: tuple[Change, ...]

    @property
    def way(self) -> Way | None:
        """What it amounts to; None where it says the same. What is looser somewhere accepts what it did not before."""
        ways = {change.way for change in self.changes}
        order = (Way.LOOSER, Way.UNTOLD, Way.EXPECTED, Way.TIGHTER)
        return next((way for way in order if way in ways), None)


@dataclass(frozen=True)
class Paired:
    """What became of a test's assertions."""

    changed: tuple[Pair, ...]
    removed: tuple[Check, ...]
    added: tuple[Check, ...]


def paired(old: Body, new: Body) -> Paired:
    """Sets the assertions of a test against those of the same test later."""
    olds, news = _distinct(old.checks), list(new.checks)
    names = _renamed(old, new)
    changed: list[Pair] = []
    for form in (_form, _written_out):
        changed += [pair for pair in _equal(olds, news, names, form) if pair.changes]
    changed += _related(olds, news, names)
    changed += [pair for pair in _same_statement(olds, news, names) if pair.changes]
    changed += _alike(olds, news)
    return Paired(tuple(changed), tuple(olds), tuple(news))


def _renamed(old: Body, new: Body) -> Renamed:
    """Which names may have become others: those that a function binds on one side only."""
    gone, come = (
        {name for scope, names in one.locals.items() for name in names - other.locals.get(scope, set())}
        for one, other in ((old, new), (new, old))
    )
    return Renamed(frozenset(gone), frozenset(come), cases=_cases(old))


def new_skips(old: Body, new: Body) -> list[Skip]:
    """Calls that skip and did not; one that only moved, or is made under the same condition or a narrower one, did."""
    names, before, after = _renamed(old, new), list(old.skips), list(new.skips)
    for same in (_same_skip, _narrower_skip):
        for skip in list(before):
            match = next((other for other in after if same(skip, other, names)), None)
            if match is not None:
                before.remove(skip)
                after.remove(match)
    return after


def _same_skip(one: Skip, other: Skip, names: Renamed) -> bool:
    """Under the same condition; the reason may be another one, but not the module that is imported."""
    lost = _without(one.guards, other.guards, names)
    got = _without(other.guards, one.guards, names, back=True)
    return not (lost or got) and (one.text == other.text or _same_module(one, other, names))


def _same_module(one: Skip, other: Skip, names: Renamed) -> bool:
    calls = [ast.parse(skip.text, mode="eval").body for skip in (one, other)]
    modules = [
        c.args[0] if isinstance(c, ast.Call) and c.args and "importorskip" in ast.unparse(c.func) else None
        for c in calls
    ]
    if modules[0] is None or modules[1] is None:
        return modules == [None, None]
    try:
        return not compare(modules[0], modules[1], _copy(names))
    except Unlike:
        return False


def _narrower_skip(one: Skip, other: Skip, names: Renamed) -> bool:
    return one.text == other.text and not _without(one.guards, other.guards, names)


def _distinct(checks: Sequence[Check]) -> list[Check]:
    """Each assertion once: a helper that is called twice with the same arguments asserts the same twice."""
    found: dict[tuple[str, tuple[str, ...], tuple[str, int]], Check] = {}
    for check in checks:
        found.setdefault((ast.unparse(check.expr), check.guards, (check.file, check.line)), check)
    return list(found.values())


def _form(check: Check) -> str:
    return ast.unparse(check.expr)


def _written_out(check: Check) -> str:
    return check.written_out


def _cases(body: Body) -> frozenset[str]:
    """What the test's loops and parametrisations run over, as text."""
    cells: set[str] = set()
    for decorator in body.place.node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
            cells |= {
                ast.unparse(node) for node in ast.walk(decorator) if isinstance(node, ast.Attribute | ast.Constant)
            }
    for check in body.checks:
        for row in (row for rows in check.rows.values() for row in rows):
            cells |= {ast.unparse(n) for n in ast.walk(ast.parse(row)) if isinstance(n, ast.Attribute | ast.Constant)}
    return frozenset(cells)


def _equal(olds: list[Check], news: list[Check], names: Renamed, form: Callable[[Check], str]) -> Iterator[Pair]:
    """Takes out the pairs that say the same word by word; conditions and cases may have changed around them."""
    texts: dict[str, list[Check]] = {}
    for check in news:
        texts.setdefault(form(check), []).append(check)
    for check in list(olds):
        same = texts.get(form(check))
        if same:
            best = min(same, key=lambda other: (other.guards != check.guards, abs(other.line - check.line)))
            same.remove(best)
            olds.remove(check)
            news.remove(best)
            yield Pair(check, best, tuple(around(check, best, names)))


def _related(olds: list[Check], news: list[Check], names: Renamed) -> list[Pair]:
    """Takes out the pairs that are about the same thing."""
    scored = []
    for i, old in enumerate(olds):
        for j, new in enumerate(news):
            changes = _changes(old, new, _copy(names))
            if changes is not None:
                scored.append((_cost(changes, old, new), i, j, changes))
    scored.sort(key=lambda entry: entry[:3])
    return _taken(olds, news, [(i, j) for _, i, j, _ in scored], names)


def _taken(olds: list[Check], news: list[Check], wanted: Sequence[tuple[int, int]], names: Renamed) -> list[Pair]:
    """The wanted pairs whose two are still free. A renaming once taken holds for the rest of the test."""
    found, left, right = [], list(olds), list(news)
    used: tuple[set[int], set[int]] = (set(), set())
    for i, j in wanted:
        if i in used[0] or j in used[1]:
            continue
        trial = _copy(names)
        changes = _changes(left[i], right[j], trial)
        if changes is None:
            continue
        names.pairs = trial.pairs
        used[0].add(i)
        used[1].add(j)
        found.append(Pair(left[i], right[j], tuple(changes)))
    olds[:] = [check for i, check in enumerate(left) if i not in used[0]]
    news[:] = [check for j, check in enumerate(right) if j not in used[1]]
    return found


def _changes(old: Check, new: Check, names: Renamed) -> list[Change] | None:
    try:
        return [*compare(old.expr, new.expr, names), *around(old, new, names)]
    except Unlike:
        return None


def _same_statement(olds: list[Check], news: list[Check], names: Renamed) -> Iterator[Pair]:
    """Takes out the pairs that are one statement of one helper, whose parameters stand for other things.

    Where the helper itself is as it was, its call is another; where it isn't, its arguments had to change.
    """
    for old in list(olds):
        same = [
            (len(changes), new.line, new, changes)
            for new in news
            if (changes := _plain_changes(old, new, names)) is not None
        ]
        if not same:
            continue
        _, _, new, changes = min(same, key=lambda entry: entry[:2])
        olds.remove(old)
        news.remove(new)
        assert old.via is not None and new.via is not None
        changes += around(old, new, names)
        if old.via.source == new.via.source:
            was, now = old.via.call, new.via.call
            changes.append(Change(Way.UNTOLD, ast.unparse(was), ast.unparse(now), was, now, call=True))
        yield Pair(old, new, tuple(changes))


def _plain_changes(old: Check, new: Check, names: Renamed) -> list[Change] | None:
    """What changed in one statement of one helper, its arguments aside but for bounds; None if it is another one."""
    if old.via is None or new.via is None or old.shown != new.shown or old.via.place.scope != new.via.place.scope:
        return None
    try:
        return compare(old.plain, new.plain, _copy(names))
    except Unlike:
        return None


def _copy(names: Renamed) -> Renamed:
    return replace(names, pairs=dict(names.pairs))


def _cost(changes: Sequence[Change], old: Check, new: Check) -> tuple[float, int]:
    weight = {Way.UNTOLD: 5.0, Way.EXPECTED: 3.0, Way.LOOSER: 1.0, Way.TIGHTER: 1.0}
    likeness = difflib.SequenceMatcher(None, old.shown, new.shown).ratio()
    return sum(weight[change.way] for change in changes) + 1 - likeness, abs(old.line - new.line)


def around(old: Check, new: Check, names: Renamed) -> Iterator[Change]:
    """Changes of the conditions and of the literal loops around an assertion that itself says the same."""
    lost, got = _without(old.guards, new.guards, names), _without(new.guards, old.guards, names, back=True)
    if got or lost:
        way = Way.UNTOLD if got and lost else Way.LOOSER if got else Way.TIGHTER
        yield Change(way, _condition(lost), _condition(got), words=True)
    for name, rows in old.rows.items():
        missing = [row for row in rows if row not in new.rows.get(name, rows)]
        if missing:
            gone = ", ".join(missing)
            yield Change(Way.LOOSER, f"for `{name}` in `{', '.join(rows)}`", f"no longer for `{gone}`", words=True)


def _condition(guards: Sequence[str]) -> str:
    return f"asserted if `{' and '.join(guards).replace('`', chr(39))}`" if guards else "always asserted"


def _without(guards: Sequence[str], others: Sequence[str], names: Renamed, *, back: bool = False) -> list[str]:
    left = [guard for guard in guards if guard not in others]
    return [guard for guard in left if not any(_same_guard(guard, other, names, back=back) for other in others)]


def _same_guard(one: str, other: str, names: Renamed, *, back: bool) -> bool:
    old, new = (other, one) if back else (one, other)
    try:
        first, second = ast.parse(old, mode="eval").body, ast.parse(new, mode="eval").body
        return not compare(first, second, _copy(names))
    except (SyntaxError, Unlike):
        return False


def _shown(old: Check, new: Check) -> tuple[str, str]:
    """Both as they are written, or, where that is the same, with what their names stand for."""
    return (old.shown, new.shown) if old.shown != new.shown else (_form(old), _form(new))


def _alike(olds: list[Check], news: list[Check]) -> list[Pair]:
    """Takes out the pairs that read alike: rewritten, nobody knows whether to accept more."""
    scored = []
    for i, old in enumerate(olds):
        for j, new in enumerate(news):
            ratio = difflib.SequenceMatcher(None, ast.unparse(old.expr), ast.unparse(new.expr)).ratio()
            if ratio >= ALIKE:
                scored.append((-ratio, abs(old.line - new.line), i, j))
    found, used = [], (set[int](), set[int]())
    for _, _, i, j in sorted(scored):
        if i not in used[0] and j not in used[1]:
            used[0].add(i)
            used[1].add(j)
            change = Change(Way.UNTOLD, *_shown(olds[i], news[j]))
            found.append(Pair(olds[i], news[j], (change,)))
    olds[:] = [check for i, check in enumerate(olds) if i not in used[0]]
    news[:] = [check for j, check in enumerate(news) if j not in used[1]]
    return found
