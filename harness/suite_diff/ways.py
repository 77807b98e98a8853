"""What a change of an assertion does to what a test accepts."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum


class Way(Enum):
    """What a change does to what a test accepts."""

    LOOSER = "looser"
    TIGHTER = "tighter"
    EXPECTED = "expected"  # another value is expected
    UNTOLD = "untold"  # can't be told from the source


@dataclass(frozen=True)
class Change:
    """One difference between two assertions."""

    way: Way
    old: str
    new: str
    was: ast.AST | None = None  # what changed on either side, for its place
    node: ast.AST | None = None
    case: str = ""  # the cases that it holds for, where not for all
    call: bool = False  # `old` and `new` are calls of the helper that asserts it
    words: bool = False  # `old` and `new` are words, no code


class Unlike(Exception):  # noqa: N818 - an answer
    """The assertions are about different things."""


@dataclass
class Renamed:
    """Which local of the base may be which local of the head: only names that the other side doesn't have."""

    gone: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    pairs: dict[str, str] = field(default_factory=dict)
    cases: frozenset[str] = frozenset()  # what the base's own loops and parametrisations run over

    def same(self, old: str, new: str) -> bool:
        """Whether two names can be one; remembers the pair."""
        if old == new:
            return True
        if old not in self.gone or new not in self.new or self.pairs.get(old, new) != new:
            return False
        if new in self.pairs.values() and old not in self.pairs:
            return False
        self.pairs[old] = new
        return True


def way_of(growth: int, sign: int) -> Way:
    return {1: Way.LOOSER, -1: Way.TIGHTER, 0: Way.UNTOLD}[growth * sign]


def changed(way: Way, old: ast.expr, new: ast.expr) -> Change:
    return Change(way, ast.unparse(old), ast.unparse(new), old, new)


def for_cases(change: Change, cases: Sequence[str]) -> Change:
    return replace(change, case=", ".join(cases))


def numbers_changed(one: float, other: float, old: ast.expr, new: ast.expr, value: int) -> list[Change]:
    """What it does that a number is another one, where a greater one accepts more (1), less (-1) or neither (0)."""
    if one == other:
        return []
    if not value:
        return [changed(Way.EXPECTED, old, new)]
    return [changed(way_of(1 if other > one else -1, value), old, new)]
