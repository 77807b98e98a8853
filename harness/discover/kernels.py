"""Autograd Functions with adapters, and the code around them: entries, patcher, unpatcher, guards, helpers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from fastlora_verify.harness.discover.calls import CallGraph, Function
from fastlora_verify.harness.discover.found import FoundKernel
from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.exits import is_guard
from fastlora_verify.mutations.kernel_view import KernelView, Place, owner_and_input
from fastlora_verify.mutations.source import ParsedModule, TargetSource

BASE = m.Arg(value=m.Attribute(attr=m.Name("Function")) | m.Name("Function"))


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


class Reader:
    """Reads the kernels of a target's modules."""

    def __init__(self, source: TargetSource) -> None:
        self.source = source
        self.graph = CallGraph(source)
        self.functions = autograd_functions(source)

    def kernels(self) -> list[FoundKernel]:
        """Every kernel with an adapter in it; Functions of another kind are left out."""
        found = [k for f in self.functions for k in self._kernels_of(f)]
        return _named_apart(found)

    # -- one Function -------------------------------------------------------------------------------------

    def _kernels_of(self, function: AutogradFunction) -> list[FoundKernel]:
        appliers = [f for f in self.graph.functions if self._applies(f, function)]
        if not appliers:
            return []
        # One Function with several appliers (one an activation) is one kernel: its first applier stands for it.
        patchers = self._patchers(appliers)
        entries, patcher, doubts = self._installed(appliers, patchers)
        unpatcher = self._unpatcher(patcher)
        roles = self._roles(function, entries, patcher, unpatcher)
        view = self._view(roles)
        if view is None or not {"A", "B"} <= {slot.kind for slot in view.slots}:
            return []
        kind = _kind(view)
        doubts += _doubts(kind, appliers, patcher, unpatcher)
        return [FoundKernel(_with_kind(roles, kind), tuple(doubts))]

    def _applies(self, function: Function, target: AutogradFunction) -> bool:
        """Whether a function calls `Target.apply(…)`, the class by its name or through a local that holds it."""
        for node in self.graph.own_nodes(function):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node.func.attr.value != "apply" or not isinstance(node.func.value, cst.Name):
                continue
            if self._means(function, node.func.value.value, target):
                return True
        return False

    def _means(self, function: Function, name: str, target: AutogradFunction) -> bool:
        if self.graph.resolve(function.module, function.scope, name) == target.path:
            return True
        made_by = self._assigned_call(function, name)
        maker = self.graph.function(made_by)
        return maker is not None and maker.module is target.module and target.scope.startswith(f"{maker.scope}.")

    def _assigned_call(self, function: Function, name: str) -> str | None:
        """The function whose result a name holds, in the function or in one around it."""
        scope = function.scope
        while scope:
            definition = function.module.scopes[scope]
            if isinstance(definition, cst.FunctionDef):
                place = Function(function.module, scope, definition)
                for node in self.graph.own_nodes(place):
                    if isinstance(node, cst.Assign) and m.matches(
                        node, m.Assign(targets=[m.AssignTarget(m.Name(name))], value=m.Call(m.Name()))
                    ):
                        assert isinstance(node, cst.Assign) and isinstance(node.value, cst.Call)
                        assert isinstance(node.value.func, cst.Name)
                        return self.graph.resolve(function.module, scope, node.value.func.value)
            scope = scope.rpartition(".")[0]
        return None

    # -- who installs it ----------------------------------------------------------------------------------

    def _patchers(self, appliers: list[Function]) -> list[Function]:
        """Functions of module level from which a `forward` is set and an applier is reached by name."""
        found = []
        for function in self.graph.functions:
            if function.is_nested:
                continue
            reach = self._reach(function)
            if any(sets_forward(self.graph, f) for f in reach) and self._mentions(reach, appliers):
                found.append(function)
        inner = [f for f in found if not (set(self.graph.closure([f])) - {f}) & set(_public(found))]
        return _public(inner) or inner

    def _reach(self, function: Function) -> tuple[Function, ...]:
        return self.graph.closure([function])

    def _mentions(self, reach: Iterable[Function], appliers: list[Function]) -> bool:
        mentioned = {o for f in reach for o in self.graph.mentioned(f)}
        return any(set(self.graph.closure([f])) & set(appliers) for f in mentioned)

    def _installed(
        self, appliers: list[Function], patchers: list[Function]
    ) -> tuple[list[Function], Function | None, list[str]]:
        if not patchers:
            return appliers[:1], None, []
        patcher = patchers[0]
        doubts = [f"several functions install it; {patcher.scope} is taken"] if len(patchers) > 1 else []
        mentioned = [o for f in self._reach(patcher) for o in self.graph.mentioned(f)]
        taking = [f for f in dict.fromkeys(mentioned) if _takes_input(f)]
        entries = [f for f in taking if not is_guard(_place(f)) or _gives_input_on(f)]
        first = [f for f in entries if set(self.graph.closure([f])) & set(appliers)]
        return [*first, *(f for f in entries if f not in first)] or appliers[:1], patcher, doubts

    def _unpatcher(self, patcher: Function | None) -> Function | None:
        if patcher is None:
            return None
        found = [
            f
            for f in self.graph.functions
            if f.module is patcher.module
            and not f.is_nested
            and f != patcher
            and any(clears_forward(self.graph, g) for g in self._reach(f))
            and f not in self._reach(patcher)
        ]
        near = difflib.get_close_matches(patcher.scope, [f.scope for f in found], n=1, cutoff=0.0)
        return next((f for f in found if f.scope in near), None)

    # -- roles --------------------------------------------------------------------------------------------

    def _roles(
        self, function: AutogradFunction, entries: list[Function], patcher: Function | None, unpatcher: Function | None
    ) -> KernelRoles:
        inner = [self.graph.function(f"{function.path}.{name}") for name in ("forward", "backward")]
        computing = self.graph.closure([f for f in inner if f is not None])
        deciding = self.graph.closure([*entries, *([patcher] if patcher is not None else [])])
        guards = [f for f in deciding if f not in entries and f != patcher and self._decides(f)]
        helpers = [f for f in computing if f not in inner]
        return KernelRoles(
            name=function.name,
            kind="other",
            function=function.path,
            entries=tuple(f.path for f in entries),
            guards=tuple(f.path for f in guards),
            helpers=tuple(f.path for f in helpers),
            patcher=patcher.path if patcher is not None else "",
            unpatcher=unpatcher.path if unpatcher is not None else "",
            node=f"{function.name}Backward",
        )

    def _decides(self, function: Function) -> bool:
        """A guard, and neither a factory of Functions nor one that patches or unpatches."""
        makes = any(f.module is function.module and f.scope.startswith(f"{function.scope}.") for f in self.functions)
        acts = sets_forward(self.graph, function) or clears_forward(self.graph, function)
        return is_guard(_place(function)) and not makes and not acts

    def _view(self, roles: KernelRoles) -> KernelView | None:
        try:
            return KernelView(self.source, roles)
        except LookupError:
            return None


def _public(functions: Iterable[Function]) -> list[Function]:
    return [f for f in functions if not f.scope.startswith("_")]


def _place(function: Function) -> Place:
    return Place(function.module, function.scope, function.node)


def _takes_input(function: Function) -> bool:
    params = function.node.params
    return bool([*params.posonly_params, *params.params])


def _gives_input_on(function: Function) -> bool:
    """Whether it returns a call that gets its own input: a forward that hands back, not a guard."""
    _, x = owner_and_input(function.node)
    if x is None:
        return False
    call = m.Call(args=[m.ZeroOrMore(), m.Arg(m.Name(x.name.value)), m.ZeroOrMore()])
    return bool(m.findall(function.node.body, m.Return(value=call)))


def sets_forward(graph: CallGraph, function: Function) -> bool:
    """`m.forward = …`, `vars(m)["forward"] = …`, `setattr(m, "forward", …)`."""
    target = m.Attribute(attr=m.Name("forward")) | m.Subscript(
        slice=[m.SubscriptElement(m.Index(m.SimpleString(m.MatchIfTrue(_is_forward))))]
    )
    for node in graph.own_nodes(function):
        if isinstance(node, cst.AssignTarget) and m.matches(node, m.AssignTarget(target=target)):
            return True
        if isinstance(node, cst.Call) and m.matches(
            node,
            m.Call(func=m.Name("setattr"), args=[m.Arg(), m.Arg(m.SimpleString(m.MatchIfTrue(_is_forward))), m.Arg()]),
        ):
            return True
    return False


def clears_forward(graph: CallGraph, function: Function) -> bool:
    """A `forward` taken away, or put back."""
    for node in graph.own_nodes(function):
        if isinstance(node, cst.Del) and "forward" in function.module.code(node.target):
            return True
        if isinstance(node, cst.Call) and m.matches(
            node, m.Call(func=m.Name("delattr") | m.Attribute(attr=m.Name("pop")))
        ):
            assert isinstance(node, cst.Call)
            if any(m.matches(a.value, m.SimpleString(m.MatchIfTrue(_is_forward))) for a in node.args):
                return True
    return False


def _is_forward(text: str) -> bool:
    return text.strip("\"'") == "forward"


def _kind(view: KernelView) -> str:
    count = len(view.siblings)
    if count == 1:
        return "linear"
    chained = any(("A", s.sibling) != (t.kind, t.sibling) and t.kind == "A" and _feeds(view, s.sibling, t.sibling)
                  for s in view.slots if s.kind == "A" for t in view.slots)  # fmt: skip
    return "other" if count != 3 else "swiglu-mlp" if chained else "qkv"


def _feeds(view: KernelView, one: str, other: str) -> bool:
    """Whether the gradient of `other`'s A is made of `one`'s B: `one` reads `other`'s output."""
    slot = next(s for s in view.slots if s.kind == "A" and s.sibling == other)
    return any(label.kind == "A" and label.sibling == one for label in slot.value.labels)


def _with_kind(roles: KernelRoles, kind: str) -> KernelRoles:
    short = {"linear": "linear", "qkv": "qkv", "swiglu-mlp": "mlp"}.get(kind, roles.name)
    return KernelRoles(**{**vars(roles), "kind": kind, "name": short})


def _doubts(kind: str, appliers: list[Function], patcher: Function | None, unpatcher: Function | None) -> list[str]:
    doubts = []
    if kind == "other":
        doubts.append("kind: neither one projection, nor q/k/v, nor gate/up/down")
    if len(appliers) > 1:
        doubts.append(f"applied by {', '.join(f.scope for f in appliers)}; the first is taken as the entry")
    if patcher is None:
        doubts.append("patcher: no function of these modules sets a forward to it")
    elif unpatcher is None:
        doubts.append("unpatcher: no function of the patcher's module takes a forward away")
    return doubts


def _named_apart(found: list[FoundKernel]) -> list[FoundKernel]:
    """Kernels of one kind keep the name of their class."""
    names = [k.roles.name for k in found]
    result = []
    for kernel in found:
        roles = kernel.roles
        if names.count(roles.name) > 1:
            roles = KernelRoles(**{**vars(roles), "name": roles.function.rpartition(":")[2].rpartition(".")[2]})
        result.append(FoundKernel(roles, kernel.doubts))
    return result
