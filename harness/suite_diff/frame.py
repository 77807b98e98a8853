"""Where an expression of a test stands: the names that are known there, and the functions that calls there run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fastlora_verify.harness.suite_diff.numbers import is_bound
from fastlora_verify.harness.suite_diff.sources import FUNCTIONS, Module, Place, Sources
from fastlora_verify.harness.suite_diff.sources import constants as constants_of

DEEPEST = 8  # helpers that call helpers


@dataclass(frozen=True)
class Frame:
    """Where an expression stands, and what the names there are."""

    sources: Sources
    module: Module
    owner: tuple[Module, str] | None = None  # the class that `self` is of
    names: Mapping[str, ast.expr] = field(default_factory=dict)
    assigned: Mapping[str, ast.expr] = field(default_factory=dict)  # what else names stand for, written out
    hidden: frozenset[str] = frozenset()  # locals without a known value: no constant of the module
    stack: tuple[tuple[str, str], ...] = ()

    @property
    def plain(self) -> Frame:
        """The same, with the parameters of helpers left as they are but for those that stand for bounds."""
        return replace(self, names={name: value for name, value in self.names.items() if is_bound(value)})

    @property
    def written_out(self) -> Frame:
        """The same, with every name that is assigned once giving way to its value, whatever that is."""
        return replace(self, names={**self.names, **self.assigned})


def class_constant(sources: Sources, owner: tuple[Module, str], name: str, depth: int = 0) -> ast.expr | None:
    """What a class, or one of its bases, binds a name to."""
    node = owner[0].scopes.get(owner[1])
    if not isinstance(node, ast.ClassDef):
        return None
    value = constants_of(node.body).get(name)
    if value is not None:
        return value
    bases = sources.bases(*owner) if depth < 10 else ()
    return next((v for base in bases if (v := class_constant(sources, base, name, depth + 1)) is not None), None)


def called(node: ast.Call, frame: Frame) -> Place | None:
    """The function of the tree that a call runs."""
    func = node.func
    if isinstance(func, ast.Name):
        for path, scope in reversed(frame.stack):  # a function inside of the running one
            inner = frame.module.scopes.get(f"{scope}.{func.id}") if path == frame.module.path else None
            if isinstance(inner, FUNCTIONS):
                return Place(frame.module, f"{scope}.{func.id}", inner)
        return frame.sources.function(frame.module, func.id)
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        if func.value.id in ("self", "cls") and frame.owner is not None:
            return frame.sources.method(*frame.owner, func.attr)
        there = frame.sources.imported(frame.module, func.value.id)
        if there is not None and not there[1]:
            return frame.sources.function(there[0], func.attr)
        if isinstance(frame.module.scopes.get(func.value.id), ast.ClassDef):
            return frame.sources.method(frame.module, func.value.id, func.attr)
    return None
