"""Assertions taken apart: what is set against what, within which tolerance, in which cases, under which exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from fastlora_verify.harness.suite_diff.assertions import callee
from fastlora_verify.harness.suite_diff.numbers import EITHER, number
from fastlora_verify.harness.suite_diff.tables import ROW
from fastlora_verify.harness.suite_diff.ways import Change, Unlike, Way, changed, for_cases, way_of

# What each comparison accepts: the left side less than the right, equal to it, more.
ACCEPTED: Mapping[type[ast.cmpop], frozenset[str]] = {
    ast.Lt: frozenset({"less"}),
    ast.LtE: frozenset({"less", "equal"}),
    ast.Eq: frozenset({"equal"}),
    ast.NotEq: frozenset({"less", "more"}),
}
EXACT = {"equal", "array_equal", "assert_array_equal", "assert_equal"}


_CLOSE = {"allclose", "assert_allclose", "assert_close", "isclose"}


def sign_of(factor: ast.expr) -> int:
    value = number(factor)
    return -1 if value is not None and value < 0 else 1


def without_number(node: ast.expr) -> Iterator[tuple[ast.expr, float, float, int]]:
    """(the rest, the number, the number that would change nothing, what a greater number does to the whole)."""
    if not isinstance(node, ast.BinOp):
        return
    left, right = number(node.left), number(node.right)
    if isinstance(node.op, ast.Mult | ast.Add):
        neutral = 1.0 if isinstance(node.op, ast.Mult) else 0.0
        if left is not None:
            yield node.right, left, neutral, 1
        if right is not None:
            yield node.left, right, neutral, 1
    elif isinstance(node.op, ast.Div | ast.Sub) and right is not None:
        yield node.left, right, 1.0 if isinstance(node.op, ast.Div) else 0.0, -1


def number_first(node: ast.BinOp) -> tuple[ast.expr, ast.expr]:
    """The operands, those of a sum or a product with a number in front."""
    if isinstance(node.op, ast.Add | ast.Mult) and number(node.right) is not None and number(node.left) is None:
        return node.right, node.left
    return node.left, node.right


def is_row(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == ROW


def is_lookup(node: ast.Call) -> bool:
    """`{…}.get(key)`."""
    return isinstance(node.func, ast.Attribute) and node.func.attr == "get" and isinstance(node.func.value, ast.Dict)


def is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def cases_of(node: ast.expr) -> dict[str, float] | None:
    """The numbers that an expression chooses from, by what they are for; None if it is no such choice."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
        found = {label: number(value) for label, value in by_key(node.value).items()}
    elif isinstance(node, ast.IfExp):
        test = ast.unparse(node.test)
        found = {test: number(node.body), f"not {test}": number(node.orelse)}
    elif isinstance(node, ast.Call) and callee(node) == EITHER:
        found = {ast.unparse(value): number(value) for value in node.args}
    else:
        return None
    numbers = {label: value for label, value in found.items() if value is not None}
    return numbers if len(numbers) == len(found) else None


def alternatives_of(node: ast.expr) -> list[ast.expr]:
    return list(node.values) if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) else [node]


def operands_of(node: ast.expr) -> tuple[ast.expr, ast.expr, bool] | None:
    """What an equality sets against each other, and whether it allows for a tolerance."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        return node.left, node.comparators[0], False
    if isinstance(node, ast.Call) and len(node.args) == 2 and callee(node) in EXACT | _CLOSE:
        words = {word.arg: number(word.value) for word in node.keywords}
        exact = callee(node) in EXACT or (words.get("rtol") == 0 and words.get("atol") == 0)
        return node.args[0], node.args[1], not exact
    return None


def is_approx(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and callee(node) == "approx"


def kinds_of(call: ast.Call) -> list[ast.expr]:
    if not call.args:
        return []
    return list(call.args[-1].elts) if isinstance(call.args[-1], ast.Tuple) else [call.args[-1]]


def covers(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Whether every exception of `narrow` is one of `wide`, as far as Python's own classes say so."""
    return all(any(_is_kind(one, other) for other in wide) for one in narrow)


def _is_kind(name: str, base: str) -> bool:
    import builtins

    one, other = getattr(builtins, name, None), getattr(builtins, base, None)
    if isinstance(one, type) and isinstance(other, type):
        return issubclass(one, other)
    return name == base or base in ("Exception", "BaseException")


def by_key(node: ast.Dict) -> dict[str, ast.expr]:
    return {
        ast.unparse(key).strip("'\""): value
        for key, value in zip(node.keys, node.values, strict=True)
        if key is not None
    }


def choices(old: ast.expr, new: ast.expr, value: int, known_cases: frozenset[str]) -> list[Change] | None:
    """One number became several, by case, or the other way round."""
    one, other, cases = number(old), number(new), cases_of(old) or cases_of(new)
    if cases is None or (one is None) == (other is None):
        return None
    growths = {label: ((v - one) if one is not None else ((other or 0) - v)) * value for label, v in cases.items()}
    loose = [label for label, growth in growths.items() if growth > 0]
    if not loose:
        return [changed(Way.TIGHTER, old, new)] if any(growths.values()) else []
    if len(loose) == len(growths) or one is None:
        return [for_cases(changed(Way.LOOSER, old, new), loose)]
    # Looser in some cases: no matter where the base doesn't have these cases.
    known = [label for label in loose if not known_cases.isdisjoint(label.split(", "))]
    if known:
        return [for_cases(changed(Way.LOOSER, old, new), known)]
    named = is_row(new)
    return [] if named or not known_cases else [changed(Way.UNTOLD, old, new)]


def kinds_changed(old: ast.Call, new: ast.Call, truth: int) -> Iterator[Change]:
    """What changed in the classes that a call names last: `raises(E)`, `isinstance(x, (A, B))`. Raises Unlike."""
    one, other = ([ast.unparse(kind) for kind in kinds_of(call)] for call in (old, new))
    if set(one) != set(other):
        grows, shrinks = covers(other, one), covers(one, other)
        if not (grows or shrinks):
            raise Unlike
        yield Change(way_of(1 if grows else -1, truth), ", ".join(one), ", ".join(other), old, new)


def membership(old: ast.Compare, new: ast.Compare, truth: int) -> list[Change] | None:
    """What changed in `x in (1, 2)` where one list holds the other; None where it doesn't, or they are no lists."""
    lists = [node.comparators[0] for node in (old, new)]
    members = [
        {ast.dump(value) for value in node.elts} for node in lists if isinstance(node, ast.Tuple | ast.List | ast.Set)
    ]
    if len(members) < 2 or not (members[0] <= members[1] or members[1] <= members[0]):
        return None
    if members[0] == members[1]:
        return []
    return [changed(way_of(1 if members[0] < members[1] else -1, truth), lists[0], lists[1])]


def raising(old: ast.Call, new: ast.Call, truth: int) -> Iterator[Change]:
    """What changed in the exceptions that are expected, and in their messages. Raises Unlike."""
    yield from kinds_changed(old, new, truth)
    first, second = ({w.arg: w.value for w in call.keywords}.get("match") for call in (old, new))
    if first is not None and second is not None:
        if ast.dump(first) != ast.dump(second):
            yield changed(Way.EXPECTED, first, second)
    elif first is not None or second is not None:
        was, now = (f"match={ast.unparse(v)}" if v is not None else "any message" for v in (first, second))
        yield Change(way_of(1 if second is None else -1, truth), was, now, first or old, second or new)
