"""Who calls and who mentions whom, among the functions of a target's modules, by name and scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst
import libcst.matchers as m

from fastlora_verify.harness.discover.assignments import Assignments
from fastlora_verify.mutations.calls import COMMON_METHODS
from fastlora_verify.mutations.interpret import absolute_module
from fastlora_verify.mutations.source import ParsedModule, TargetSource
from fastlora_verify.mutations.tree import children


@dataclass(frozen=True)
class Function:
    """A function of the target: `module:scope`."""

    module: ParsedModule
    scope: str
    node: cst.FunctionDef

    @property
    def path(self) -> str:
        return f"{self.module.name}:{self.scope}"

    @property
    def is_nested(self) -> bool:
        """Whether it stands inside another function; a method of a class does not."""
        return any(isinstance(self.module.scopes[outer], cst.FunctionDef) for outer in self.outer_scopes)

    @property
    def outer_scopes(self) -> Iterator[str]:
        """The functions and classes around it, the innermost first."""
        outer = self.scope.rpartition(".")[0]
        while outer:
            yield outer
            outer = outer.rpartition(".")[0]

    @property
    def class_scope(self) -> str:
        """The class around it, empty where there is none."""
        return next((s for s in self.outer_scopes if isinstance(self.module.scopes[s], cst.ClassDef)), "")

    def __hash__(self) -> int:
        return hash(self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and other.path == self.path


class CallGraph:
    """Names resolved through scopes and the target's own imports."""

    def __init__(self, source: TargetSource) -> None:
        self.source = source
        self._own: dict[str, list[cst.CSTNode]] = {}
        self._closures: dict[str, tuple[Function, ...]] = {}
        self.assignments = Assignments()

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(
            Function(module, scope, node)
            for module in self.source.modules.values()
            for scope, node in module.scopes.items()
            if isinstance(node, cst.FunctionDef)
        )

    @cached_property
    def _imports(self) -> dict[str, dict[str, str]]:
        """Of each module: local name to `module:name` of another target module."""
        found: dict[str, dict[str, str]] = {}
        for module in self.source.modules.values():
            names = found.setdefault(module.name, {})
            for node in m.findall(module.tree, m.ImportFrom()):
                assert isinstance(node, cst.ImportFrom)
                origin = absolute_module(node, module)
                if origin not in self.source.modules or isinstance(node.names, cst.ImportStar):
                    continue
                for alias in node.names:
                    names[alias.evaluated_alias or str(alias.evaluated_name)] = f"{origin}:{alias.evaluated_name}"
        return found

    def resolve(self, module: ParsedModule, scope: str, name: str) -> str | None:
        """`module:scope` of the function or class that a name means inside `scope`."""
        outer = scope
        while True:
            inner = f"{outer}.{name}" if outer else name
            if inner in module.scopes:
                return f"{module.name}:{inner}"
            if not outer:
                break
            outer = outer.rpartition(".")[0]
        return self._imports[module.name].get(name)

    def imported(self, function: Function, name: str) -> str | None:
        """`module:name` of what a name means where it is a class of the target, or imported from anywhere."""
        path = self.resolve(function.module, function.scope, name)
        if path is not None:
            module, _, scope = path.partition(":")
            return path if isinstance(self.source.modules[module].scopes.get(scope), cst.ClassDef) else None
        if name in {p.name.value for p in m.findall(function.node.params, m.Param()) if isinstance(p, cst.Param)}:
            return None
        for node in m.findall(function.module.tree, m.ImportFrom()):
            assert isinstance(node, cst.ImportFrom)
            for alias in node.names if not isinstance(node.names, cst.ImportStar) else ():
                if (alias.evaluated_alias or str(alias.evaluated_name)) == name:
                    return f"{absolute_module(node, function.module)}:{alias.evaluated_name}"
        return None

    def function(self, path: str | None) -> Function | None:
        if path is None:
            return None
        module, _, scope = path.partition(":")
        node = self.source.modules[module].scopes.get(scope) if module in self.source.modules else None
        return Function(self.source.modules[module], scope, node) if isinstance(node, cst.FunctionDef) else None

    def own_nodes(self, function: Function) -> Sequence[cst.CSTNode]:
        """The nodes of a function's body, those of functions inside it left out."""
        known = self._own.get(function.path)
        if known is not None:
            return known
        found: list[cst.CSTNode] = []
        stack: list[cst.CSTNode] = [function.node.body]
        while stack:
            node = stack.pop()
            found.append(node)
            if not isinstance(node, cst.FunctionDef | cst.ClassDef):
                stack.extend(reversed(children(node)))
        self._own[function.path] = found
        return found

    @cached_property
    def _called(self) -> dict[str, tuple[Function, ...]]:
        return {f.path: tuple(dict.fromkeys(self._calls_in(f))) for f in self.functions}

    def called(self, function: Function) -> tuple[Function, ...]:
        """The target's functions that a function calls by name."""
        return self._called.get(function.path, ())

    def _calls_in(self, function: Function) -> Iterator[Function]:
        for node in self.own_nodes(function):
            if not isinstance(node, cst.Call):
                continue
            found = self._made_by(function, node.func) or self._method(function, node.func)
            if found is not None:
                yield found

    def _made_by(self, function: Function, callee: cst.BaseExpression) -> Function | None:
        """The function that a name means, or the `__init__` of a class."""
        if not isinstance(callee, cst.Name):
            return None
        path = self.meaning(function, callee.value)
        return self.function(path) or self.function(f"{path}.__init__" if path is not None else None)

    def meaning(self, function: Function, name: str) -> str | None:
        """`module:scope` of what a name means in a function; `cls` is its class."""
        if name == "cls" and function.class_scope:
            return f"{function.module.name}:{function.class_scope}"
        return self.resolve(function.module, function.scope, name)

    def _method(self, function: Function, node: cst.BaseExpression) -> Function | None:
        """`self.m`, `cls.m`, `Class.m`; of any other object the one method of that name."""
        if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name):
            return None
        owner, name = node.value.value, node.attr.value
        path = f"{function.module.name}:{function.class_scope}" if owner == "self" else self.meaning(function, owner)
        found = self.function(f"{path}.{name}") if path else None
        methods = self.source.methods.get(name, ())
        if found is None and len(methods) == 1 and name not in COMMON_METHODS:
            return self.function(":".join(methods[0]))
        return found

    def mentioned(self, function: Function) -> tuple[Function, ...]:
        """Functions that are named as values, not called: what is installed is passed around by name."""
        return self._mentioned[function.path]

    @cached_property
    def _mentioned(self) -> dict[str, tuple[Function, ...]]:
        return {f.path: self._mentions_in(f) for f in self.functions}

    def _mentions_in(self, function: Function) -> tuple[Function, ...]:
        calls = {id(n.func) for n in self.own_nodes(function) if isinstance(n, cst.Call)}
        found = []
        for node in self.own_nodes(function):
            if id(node) in calls:
                continue
            other = self._method(function, node) if isinstance(node, cst.Attribute) else None
            if isinstance(node, cst.Name):
                other = self.function(self.resolve(function.module, function.scope, node.value))
            if other is not None and other != function:
                found.append(other)
        return tuple(dict.fromkeys(found))

    def closure(self, roots: Sequence[Function]) -> tuple[Function, ...]:
        """The roots and everything that they call, however deep."""
        if len(roots) == 1:
            known = self._closures.get(roots[0].path)
            if known is not None:
                return known
        found: dict[Function, None] = {}
        stack = list(reversed(roots))
        while stack:
            function = stack.pop()
            if function in found:
                continue
            found[function] = None
            stack.extend(reversed(self.called(function)))
        if len(roots) == 1:
            self._closures[roots[0].path] = tuple(found)
        return tuple(found)
