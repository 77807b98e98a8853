"""Who calls and who mentions whom, among the functions of a target's modules, by name and scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst
import libcst.matchers as m
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
        return "." in self.scope

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
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
                found = self.function(self.resolve(function.module, function.scope, node.func.value))
                if found is not None:
                    yield found

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
            if isinstance(node, cst.Name) and id(node) not in calls:
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
