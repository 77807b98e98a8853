"""Autograd Functions with adapters, and the code around them: entries, patcher, unpatcher, guards, helpers."""

from __future__ import annotations

from dataclasses import replace

from fastlora_verify.harness.discover.applied import Applied, AutogradFunction, autograd_functions
from fastlora_verify.harness.discover.calls import CallGraph, Function
from fastlora_verify.harness.discover.found import FoundKernel
from fastlora_verify.harness.discover.install import Installed, Installers, clears_forward, place_of, sets_forward
from fastlora_verify.harness.targets.patchers import patch_call
from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.exits import is_guard
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.source import TargetSource


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
        appliers = Applied(self.graph, function).appliers()
        if not appliers:
            return []
        # One Function with several appliers (one an activation) is one kernel: its first applier stands for it.
        installed = Installers(self.graph, appliers).read()
        roles = self._roles(function, installed)
        view = self._view(roles)
        if view is None or not {"A", "B"} <= {slot.kind for slot in view.slots}:
            return []
        kind = _kind(view)
        call, doubt = patch_call(installed.patcher.node) if installed.patcher is not None else ("", "")
        roles = replace(_with_kind(roles, kind), patch_call=call)
        doubts = (*installed.doubts, *_doubts(kind, appliers, installed), *([doubt] if doubt else []))
        return [FoundKernel(roles, doubts)]

    # -- roles --------------------------------------------------------------------------------------------

    def _roles(self, function: AutogradFunction, installed: Installed) -> KernelRoles:
        entries, patcher, unpatcher = list(installed.entries), installed.patcher, installed.unpatcher
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
            owner=installed.owner,
        )

    def _decides(self, function: Function) -> bool:
        """A guard, and neither a factory of Functions nor one that patches or unpatches."""
        makes = any(f.module is function.module and f.scope.startswith(f"{function.scope}.") for f in self.functions)
        acts = sets_forward(self.graph, function) or clears_forward(self.graph, function)
        return is_guard(place_of(function)) and not makes and not acts

    def _view(self, roles: KernelRoles) -> KernelView | None:
        try:
            return KernelView(self.source, roles)
        except LookupError:
            return None


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


def _doubts(kind: str, appliers: list[Function], installed: Installed) -> list[str]:
    doubts = []
    if kind == "other":
        doubts.append("kind: neither one projection, nor q/k/v, nor gate/up/down")
    if len(appliers) > 1:
        doubts.append(f"applied by {', '.join(f.scope for f in appliers)}; the first is taken as the entry")
    if installed.patcher is None:
        doubts.append("patcher: no function of these modules sets a forward to it")
    elif installed.unpatcher is None:
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
