"""Conditions of marks that skip: `skipif` and `xfail` of a test, its classes and its file, as they are written.

Whether a mark is there is known from the collection. Here only what stands in a mark that is there on both sides
counts: on this machine the condition may be false before and after, and elsewhere not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fastlora_verify.harness.suite_diff.frame import Frame
from fastlora_verify.harness.suite_diff.sources import Module, Place, Sources, assigned
from fastlora_verify.harness.suite_diff.values import resolve

_CONDITIONAL = {"skipif": "skipif", "xfail": "xfail", "skipIf": "skipif", "skipUnless": "skipunless"}


def changed_conditions(old: Sources, new: Sources, before: Place, after: Place) -> Iterator[tuple[str, str, str]]:
    """(mark, what it said, what it says now), where a test has the same marks with another condition."""
    first, second = list(_conditions(old, before)), list(_conditions(new, after))
    if sorted(name for name, _ in first) != sorted(name for name, _ in second):
        return  # a mark came or went, which the collection says
    gone = [mark for mark in first if mark not in second]
    come = [mark for mark in second if mark not in first]
    for (name, was), (_, now) in zip(sorted(gone), sorted(come), strict=False):
        yield name, was, now


def _conditions(sources: Sources, place: Place) -> Iterator[tuple[str, str]]:
    for module, node in _decorators(sources, place):
        call = _mark(sources, module, node)
        name = ast.unparse(call.func).rpartition(".")[2] if call is not None else ""
        if call is not None and name in _CONDITIONAL:
            frame = Frame(sources, module)
            words = [ast.unparse(resolve(value, frame)) for value in call.args[:1]]
            words += [
                f"{w.arg}={ast.unparse(w.value)}" for w in call.keywords if w.arg in ("condition", "strict", "raises")
            ]
            yield _CONDITIONAL[name], ", ".join(words)


def _decorators(sources: Sources, place: Place) -> Iterator[tuple[Module, ast.expr]]:
    module = place.module
    yield from ((module, node) for node in place.node.decorator_list)
    scope = place.scope
    while "." in scope:
        scope = scope.rpartition(".")[0]
        around = module.scopes.get(scope)
        if isinstance(around, ast.ClassDef):
            yield from ((module, node) for node in around.decorator_list)
            yield from ((module, node) for node in _pytestmark(around.body))
    yield from ((module, node) for node in _pytestmark(module.tree.body))


def _pytestmark(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for statement in body:
        for name, value in assigned(statement):
            if name == "pytestmark":
                yield from value.elts if isinstance(value, ast.Tuple | ast.List) else [value]


def _mark(sources: Sources, module: Module, node: ast.expr) -> ast.Call | None:
    """The mark itself, where a name stands for it: `needs_cuda = pytest.mark.skipif(…)`."""
    if isinstance(node, ast.Name):
        found = sources.constant(module, node.id)
        node = found[1] if found is not None else node
    return node if isinstance(node, ast.Call) else None
