"""An assertion that is another one with something added: a factor, a term, an alternative, a tolerance."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from fastlora_verify.harness.suite_diff.operands import alternatives_of, operands_of, without_number
from fastlora_verify.harness.suite_diff.ways import Change, Unlike, Way, changed, way_of

Same = Callable[[ast.expr, ast.expr], bool]
Compare = Callable[[ast.expr, ast.expr, int, int], Iterator[Change]]


def slack(old: ast.expr, new: ast.expr, value: int, pair: Compare) -> list[Change] | None:
    """`ref` and `2 * ref`, `ref` and `ref + 1e-3`: a bound that got, or lost, a factor or a term; None of others."""
    for whole, part, way in ((new, old, 1), (old, new, -1)):
        for rest, extra, neutral, turn in without_number(whole):
            try:
                changes = list(pair(*((part, rest) if way == 1 else (rest, part)), value, 0))
            except Unlike:
                continue
            if any(change.way is Way.UNTOLD for change in changes):
                continue
            if extra == neutral:
                return changes
            grows = (extra > neutral) == (turn * way > 0)
            return [*changes, changed(way_of(1 if grows else -1, value), old, new)]
    return None


def alternative(old: ast.expr, new: ast.expr, truth: int, same: Same) -> list[Change]:
    """An alternative added or taken away."""
    olds, news = alternatives_of(old), alternatives_of(new)
    for few, many, way in ((olds, news, 1), (news, olds, -1)):
        if len(few) < len(many) and all(any(_same(a, b, way, same) for b in many) for a in few):
            return [changed(way_of(way, truth), old, new)]
    return []


def _same(few: ast.expr, many: ast.expr, way: int, same: Same) -> bool:
    return same(few, many) if way == 1 else same(many, few)


def nearness(old: ast.expr, new: ast.expr, truth: int, same: Same) -> list[Change]:
    """`a == b` and `allclose(a, b)`, either way round."""
    first, second = operands_of(old), operands_of(new)
    if first is None or second is None or first[2] == second[2]:
        return []
    if not any(same(first[0], a) and same(first[1], b) for a, b in (second[:2], second[1::-1])):
        return []
    return [changed(way_of(1 if second[2] else -1, truth), old, new)]
