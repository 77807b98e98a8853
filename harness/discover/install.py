"""Who puts a kernel in the place of a `forward`, and who takes it away again."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from fastlora_verify.harness.discover.calls import CallGraph, Function
from fastlora_verify.mutations.exits import is_guard
from fastlora_verify.mutations.kernel_view import Place, owner_and_input


@dataclass(frozen=True)
class Installed:
    """How a kernel gets into a model."""

    entries: tuple[Function, ...]
    patcher: Function | None
    unpatcher: Function | None
    owner: tuple[str, ...]  # `package.module:Class`
    doubts: tuple[str, ...]


class Installers:
    """Reads the functions around the appliers of one Function."""

    def __init__(self, graph: CallGraph, appliers: list[Function]) -> None:
        self.graph = graph
        self.appliers = set(appliers)
        self.first = appliers[0]

    def read(self) -> Installed:
        patchers = self._patchers()
        if not patchers:
            return Installed((self._outermost(),), None, None, (), ())
        patcher = patchers[0]
        doubts = [f"several functions install it; {patcher.scope} is taken"] if len(patchers) > 1 else []
        unpatcher = self._unpatcher(patcher)
        return Installed(self._entries(patcher), patcher, unpatcher, tuple(self._owners(patcher)), tuple(doubts))

    def _reach(self, function: Function) -> tuple[Function, ...]:
        return self.graph.closure([function])

    def _applies(self, function: Function) -> bool:
        return not self.appliers.isdisjoint(self._reach(function))

    def _outermost(self) -> Function:
        """Without a patcher: a `forward` of a class that leads to the Function, else the function that applies it."""
        forwards = [f for f in self.graph.functions if _is_forward_method(f) and self._applies(f)]
        return forwards[0] if forwards else self.first

    # -- who installs -------------------------------------------------------------------------------------

    def _patchers(self) -> list[Function]:
        """Functions of module or class level that install what leads to the Function."""
        found = [f for f in self.graph.functions if not f.is_nested and any(map(self._applies, self._put_in(f)))]
        inner = [f for f in found if not (set(self._reach(f)) - {f}) & set(_public(found))]
        return _public(inner) or inner

    def _put_in(self, function: Function) -> list[Function]:
        """What a function puts in place: functions named where a `forward` is set, forwards of wrapping modules."""
        reach = self._reach(function)
        found: list[Function] = []
        if any(sets_forward(self.graph, f) for f in reach):
            named = [o for f in reach for o in self.graph.mentioned(f)]
            # `Layer.forward` that leads nowhere is the original that a patcher keeps.
            found += [o for o in named if not _is_forward_method(o) or self._applies(o)]
        if not _is_forward_method(function):
            found += [o for f in reach for o in self._wrapping(f)]
        return list(dict.fromkeys(found))

    def _wrapping(self, function: Function) -> Iterator[Function]:
        """The `forward` of each class of the target that a function makes an instance of."""
        for node in self.graph.own_nodes(function):
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
                path = self.graph.meaning(function, node.func.value)
                forward = self.graph.function(f"{path}.forward" if path else None)
                if forward is not None and _is_forward_method(forward):
                    yield forward

    def _entries(self, patcher: Function) -> tuple[Function, ...]:
        taking = [f for f in self._put_in(patcher) if _takes_input(f)]
        entries = [f for f in taking if _is_forward_method(f) or not is_guard(place_of(f)) or _gives_input_on(f)]
        first = [f for f in entries if self._applies(f)]
        return (*first, *(f for f in entries if f not in first)) or (self.first,)

    def _owners(self, patcher: Function) -> Iterator[str]:
        """Classes that a `forward` is set on: `Class.forward = …`, or an instance that was asked for its class."""
        found: dict[str, None] = {}
        for function in self._reach(patcher):
            holders = {n.value for n in forward_holders(self.graph, function) if isinstance(n, cst.Name)}
            for name in holders:
                found |= dict.fromkeys(self._classes(function, [name]))
            for node in self.graph.own_nodes(function):
                if m.matches(node, m.Call(m.Name("isinstance"), args=[m.Arg(m.Name()), m.Arg()])):
                    assert isinstance(node, cst.Call)
                    asked, given = (a.value for a in node.args)
                    assert isinstance(asked, cst.Name)
                    if asked.value in holders:
                        named = [given] if isinstance(given, cst.Name) else m.findall(given, m.Name())
                        found |= dict.fromkeys(
                            self._classes(function, (n.value for n in named if isinstance(n, cst.Name)))
                        )
        yield from found

    def _classes(self, function: Function, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            path = self.graph.imported(function, name)
            if path is not None:
                yield path

    # -- who takes it away --------------------------------------------------------------------------------

    def _unpatcher(self, patcher: Function) -> Function | None:
        found = [
            f
            for f in self.graph.functions
            if f.module is patcher.module
            and not f.is_nested
            and f not in self._reach(patcher)
            and any(self._takes_away(g, patcher) for g in self._reach(f))
            and not any(map(self._applies, self._mentioned(f)))
        ]
        near = difflib.get_close_matches(patcher.scope, [f.scope for f in found], n=1, cutoff=0.0)
        return next((f for f in found if f.scope in near), None)

    def _mentioned(self, function: Function) -> list[Function]:
        return [o for f in self._reach(function) for o in self.graph.mentioned(f)]

    def _takes_away(self, function: Function, patcher: Function) -> bool:
        if clears_forward(self.graph, function) or sets_forward(self.graph, function):
            return True
        names = {f.class_scope for f in self._put_in(patcher) if _is_forward_method(f)}
        return any(
            m.matches(
                node, m.Call(m.Name("isinstance"), args=[m.Arg(), m.Arg(m.Name(m.MatchIfTrue(names.__contains__)))])
            )
            for node in self.graph.own_nodes(function)
        ) and not _is_forward_method(function)


def place_of(function: Function) -> Place:
    return Place(function.module, function.scope, function.node)


def _public(functions: Iterable[Function]) -> list[Function]:
    return [f for f in functions if not f.scope.rpartition(".")[2].startswith("_")]


def _takes_input(function: Function) -> bool:
    params = function.node.params
    return bool([*params.posonly_params, *params.params])


def _is_forward_method(function: Function) -> bool:
    """`forward` of a module class; an autograd Function's is static."""
    is_static = any(m.matches(d.decorator, m.Name("staticmethod")) for d in function.node.decorators)
    return bool(function.class_scope) and function.node.name.value == "forward" and not is_static


def _gives_input_on(function: Function) -> bool:
    """Whether it returns a call that gets its own input: a forward that hands back, not a guard."""
    _, x = owner_and_input(function.node)
    if x is None:
        return False
    call = m.Call(args=[m.ZeroOrMore(), m.Arg(m.Name(x.name.value)), m.ZeroOrMore()])
    return bool(m.findall(function.node.body, m.Return(value=call)))


# -- a `forward` set and taken away ---------------------------------------------------------------------------


def forward_holders(graph: CallGraph, function: Function) -> Iterator[cst.BaseExpression]:
    """X of `X.forward = …`, `vars(X)["forward"] = …`, `setattr(X, "forward", …)`."""
    by_key = m.Subscript(slice=[m.SubscriptElement(m.Index(m.SimpleString(m.MatchIfTrue(_is_forward))))])
    by_name = m.Call(m.Name("setattr"), args=[m.Arg(), m.Arg(m.SimpleString(m.MatchIfTrue(_is_forward))), m.Arg()])
    for node in graph.own_nodes(function):
        if isinstance(node, cst.AssignTarget):
            if m.matches(node.target, m.Attribute(attr=m.Name("forward")) | by_key):
                assert isinstance(node.target, cst.Attribute | cst.Subscript)
                yield node.target.value
        elif isinstance(node, cst.Call) and m.matches(node, by_name):
            yield node.args[0].value


def sets_forward(graph: CallGraph, function: Function) -> bool:
    return any(True for _ in forward_holders(graph, function))


def clears_forward(graph: CallGraph, function: Function) -> bool:
    """A `forward` taken away."""
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
