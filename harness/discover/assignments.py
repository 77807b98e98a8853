"""What the scopes of a target assign, each read once: to names of its own, and in a class to attributes of `self`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from fastlora_verify.mutations.tree import children

Values = dict[str, list[cst.BaseExpression]]


class Assignments:
    """By holder: a function, a class or a module, of syntax trees that live at least as long as this."""

    def __init__(self) -> None:
        self._names: dict[int, Values] = {}
        self._on_self: dict[int, Values] = {}

    def of(self, holder: cst.CSTNode, name: str) -> list[cst.BaseExpression]:
        """What a scope assigns to a name."""
        if id(holder) not in self._names:
            self._names[id(holder)] = _names(holder)
        return self._names[id(holder)].get(name, [])

    def on_self(self, holder: cst.ClassDef, name: str) -> list[cst.BaseExpression]:
        """What the methods of a class assign to `self.name`."""
        if id(holder) not in self._on_self:
            self._on_self[id(holder)] = _on_self(holder)
        return self._on_self[id(holder)].get(name, [])


def _names(holder: cst.CSTNode) -> Values:
    found: Values = defaultdict(list)
    for node in _own(holder):
        targets: list[cst.BaseExpression] = []
        if isinstance(node, cst.Assign):
            targets = [target.target for target in node.targets]
        elif isinstance(node, cst.AnnAssign | cst.NamedExpr):
            targets = [node.target]
        value = node.value if isinstance(node, cst.Assign | cst.AnnAssign | cst.NamedExpr) else None
        if value is not None:
            for name in dict.fromkeys(target.value for target in targets if isinstance(target, cst.Name)):
                found[name].append(value)
    return dict(found)


def _on_self(holder: cst.ClassDef) -> Values:
    found: Values = defaultdict(list)
    for node in m.findall(holder, m.Assign(targets=[m.AssignTarget(m.Attribute(m.Name("self")))])):
        assert isinstance(node, cst.Assign)
        target = node.targets[0].target
        assert isinstance(target, cst.Attribute)
        found[target.attr.value].append(node.value)
    return dict(found)


def _own(holder: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes of a scope, those of the scopes inside it left out."""
    stack = list(children(holder))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            stack.extend(children(node))
