"""Two expressions walked side by side: arithmetic carries a direction on, everything else must be the same."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator

from fastlora_verify.harness.suite_diff.numbers import number
from fastlora_verify.harness.suite_diff.operands import by_key, is_row, number_first, sign_of
from fastlora_verify.harness.suite_diff.ways import Change, Renamed, Unlike, for_cases


class Structure(ABC):
    """`value` tells what a greater number does here: 1 accepts more, -1 less, 0 neither; `truth` the same of truth."""

    def __init__(self, names: Renamed) -> None:
        self.names = names

    @abstractmethod
    def pair(self, old: ast.expr, new: ast.expr, value: int, truth: int) -> Iterator[Change]:
        """The changes from one expression to the other. Raises Unlike."""

    def same(self, old: ast.expr, new: ast.expr) -> bool:
        saved = dict(self.names.pairs)
        try:
            if not list(self.pair(old, new, 0, 0)):
                return True
        except Unlike:
            pass
        self.names.pairs = saved
        return False

    def arithmetic(self, old: ast.BinOp, new: ast.BinOp, value: int, truth: int) -> Iterator[Change]:
        if type(old.op) is not type(new.op):
            raise Unlike
        olds, news = number_first(old), number_first(new)
        signs = (value, value)
        if isinstance(old.op, ast.Sub | ast.Div | ast.FloorDiv):
            signs = (value, -value)
        elif isinstance(old.op, ast.Mult):
            signs = tuple(value * sign_of(factor) for factor in (olds[1], olds[0]))  # type: ignore[assignment]
        elif isinstance(old.op, ast.Pow):
            base = number(old.left)
            signs = (value, 0 if base is None else value if base > 1 else -value)
        elif not isinstance(old.op, ast.Add):
            signs = (0, 0)
        for one, other, sign in zip(olds, news, signs, strict=True):
            changes = list(self.pair(one, other, sign, 0))
            if changes and value and not sign:
                raise Unlike  # of a remainder, say, nobody knows what a greater number does
            yield from changes

    def choice(self, old: ast.IfExp, new: ast.IfExp, value: int, truth: int) -> Iterator[Change]:
        yield from self.must_be_same(old.test, new.test)
        yield from self.pair(old.body, new.body, value, truth)
        yield from self.pair(old.orelse, new.orelse, value, truth)

    def item(self, old: ast.Subscript, new: ast.Subscript, value: int, truth: int) -> Iterator[Change]:
        yield from self.pair(old.value, new.value, value, 0)
        if is_row(old) != is_row(new):
            raise Unlike
        if not is_row(old):
            yield from self.must_be_same(old.slice, new.slice)

    def table(self, old: ast.Dict, new: ast.Dict, value: int, truth: int) -> Iterator[Change]:
        """By key; in a table of bounds a key that only one side has belongs to cases that the other doesn't have."""
        first, second = by_key(old), by_key(new)
        common = [key for key in first if key in second]
        if (not common and (first or second)) or (not value and first.keys() != second.keys()):
            raise Unlike
        for key in common:
            for change in self.pair(first[key], second[key], value, 0):
                yield for_cases(change, [key])

    def elements(self, old: ast.Tuple, new: ast.Tuple, value: int, truth: int) -> Iterator[Change]:
        if len(old.elts) != len(new.elts):
            raise Unlike
        for a, b in zip(old.elts, new.elts, strict=True):
            yield from self.pair(a, b, value, 0)

    def bare_name(self, old: ast.Name, new: ast.Name, value: int, truth: int) -> Iterator[Change]:
        if not self.names.same(old.id, new.id):
            raise Unlike
        return iter(())

    def generators(self, old: ast.GeneratorExp, new: ast.GeneratorExp, value: int, truth: int) -> Iterator[Change]:
        if len(old.generators) != len(new.generators):
            raise Unlike
        for a, b in zip(old.generators, new.generators, strict=True):
            self._bound(a.target, b.target)
            yield from self.must_be_same(a.iter, b.iter)
            if len(a.ifs) != len(b.ifs):
                raise Unlike
            for one, other in zip(a.ifs, b.ifs, strict=True):
                yield from self.must_be_same(one, other)
        yield from self.pair(old.elt, new.elt, 0, truth)

    def _bound(self, old: ast.expr, new: ast.expr) -> None:
        """Names of a comprehension may be others."""
        names = [[n.id for n in ast.walk(target) if isinstance(n, ast.Name)] for target in (old, new)]
        if len(names[0]) != len(names[1]):
            raise Unlike
        for one, other in zip(*names, strict=True):
            if one != other:
                self.names.gone |= {one}
                self.names.new |= {other}
                self.names.pairs[one] = other

    def must_be_same(self, old: ast.expr, new: ast.expr) -> Iterator[Change]:
        if not self.same(old, new):
            raise Unlike
        return iter(())

    def fields(self, old: ast.AST, new: ast.AST, value: int, truth: int) -> Iterator[Change]:
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
            yield from self.fields(a, b, 0, 0)
        elif a != b or type(a) is not type(b):
            raise Unlike
