"""Two assertions set against each other: does the second accept more, less, or something else?

Direction comes from where a number stands: in `x <= 2.0` more accepts more, in `19 <= n` less does, under `not` and
behind a minus it turns round, in a sum, a quotient or the arguments of max and min it is carried on. A factor whose
sign isn't known is taken as positive, as bounds are. In a subject (`f(3) <= 2.0`) or an expected value (`n == 3`) a
number has no direction.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fastlora_verify.harness.suite_diff.added import alternative, nearness, slack
from fastlora_verify.harness.suite_diff.assertions import CLOSENESS, TOLERANCES, callee
from fastlora_verify.harness.suite_diff.numbers import EITHER, number
from fastlora_verify.harness.suite_diff.operands import (
    ACCEPTED,
    EXACT,
    choices,
    is_approx,
    is_literal,
    is_lookup,
    kinds_changed,
    membership,
    raising,
)
from fastlora_verify.harness.suite_diff.structure import Structure
from fastlora_verify.harness.suite_diff.ways import (
    Change,
    Renamed,
    Unlike,
    Way,
    changed,
    numbers_changed,
    way_of,
)

_CARRYING = {"max", "min", "float", "int", "sum", "round", "tensor", "as_tensor", EITHER}


def compare(old: ast.expr, new: ast.expr, names: Renamed) -> list[Change]:
    """The changes from one assertion to the other, none if they say the same. Raises Unlike."""
    return list(_Comparison(names).pair(old, new, 0, 1))


class _Comparison(Structure):
    """Comparisons, disjunctions, calls: what judges, as against what is judged."""

    def pair(self, old: ast.expr, new: ast.expr, value: int, truth: int) -> Iterator[Change]:
        one, other = number(old), number(new)
        if one is not None and other is not None:
            return iter(numbers_changed(one, other, old, new, value))
        if isinstance(old, ast.UnaryOp) and isinstance(new, ast.UnaryOp) and type(old.op) is type(new.op):
            turn = -1 if isinstance(old.op, ast.Not | ast.USub) else 1
            return self.pair(old.operand, new.operand, turn * value, turn * truth)
        method = next((m for kind, m in _METHODS if isinstance(old, kind) and isinstance(new, kind)), None)
        if method is not None or type(old) is type(new):
            saved = dict(self.names.pairs)
            try:
                return iter(list((method or _Comparison.fields)(self, old, new, value, truth)))
            except Unlike:
                self.names.pairs = saved
        return iter(self._otherwise(old, new, value, truth))

    def _otherwise(self, old: ast.expr, new: ast.expr, value: int, truth: int) -> list[Change]:
        """Different kinds of expression, of which one may still be the other with something added."""
        if truth and value == 0:
            found = alternative(old, new, truth, self.same) or nearness(old, new, truth, self.same)
            if found:
                return found
        if value:
            grown = slack(old, new, value, self.pair)
            if grown is not None:
                return grown
            choice = choices(old, new, value, self.names.cases)
            if choice is not None:
                return choice
            if number(old) is not None or number(new) is not None:
                return [changed(Way.UNTOLD, old, new)]
        raise Unlike

    def _compare(self, old: ast.Compare, new: ast.Compare, value: int, truth: int) -> Iterator[Change]:
        one, other = type(old.ops[0]), type(new.ops[0])
        left, right = old.left, old.comparators[0]
        sides = (new.left, new.comparators[0])
        if one is not other:
            if one not in ACCEPTED or other not in ACCEPTED:
                raise Unlike
            was, now = ACCEPTED[one], ACCEPTED[other]
            if not (was < now or now < was):
                raise Unlike
            yield changed(way_of(1 if was < now else -1, truth), old, new)
        if other in (ast.Lt, ast.LtE):
            if one in (ast.Eq, ast.NotEq) and (self.same(right, sides[0]) or self.same(left, sides[1])):
                left, right = right, left
            yield from self.pair(left, sides[0], -truth, 0)
            yield from self.pair(right, sides[1], truth, 0)
            return
        if other in (ast.In, ast.NotIn):
            members = membership(old, new, truth if other is ast.In else -truth)
            if members is not None:
                yield from self.must_be_same(left, sides[0])
                yield from members
                return
        within = {ast.Eq: truth, ast.NotEq: -truth}.get(other, 0)
        symmetric = other in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
        tries = (sides, sides[::-1]) if symmetric else (sides,)
        for position, (a, b) in enumerate(tries):
            saved = dict(self.names.pairs)
            try:
                first, second = self._expected(left, a, within), self._expected(right, b, within)
            except Unlike:
                self.names.pairs = saved
                if position == len(tries) - 1:
                    raise
                continue
            if first and second and all(change.way is Way.EXPECTED for change in (*first, *second)):
                raise Unlike
            yield from (*first, *second)
            return

    def _expected(self, old: ast.expr, new: ast.expr, within: int) -> list[Change]:
        """An operand of `==`: another constant there is another expectation; a tolerance there loosens."""
        for plain, near, way in ((old, new, 1), (new, old, -1)):
            if is_approx(near) and not is_approx(plain) and isinstance(near, ast.Call) and near.args:
                a, b = (plain, near.args[0]) if way == 1 else (near.args[0], plain)
                return [*self._expected(a, b, within), changed(way_of(way, within), old, new)]
        if is_literal(old) and is_literal(new):
            equal = ast.dump(old) == ast.dump(new) or (number(old) is not None and number(old) == number(new))
            return [] if equal else [changed(Way.EXPECTED, old, new)]
        return list(self.pair(old, new, 0, within))

    def _bool(self, old: ast.BoolOp, new: ast.BoolOp, value: int, truth: int) -> Iterator[Change]:
        if type(old.op) is not type(new.op) or len(old.values) != len(new.values):
            raise Unlike
        for a, b in zip(old.values, new.values, strict=True):
            yield from self.pair(a, b, 0, truth)

    def _call(self, old: ast.Call, new: ast.Call, value: int, truth: int) -> Iterator[Change]:
        name = callee(old)
        if name == callee(new) == "raises":
            yield from raising(old, new, truth)
            return
        if len(old.args) != len(new.args):
            raise Unlike
        if name == callee(new) == "isinstance" and len(old.args) == 2:
            yield from self.must_be_same(old.args[0], new.args[0])
            yield from kinds_changed(old, new, truth)
            return
        if is_lookup(old) and is_lookup(new):
            yield from self._lookup(old, new, value)
            return
        yield from self.pair(old.func, new.func, 0, 0)
        carried = value if name in _CARRYING else 0
        judged = truth if name in ("all", "any", "bool") else 0
        compared = name in CLOSENESS or name in EXACT
        for a, b in zip(old.args, new.args, strict=True):
            changes = self._expected(a, b, 0) if compared else list(self.pair(a, b, carried, judged))
            if changes and not (carried or judged or compared):
                raise Unlike  # another argument of the subject
            yield from changes
        first, second = ({word.arg: word.value for word in call.keywords} for call in (old, new))
        for word in dict.fromkeys((*first, *second)):
            sign = TOLERANCES.get(word or "", 0) * truth
            yield from self._keyword(word or "**", first.get(word), second.get(word), sign, old, new)

    def _lookup(self, old: ast.Call, new: ast.Call, value: int) -> Iterator[Change]:
        """`{…}.get(key, default)`."""
        assert isinstance(old.func, ast.Attribute) and isinstance(new.func, ast.Attribute)
        yield from self.pair(old.func.value, new.func.value, value, 0)
        yield from self.must_be_same(old.args[0], new.args[0])
        for a, b in zip(old.args[1:], new.args[1:], strict=True):
            yield from self.pair(a, b, value, 0)

    def _keyword(
        self, word: str, one: ast.expr | None, other: ast.expr | None, sign: int, old: ast.expr, new: ast.expr
    ) -> Iterator[Change]:
        if one is not None and other is not None:
            for change in self._tolerance(one, other, sign):
                yield replace(change, old=f"{word}={change.old}", new=f"{word}={change.new}")
        elif not sign:
            raise Unlike
        else:
            was, now = (f"{word}={ast.unparse(v)}" if v is not None else f"{word} left out" for v in (one, other))
            yield Change(Way.UNTOLD, was, now, one or old, other or new)

    def _tolerance(self, one: ast.expr, other: ast.expr, sign: int) -> Iterator[Change]:
        flags = [v.value if isinstance(v, ast.Constant) and isinstance(v.value, bool) else None for v in (one, other)]
        if sign and None not in flags:
            if flags[0] != flags[1]:
                yield changed(way_of(1 if flags[1] else -1, sign), one, other)
            return
        try:
            yield from list(self.pair(one, other, sign, 0))
        except Unlike:
            if not sign:
                raise
            yield changed(Way.UNTOLD, one, other)


_METHODS: Sequence[tuple[type[ast.expr], Callable[..., Iterator[Change]]]] = (
    (ast.Compare, _Comparison._compare),
    (ast.BoolOp, _Comparison._bool),
    (ast.BinOp, _Comparison.arithmetic),
    (ast.Call, _Comparison._call),
    (ast.IfExp, _Comparison.choice),
    (ast.Subscript, _Comparison.item),
    (ast.Dict, _Comparison.table),
    (ast.Tuple, _Comparison.elements),
    (ast.List, _Comparison.elements),
    (ast.Name, _Comparison.bare_name),
    (ast.GeneratorExp, _Comparison.generators),
    (ast.ListComp, _Comparison.generators),
    (ast.SetComp, _Comparison.generators),
)
