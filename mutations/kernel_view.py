"""A kernel as mutations see it: its roles resolved, and one abstract run from each entry to the last gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import libcst as cst
import libcst.matchers as m

from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.interpret import Env, FunctionRun, Interpreter, all_params
from fastlora_verify.mutations.source import ParsedModule, TargetSource
from fastlora_verify.mutations.tree import small_statements
from fastlora_verify.mutations.values import UNKNOWN, Label, Value, alternatives, elements, resolve


@dataclass(frozen=True)
class Place:
    """A function of the target in one of its roles."""

    module: ParsedModule
    scope: str  # dotted, inside the module
    node: cst.FunctionDef


@dataclass(frozen=True)
class Slot:
    """One position of backward's result: the gradient of one input of the Function."""

    kind: str  # X, A, B, …
    sibling: str
    value: Value  # the gradient
    node: cst.CSTNode | None  # the expression in the returned sequence, or that was stored in it


class KernelView:
    """Roles, entries, the Function's run. Everything is found by data flow, nothing by local names."""

    def __init__(self, source: TargetSource, roles: KernelRoles) -> None:
        self.source = source
        self.roles = roles
        self.interpreter = Interpreter(source, roles.function)
        self.entries = [self.place(scope) for scope in roles.entries]
        self.guards = [self.place(scope) for scope in roles.guards]
        self.helpers = [self.place(scope) for scope in roles.helpers]
        self.patcher = self.place(roles.patcher) if roles.patcher else None
        self.unpatcher = self.place(roles.unpatcher) if roles.unpatcher else None
        self.forward = self.place(f"{roles.function}.forward")
        self.backward = self.place(f"{roles.function}.backward")
        self.entry_env: dict[str, Env] = {}
        for entry in self.entries:
            self._run_entry(entry)
        for phase, place in (("patcher", self.patcher), ("unpatcher", self.unpatcher)):
            if place is not None:
                self._run_alone(phase, place)
        for guard in self.guards:  # those that no entry reached: a patcher's own
            self._run_alone("guards", guard)

    def place(self, scope: str) -> Place:
        module, inner, node = self.source.resolve(scope)
        if not isinstance(node, cst.FunctionDef):
            raise LookupError(f"{scope} is a class, a function was expected")
        return Place(module, inner, node)

    @property
    def run(self) -> FunctionRun | None:
        return self.interpreter.run

    def _run_entry(self, entry: Place) -> None:
        machine = self.interpreter
        env = Env(entry.module, machine.closure_env(entry.module, entry.scope))
        owner, x = owner_and_input(entry.node)
        for param in all_params(entry.node.params):
            name = param.name.value
            if param is x:
                env.names[name] = Value("source", param, name=name, own=frozenset({Label("X")}))
            elif param is owner:
                env.names[name] = self._owner(entry, param)
            else:
                env.names[name] = Value("unknown", param, name=name)
        machine.phase = f"entry {entry.scope}"
        machine.block(entry.node.body.body, env)
        machine.phase = ""
        self.entry_env[entry.scope] = env

    def _owner(self, entry: Place, param: cst.Param) -> Value:
        """The module that an entry is the forward of; one of the target's own classes is made by its `__init__`."""
        name = param.name.value
        scope = entry.scope.rpartition(".")[0]
        if not isinstance(entry.module.scopes.get(scope), cst.ClassDef):
            return Value("object", param, name=name)
        owner = Value("object", param, name=name, scope=(entry.module.name, scope))
        start = entry.module.scopes.get(f"{scope}.__init__")
        if isinstance(start, cst.FunctionDef):
            given = [Value("object", p, name=p.name.value) for p in all_params(start.params)[1:]]
            function = Value("function", scope=(entry.module.name, f"{scope}.__init__"))
            self.interpreter.phase = "owner"
            self.interpreter.call_function(function, [owner, *given], {})
            self.interpreter.phase = ""
        return owner

    def _run_alone(self, phase: str, place: Place) -> None:
        """Run a function on unknown arguments, for what it reads, sets and calls."""
        machine = self.interpreter
        machine.phase = phase
        arguments = [Value("object", p, name=p.name.value) for p in all_params(place.node.params)]
        function = Value("function", scope=(place.module.name, place.scope))
        keywords = {p.name.value: UNKNOWN for p in place.node.params.kwonly_params}
        machine.call_function(function, arguments[: len(place.node.params.params)], keywords)
        machine.phase = ""

    def reach(self, phase: str) -> tuple[Place, ...]:
        """The target's functions that ran in a phase."""
        found: dict[tuple[str, str], Place] = {}
        for node in self.seen(phase):
            module = self.module_of(node)
            scope = module.enclosing(node)
            definition = module.scopes.get(scope)
            if isinstance(definition, cst.FunctionDef):
                found.setdefault((module.name, scope), Place(module, scope, definition))
        return tuple(found.values())

    # -- places of the Function ---------------------------------------------------------------------------

    @property
    def apply_entry(self) -> Place | None:
        """The entry whose run led to the Function."""
        return next((e for e in self.entries if self.run is not None and self.run.caller == f"entry {e.scope}"), None)

    @property
    def apply_statement(self) -> cst.BaseStatement | None:
        """The statement of that entry in which the Function is called; None if another function calls it."""
        entry = self.apply_entry
        if entry is None or self.run is None or not entry.module.holds(self.run.call):
            return None
        inside = any(a is entry.node for a in entry.module.ancestors(self.run.call))
        return entry.module.statement(self.run.call) if inside else None

    def seen(self, phase: str) -> dict[cst.CSTNode, list[Value]]:
        """The expressions evaluated in a phase ("forward", "backward", "entry SCOPE"), helpers' included."""
        return self.interpreter.seen[phase]

    def in_backward(self, node: cst.CSTNode) -> bool:
        return node is self.backward.node or any(a is self.backward.node for a in self.backward.module.ancestors(node))

    def only_in(self, phase: str, node: cst.CSTNode) -> bool:
        """Whether an edit there changes nothing of the other direction (a helper may serve both)."""
        other = "backward" if phase == "forward" else "forward"
        return node in self.seen(phase) and node not in self.seen(other)

    def reads_input(self, kind: str, sibling: str) -> bool:
        """Whether a projection's W (or A) multiplies the block's own input, not what another projection made."""
        for values in self.seen("forward").values():
            for product in values:
                for one, other in (product.args[:2], product.args[1::-1]) if product.kind == "matmul" else ():
                    if Label(kind, sibling) in one.labels and other.kinds <= {"X", "mask", "dropout"}:
                        return True
        return False

    def module_of(self, node: cst.CSTNode) -> ParsedModule:
        """The module that a node stands in."""
        for module in self.source.modules.values():
            if module.holds(node):
                return module
        raise LookupError("a node of no module")

    # -- gradients ----------------------------------------------------------------------------------------

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The gradients that backward returns for X, and for every A and B."""
        run = self.run
        if run is None or run.gradients is None:
            return ()
        gradients = resolve(run.gradients)
        items = gradients.items or () if gradients.kind == "seq" else ()
        nodes = dict(enumerate(_returned_nodes(gradients.node)))
        found = []
        for i, (argument, gradient) in enumerate(zip(run.args, items, strict=False)):
            label = pure_label(argument)
            if label is not None and label.kind in {"X", "A", "B"}:
                found.append(Slot(label.kind, label.sibling, gradient, nodes.get(i) or self._stored_at(gradient)))
        return tuple(found)

    def _stored_at(self, gradient: Value) -> cst.CSTNode | None:
        """Where a gradient was read on its way into what is returned: `grads[3] = d_a`, `*rest, d_a`."""
        node = gradient.node if gradient.kind == "use" else None
        return node if node is not None and self.in_backward(node) else None

    def feeds(self, value: Value) -> frozenset[tuple[str, str]]:
        """(kind, sibling) of the gradients that `value` is part of."""
        return self._fed.get(id(value), frozenset())

    @cached_property
    def _fed(self) -> dict[int, frozenset[tuple[str, str]]]:
        fed: dict[int, set[tuple[str, str]]] = {}
        for slot in self.slots:
            for part in slot.value.below():
                fed.setdefault(id(part), set()).add((slot.kind, slot.sibling))
        return {key: frozenset(value) for key, value in fed.items()}

    def feeding(self, node: cst.CSTNode, phase: str = "backward") -> frozenset[tuple[str, str]]:
        """The gradients that the expression at `node` feeds."""
        return frozenset().union(*(self.feeds(v) for v in self.seen(phase).get(node, [])))

    @property
    def siblings(self) -> tuple[str, ...]:
        """The projections, in the order of the Function's arguments."""
        run = self.run
        if run is None:
            return ()
        labels = [pure_label(a) for a in run.args]
        return tuple(dict.fromkeys(lab.sibling for lab in labels if lab is not None and lab.kind == "A"))

    # -- arguments of apply -------------------------------------------------------------------------------

    def arguments(self, kind: str) -> list[tuple[str, str]]:
        """(sibling, expression text) of the arguments of `apply` that carry `kind`.

        Where one starred argument stands for all, each sibling has its text, star included.
        """
        run, entry = self.run, self.apply_entry
        if run is None or entry is None or self.apply_statement is None:
            return []
        found = []
        for arg in run.call.args:
            values = self.seen(f"entry {entry.scope}").get(arg.value, [])
            text = entry.module.code(arg.value)
            labels = {label for v in values for option in alternatives(v) for label in option.labels}
            if not labels or {label.kind for label in labels} != {kind}:
                continue
            if arg.star == "*":
                found += [(label.sibling, f"*{text}") for label in sorted(labels, key=lambda label: label.sibling)]
            elif not arg.star and len(labels) == 1:
                found.append((next(iter(labels)).sibling, text))
        return found


def _returned_nodes(literal: cst.CSTNode | None) -> Iterator[cst.CSTNode]:
    """The expressions of a returned tuple, up to the first starred one."""
    for element in literal.elements if isinstance(literal, cst.Tuple | cst.List) else ():
        if isinstance(element, cst.StarredElement):
            return
        yield element.value


def owner_and_input(node: cst.FunctionDef) -> tuple[cst.Param | None, cst.Param | None]:
    """The parameters of an entry that hold the patched module and its input."""
    params = [*node.params.posonly_params, *node.params.params]
    required = [p for p in params if p.default is None] or params
    if len(required) < 2:
        return None, required[0] if required else None
    given_on = {a.value.value for call in _calls(node) for a in call.args if isinstance(a.value, cst.Name)}
    handed = [p for p in required[1:] if p.name.value in given_on]
    return required[0], (handed or required[1:])[0]


@lru_cache(maxsize=256)
def _calls(node: cst.FunctionDef) -> tuple[cst.Call, ...]:
    """The calls that a function returns, and those of `apply`."""
    returned = [s.value for s in small_statements(node) if isinstance(s, cst.Return)]
    applied = m.findall(node, m.Call(func=m.Attribute(attr=m.Name("apply"))))
    return tuple(c for c in [*returned, *applied] if isinstance(c, cst.Call))


def pure_label(value: Value) -> Label | None:
    """The one label that a value carries, or None if it carries none or several."""
    labels = {label for option in alternatives(value) for label in option.labels}
    return next(iter(labels)) if len(labels) == 1 else None


__all__ = ["KernelView", "Place", "Slot", "elements", "owner_and_input", "pure_label"]
