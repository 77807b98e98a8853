"""Who calls an autograd Function: by its class, by an alias of its `apply`, by what a factory gives."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from fastlora_verify.harness.discover.calls import CallGraph, Function
from fastlora_verify.mutations.source import ParsedModule, TargetSource

BASE = m.Arg(value=m.Attribute(attr=m.Name("Function")) | m.Name("Function"))
CLASS, APPLY = "class", "apply"  # what an expression can mean: the Function itself, or its `apply`
MAX_STEPS = 6


@dataclass(frozen=True)
class AutogradFunction:
    """A class with a forward and a backward, derived from `torch.autograd.Function`."""

    module: ParsedModule
    scope: str

    @property
    def path(self) -> str:
        return f"{self.module.name}:{self.scope}"

    @property
    def name(self) -> str:
        return self.scope.rpartition(".")[2]


def autograd_functions(source: TargetSource) -> list[AutogradFunction]:
    """Those at module level and those built inside a function."""
    found = []
    for module in source.modules.values():
        for scope, node in module.scopes.items():
            if not isinstance(node, cst.ClassDef) or not any(m.matches(base, BASE) for base in node.bases):
                continue
            if f"{scope}.forward" in module.scopes and f"{scope}.backward" in module.scopes:
                found.append(AutogradFunction(module, scope))
    return sorted(found, key=lambda f: (f.module.name, f.module.line(f.module.scopes[f.scope])))


class Applied:
    """Which functions of a target call one autograd Function."""

    def __init__(self, graph: CallGraph, target: AutogradFunction) -> None:
        self.graph = graph
        self.target = target

    def appliers(self) -> list[Function]:
        return [f for f in self.graph.functions if self._applies(f)]

    def _applies(self, function: Function) -> bool:
        if function.scope.startswith(f"{self.target.scope}.") and function.module is self.target.module:
            return False
        calls = (n for n in self.graph.own_nodes(function) if isinstance(n, cst.Call))
        return any(self._means(call.func, function.module, function.scope, 0) == APPLY for call in calls)

    def _means(self, node: cst.BaseExpression, module: ParsedModule, scope: str, steps: int) -> str:
        """CLASS, APPLY, or nothing: what an expression, said in a scope, is of the Function."""
        if steps > MAX_STEPS:
            return ""
        if isinstance(node, cst.Name):
            return self._named(node.value, module, scope, steps)
        if isinstance(node, cst.Attribute):
            if node.attr.value == APPLY and self._means(node.value, module, scope, steps + 1) == CLASS:
                return APPLY
            return self._attribute(node, module, scope, steps)
        if isinstance(node, cst.Call):
            return self._made(node, module, scope, steps)
        if isinstance(node, cst.IfExp):
            return self._any((node.body, node.orelse), module, scope, steps)
        return (
            self._any((node.left, node.right), module, scope, steps) if isinstance(node, cst.BooleanOperation) else ""
        )

    def _any(self, nodes: tuple[cst.BaseExpression, ...], module: ParsedModule, scope: str, steps: int) -> str:
        return next((found for n in nodes if (found := self._means(n, module, scope, steps + 1))), "")

    def _named(self, name: str, module: ParsedModule, scope: str, steps: int) -> str:
        path = self.graph.resolve(module, scope, name)
        if path == self.target.path:
            return CLASS
        outer = scope
        while True:  # from the innermost scope outwards
            values = tuple(self.graph.assignments.of(_body(module, outer), name))
            if values:
                return self._any(values, module, outer, steps)
            if not outer:
                break
            outer = outer.rpartition(".")[0]
        if path is None or path.partition(":")[0] == module.name:
            return ""
        origin, _, other = path.partition(":")  # an alias that another module of the target defines
        return self._named(other, self.graph.source.modules[origin], "", steps + 1)

    def _attribute(self, node: cst.Attribute, module: ParsedModule, scope: str, steps: int) -> str:
        """`self.product`, `cls.product`, `Kernel.product`: what the class, or one of its methods, assigns."""
        if not isinstance(node.value, cst.Name):
            return ""
        owner, name = node.value.value, node.attr.value
        around = _class_around(module, scope)
        if owner not in {"self", "cls"}:
            path = self.graph.resolve(module, scope, owner)
            module_name, _, around = path.partition(":") if path else ("", "", "")
            module = self.graph.source.modules.get(module_name, module)
        holder = module.scopes.get(around)
        if not isinstance(holder, cst.ClassDef):
            return ""
        assigned = self.graph.assignments
        values = (*assigned.of(holder, name), *assigned.on_self(holder, name))
        return self._any(values, module, around, steps)

    def _made(self, node: cst.Call, module: ParsedModule, scope: str, steps: int) -> str:
        """What a factory of the Function returns."""
        if not isinstance(node.func, cst.Name):
            return ""
        maker = self.graph.function(self.graph.resolve(module, scope, node.func.value))
        if maker is None:
            return ""
        returns = [n.value for n in self.graph.own_nodes(maker) if isinstance(n, cst.Return) and n.value is not None]
        found = self._any(tuple(returns), maker.module, maker.scope, steps)
        builds = maker.module is self.target.module and self.target.scope.startswith(f"{maker.scope}.")
        return found or (CLASS if builds else "")


def _body(module: ParsedModule, scope: str) -> cst.CSTNode:
    return module.scopes[scope] if scope else module.tree


def _class_around(module: ParsedModule, scope: str) -> str:
    outer = scope.rpartition(".")[0]
    while outer and not isinstance(module.scopes[outer], cst.ClassDef):
        outer = outer.rpartition(".")[0]
    return outer
