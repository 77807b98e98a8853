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
    by_key,
    choices,
    is_approx,
    is_literal,
    is_row,
    raising,
    sign_of,
)
from fastlora_verify.harness.suite_diff.ways import (
    Change,
    Renamed,
    Unlike,
    Way,
    changed,
    for_cases,
    numbers_changed,
    way_of,
)

_CARRYING = {"max", "min", "float", "int", "sum", "round", "tensor", "as_tensor", EITHER}


def compare(old: ast.expr, new: ast.expr, names: Renamed) -> list[Change]:
    """The changes from one assertion to the other, none if they say the same. Raises Unlike."""
    return list(_Comparison(names).pair(old, new, 0, 1))


class _Comparison:
    """`value` says what a greater number does here: 1 accepts more, -1 less, 0 neither; `truth` what being true does"""

    def __init__(self, names: Renamed) -> None:
        self._names = names

    def pair(self, old: ast.expr, new: ast.expr, value: int, truth: int) -> Iterator[Change]:
        one, other = number(old), number(new)
        if one is not None and other is not None:
            return iter(numbers_changed(one, other, old, new, value))
        if isinstance(old, ast.UnaryOp) and isinstance(new, ast.UnaryOp) and type(old.op) is type(new.op):
            turn = -1 if isinstance(old.op, ast.Not | ast.USub) else 1
            return self.pair(old.operand, new.operand, turn * value, turn * truth)
        method = next((m for kind, m in _METHODS if isinstance(old, kind) and isinstance(new, kind)), None)
        if method is not None or type(old) is type(new):
            saved = dict(self._names.pairs)
            try:
                return iter(list((method or _Comparison._generic)(self, old, new, value, truth)))
            except Unlike:
                self._names.pairs = saved
        return iter(self._otherwise(old, new, value, truth))

    def _otherwise(self, old: ast.expr, new: ast.expr, value: int, truth: int) -> list[Change]:
        """Different kinds of expression, of which one may still be the other with something added."""
        if truth and value == 0:
            found = alternative(old, new, truth, self._same) or nearness(old, new, truth, self._same)
            if found:
                return found
        if value:
            grown = slack(old, new, value, self.pair)
            if grown is not None:
                return grown
            choice = choices(old, new, value, self._names.cases)
            if choice is not None:
                return choice
            if number(old) is not None or number(new) is not None:
                return [changed(Way.UNTOLD, old, new)]
        raise Unlike

    def _same(self, old: ast.expr, new: ast.expr) -> bool:
        saved = dict(self._names.pairs)
        try:
            if not list(self.pair(old, new, 0, 0)):
                return True
        except Unlike:
            pass
        self._names.pairs = saved
        return False

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
            yield from self.pair(left, sides[0], -truth, 0)
            yield from self.pair(right, sides[1], truth, 0)
            return
        within = {ast.Eq: truth, ast.NotEq: -truth}.get(other, 0)
        symmetric = other in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
        tries = (sides, sides[::-1]) if symmetric else (sides,)
        for position, (a, b) in enumerate(tries):
            saved = dict(self._names.pairs)
            try:
                first, second = self._expected(left, a, within), self._expected(right, b, within)
            except Unlike:
                self._names.pairs = saved
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

    def _arithmetic(self, old: ast.BinOp, new: ast.BinOp, value: int, truth: int) -> Iterator[Change]:
        if type(old.op) is not type(new.op):
            raise Unlike
        signs = (value, value)
        if isinstance(old.op, ast.Sub | ast.Div | ast.FloorDiv):
            signs = (value, -value)
        elif isinstance(old.op, ast.Mult):
            signs = tuple(value * sign_of(factor) for factor in (old.right, old.left))  # type: ignore[assignment]
        elif isinstance(old.op, ast.Pow):
            base = number(old.left)
            signs = (value, 0 if base is None else value if base > 1 else -value)
        elif not isinstance(old.op, ast.Add):
            signs = (0, 0)
        for one, other, sign in ((old.left, new.left, signs[0]), (old.right, new.right, signs[1])):
            changes = list(self.pair(one, other, sign, 0))
            if changes and value and not sign:
                raise Unlike  # of a remainder, say, nobody knows what a greater number does
            yield from changes

    def _call(self, old: ast.Call, new: ast.Call, value: int, truth: int) -> Iterator[Change]:
        name = callee(old)
        if name == callee(new) == "raises":
            yield from raising(old, new, truth)
            return
        if len(old.args) != len(new.args):
            raise Unlike
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

    def _choice(self, old: ast.IfExp, new: ast.IfExp, value: int, truth: int) -> Iterator[Change]:
        yield from self._nothing_else(old.test, new.test)
        yield from self.pair(old.body, new.body, value, truth)
        yield from self.pair(old.orelse, new.orelse, value, truth)

    def _item(self, old: ast.Subscript, new: ast.Subscript, value: int, truth: int) -> Iterator[Change]:
        yield from self.pair(old.value, new.value, value, 0)
        if is_row(old) != is_row(new):
            raise Unlike
        if not is_row(old):
            yield from self._nothing_else(old.slice, new.slice)

    def _table(self, old: ast.Dict, new: ast.Dict, value: int, truth: int) -> Iterator[Change]:
        """By key; a key that only one side has belongs to cases that the other doesn't have."""
        first, second = by_key(old), by_key(new)
        if not first.keys() & second.keys():
            raise Unlike
        for key in first.keys() & second.keys():
            for change in self.pair(first[key], second[key], value, 0):
                yield for_cases(change, [key])

    def _name(self, old: ast.Name, new: ast.Name, value: int, truth: int) -> Iterator[Change]:
        if not self._names.same(old.id, new.id):
            raise Unlike
        return iter(())

    def _generators(self, old: ast.GeneratorExp, new: ast.GeneratorExp, value: int, truth: int) -> Iterator[Change]:
        if len(old.generators) != len(new.generators):
            raise Unlike
        for a, b in zip(old.generators, new.generators, strict=True):
            self._bound(a.target, b.target)
            yield from self._nothing_else(a.iter, b.iter)
            if len(a.ifs) != len(b.ifs):
                raise Unlike
            for one, other in zip(a.ifs, b.ifs, strict=True):
                yield from self._nothing_else(one, other)
        yield from self.pair(old.elt, new.elt, 0, truth)

    def _bound(self, old: ast.expr, new: ast.expr) -> None:
        """Names of a comprehension may be others."""
        names = [[n.id for n in ast.walk(target) if isinstance(n, ast.Name)] for target in (old, new)]
        if len(names[0]) != len(names[1]):
            raise Unlike
        for one, other in zip(*names, strict=True):
            if one != other:
                self._names.gone |= {one}
                self._names.new |= {other}
                self._names.pairs[one] = other

    def _nothing_else(self, old: ast.expr, new: ast.expr) -> Iterator[Change]:
        if not self._same(old, new):
            raise Unlike
        return iter(())

    def _generic(self, old: ast.AST, new: ast.AST, value: int, truth: int) -> Iterator[Change]:
        for name in old._fields:
            one, other = getattr(old, name, None), getattr(new, name, None)
            pairs = (
                zip(one, other, strict=False) if isinstance(one, list) and isinstance(other, list) else [(one, other)]
            )
            if isinstance(one, list) and (not isinstance(other, list) or len(one) != len(other)):
                raise Unlike
            for a, b in pairs:
                yield from self._part(a, b)

    def _part(self, a: object, b: object) -> Iterator[Change]:
        if isinstance(a, ast.expr) and isinstance(b, ast.expr):
            found = list(self.pair(a, b, 0, 0))
            if found:
                raise Unlike  # another number in a subject is another subject
        elif isinstance(a, ast.AST) and isinstance(b, ast.AST):
            if type(a) is not type(b):
                raise Unlike
            yield from self._generic(a, b, 0, 0)
        elif a != b or type(a) is not type(b):
            raise Unlike


_METHODS: Sequence[tuple[type[ast.expr], Callable[..., Iterator[Change]]]] = (
    (ast.Compare, _Comparison._compare),
    (ast.BoolOp, _Comparison._bool),
    (ast.BinOp, _Comparison._arithmetic),
    (ast.Call, _Comparison._call),
    (ast.IfExp, _Comparison._choice),
    (ast.Subscript, _Comparison._item),
    (ast.Dict, _Comparison._table),
    (ast.Name, _Comparison._name),
    (ast.GeneratorExp, _Comparison._generators),
    (ast.ListComp, _Comparison._generators),
    (ast.SetComp, _Comparison._generators),
)
