"""What names stand for in an assertion: constants of modules and classes, locals, arguments, rows of a parametrisation.

A name gives way to its value where that is *bound-like*: made of numbers by arithmetic, a table of numbers, a choice
between such. So a bound is the same number whether it is written out, named, or passed to a helper; everything else
keeps its name. Parameters of helpers give way to the arguments, whatever these are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fastlora_verify.harness.suite_diff.frame import DEEPEST, Frame, called, class_constant
from fastlora_verify.harness.suite_diff.numbers import EITHER, is_bound, is_predicate, is_small
from fastlora_verify.harness.suite_diff.sources import FUNCTIONS, Function, Module, Place, assigned, bindings
from fastlora_verify.harness.suite_diff.tables import columns, rows, target_names

Node = TypeVar("Node", bound=ast.AST)


def resolve(node: ast.expr, frame: Frame) -> ast.expr:
    """A copy of the expression with names put in for."""
    resolved = _Resolver(frame).visit(_copied(node))
    assert isinstance(resolved, ast.expr)
    return resolved


def _copied(node: Node) -> Node:
    """All of it anew, places included; the copy module takes five times as long."""
    new = type(node).__new__(type(node))
    for name, value in vars(node).items():
        if isinstance(value, ast.AST):
            value = _copied(value)
        elif isinstance(value, list):
            value = [_copied(item) if isinstance(item, ast.AST) else item for item in value]
        setattr(new, name, value)
    return new


class _Resolver(ast.NodeTransformer):
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._own: set[str] = set()  # of comprehensions and lambdas

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id in self._own:
            return node
        if node.id in self._frame.names:
            return self._frame.names[node.id]
        if node.id in self._frame.hidden:
            return node
        return self._constant(self._frame.module, node.id) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        found = self._of_class(node) or self._of_module(node)
        if found is not None:
            return found
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        place = called(node, self._frame)
        self.generic_visit(node)
        if place is None or place.key in self._frame.stack or len(self._frame.stack) >= DEEPEST:
            return node
        value = _returned(node, place, self._frame)
        return value if value is not None else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        self._own |= {argument.arg for argument in node.args.args}
        self.generic_visit(node)
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._comprehension(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self._comprehension(node)

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp) -> ast.expr:
        for generator in node.generators:
            self._own |= set(bindings(generator.target))
        self.generic_visit(node)
        return node

    def _constant(self, module: Module, name: str) -> ast.expr | None:
        found = self._frame.sources.constant(module, name)
        if found is None or ("", name) in self._frame.stack:
            return None
        there = Frame(self._frame.sources, found[0], stack=(*self._frame.stack, ("", name)))
        value = resolve(found[1], there)
        return value if is_bound(value) else None

    def _of_class(self, node: ast.Attribute) -> ast.expr | None:
        """`self.TOL`, `cls.TOL` or `Class.TOL`."""
        if not isinstance(node.value, ast.Name):
            return None
        name, owner = node.value.id, self._frame.owner
        if name not in ("self", "cls"):
            owner = (self._frame.module, name)
        value = class_constant(self._frame.sources, owner, node.attr) if owner is not None else None
        if value is None or ("", node.attr) in self._frame.stack:
            return None
        there = replace(self._frame, names={}, stack=(*self._frame.stack, ("", node.attr)))
        resolved = resolve(value, there)
        return resolved if is_bound(resolved) else None

    def _of_module(self, node: ast.Attribute) -> ast.expr | None:
        if not isinstance(node.value, ast.Name) or node.value.id in self._frame.hidden:
            return None
        there = self._frame.sources.imported(self._frame.module, node.value.id)
        return self._constant(there[0], node.attr) if there is not None and not there[1] else None


def enter(node: ast.Call, place: Place, frame: Frame, *, written_out: ast.Call | None = None) -> Frame:
    """The frame of a called function: parameters stand for the arguments, which are resolved already."""
    inside = Frame(frame.sources, place.module, frame.owner, stack=(*frame.stack, place.key))
    if place.owner and frame.owner is None:
        inside = replace(inside, owner=(place.module, place.owner))
    names = dict(_arguments(node, place, inside))
    wide = dict(_arguments(written_out, place, inside)) if written_out is not None else {}
    if place.module is frame.module and "." in place.scope and not place.owner:
        names, wide = {**frame.names, **names}, {**frame.assigned, **wide}  # a nested function sees what is around it
    inside = replace(inside, names=_small(names), assigned=_small(wide))
    return with_locals(place.node, inside)


def _small(values: Mapping[str, ast.expr]) -> dict[str, ast.expr]:
    return {name: value for name, value in values.items() if is_small(value)}


def _arguments(node: ast.Call, place: Place, inside: Frame) -> Iterator[tuple[str, ast.expr]]:
    parameters = place.node.args
    names = [argument.arg for argument in (*parameters.posonlyargs, *parameters.args)]
    defaults: Sequence[ast.expr] = parameters.defaults
    for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
        yield name, resolve(default, inside)
    for argument, only in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if only is not None:
            yield argument.arg, resolve(only, inside)
    if names and names[0] in ("self", "cls") and place.owner:
        names = names[1:]
    for name, value in zip(names, node.args, strict=False):
        if isinstance(value, ast.Starred):
            return
        yield name, value
    yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)


def _returned(node: ast.Call, place: Place, frame: Frame) -> ast.expr | None:
    """What a helper returns, if that is a bound or a predicate and its body only chooses between returns."""
    value = _choice([s for s in place.node.body if not _is_docstring(s)])
    if value is None:
        return None
    resolved = resolve(value, enter(node, place, frame))
    return resolved if is_bound(resolved) or is_predicate(resolved) else None


def _choice(body: Sequence[ast.stmt]) -> ast.expr | None:
    """`if C: return A` and `return B` as `A if C else B`; assignments before them are looked up by name."""
    for position, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            return statement.value
        if isinstance(statement, ast.If):
            yes = _choice(statement.body)
            no = _choice([*statement.orelse, *body[position + 1 :]])
            if yes is None or no is None:
                return None
            return ast.copy_location(ast.IfExp(statement.test, yes, no), statement)
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            return None
    return None


def with_locals(function: Function, frame: Frame) -> Frame:
    """The frame with the function's own names, as far as their values are known."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    parameters = {argument.arg for argument in every if argument is not None}
    bound = [name for statement in function.body for name in bindings(statement)]
    names, wide = ({n: v for n, v in known.items() if n not in bound} for known in (frame.names, frame.assigned))
    frame = replace(frame, names=names, assigned=wide, hidden=frame.hidden | parameters | set(bound))
    values: dict[str, list[ast.expr]] = {}
    for statement in own_statements(function.body):
        for name, value in assigned(statement):
            values.setdefault(name, []).append(resolve(value, frame))
            if len(values[name]) == bound.count(name) and all(is_bound(v) and is_small(v) for v in values[name]):
                frame = replace(frame, names={**frame.names, name: _either(values[name])})
            elif bound.count(name) == 1:
                wide = _small({name: resolve(value, frame.written_out)})
                frame = replace(frame, assigned={**frame.assigned, **wide})
        if isinstance(statement, ast.For):
            frame = replace(frame, names={**frame.names, **_looped(statement, frame, bound)})
    return frame


def _either(values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.copy_location(ast.Call(ast.Name(EITHER), values, []), values[0])


def _looped(statement: ast.For, frame: Frame, bound: list[str]) -> Mapping[str, ast.expr]:
    names = target_names(statement.target)
    if any(bound.count(name) != 1 for name in names):
        return {}
    cells = rows(statement.iter, frame, len(names))
    return columns(names, [[resolve(cell, frame) for cell in row] for row in cells])


def own_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a function in source order, those of blocks included, nested definitions' left out."""
    for statement in body:
        yield statement
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from own_statements(getattr(statement, name, []))
        for block in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from own_statements(block.body)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
