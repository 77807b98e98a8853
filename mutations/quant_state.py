"""A packed weight is read with the wrong quant state, or with half of it.

Siblings of one initialisation have nearly equal absmax: a swapped state moves a dequantised weight by 1 to 4 %, which
a tolerance of 1e-2 swallows (measured in the review; with one sibling scaled by 4 the same swap moves it by 300 %).
A streamed view carries no state of its own, and a nested state has a second level. Public: the state of another
layer used after a cache slip, a nested offset handled unconditionally. Left out: nibble order, which is
bitsandbytes' own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import libcst as cst
from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.source import Edit, ParsedModule
from fastlora_verify.mutations.terms import is_pure, one_line, siblings
from fastlora_verify.mutations.tree import children
from fastlora_verify.mutations.values import alternatives


def dense_calls(view: KernelView, phase: str) -> list[tuple[str, cst.Call, list[cst.Arg]]]:
    """(projection, call, its quant-state arguments) of the calls that make a packed weight dense."""
    place = view.forward if phase == "forward" else view.backward
    found = []
    for node in list(view.seen(phase)):
        if not isinstance(node, cst.Call) or view.module_of(node) is not place.module:
            continue
        if place.scope != place.module.enclosing(node):
            continue
        weights, states = _split_arguments(view, phase, node)
        if len(weights) == 1 and states:
            found.append((next(iter(weights)), node, states))
    return found


def _split_arguments(view: KernelView, phase: str, call: cst.Call) -> tuple[frozenset[str], list[cst.Arg]]:
    weights: frozenset[str] = frozenset()
    states = []
    for arg in call.args:
        values = view.seen(phase).get(arg.value, [])
        if not values or arg.star:
            continue
        if all(is_pure(v, "W") for v in values):
            weights |= frozenset().union(*(siblings(v, "W") for v in values))
        elif all(is_pure(v, "quant") for v in values):
            states.append(arg)
    return weights, states


def swapped(phase: str) -> Callable[[KernelView], Iterator[Site]]:
    def find(view: KernelView) -> Iterator[Site]:
        calls = {sibling: (call, states) for sibling, call, states in dense_calls(view, phase)}
        order = [s for s in view.siblings if s in calls]
        for one, other in itertools.pairwise(order):
            if view.reads_input("W", one) and view.reads_input("W", other):  # another's state would not fit
                yield _take_state(view, phase, calls, one, other)
                yield _take_state(view, phase, calls, other, one)
        yield from _permuted_loops(view, phase)

    return find


def _take_state(
    view: KernelView, phase: str, calls: dict[str, tuple[cst.Call, list[cst.Arg]]], one: str, other: str
) -> Site:
    place = view.forward if phase == "forward" else view.backward
    call, mine = calls[one]
    _, theirs = calls[other]
    pairs = zip(mine, theirs, strict=False)
    edits = tuple(
        place.module.replace(m.value, place.module.code(t.value), fires=i == 0) for i, (m, t) in enumerate(pairs)
    )
    gist = f"{one} is dequantised with {other}'s quant state"
    return Site(place.module, place.scope, f"{one}<-{other}", call, edits, gist)


def _permuted_loops(view: KernelView, phase: str) -> Iterator[Site]:
    """A loop over projections: the states it walks through change places."""
    place = view.forward if phase == "forward" else view.backward
    for node in list(view.seen(phase)):
        is_zip = isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "zip"
        if not is_zip or place.module.parent(node) is None or view.module_of(node) is not place.module:
            continue
        assert isinstance(node, cst.Call)
        states = [a.value for a in node.args if _holds_states(view, phase, a.value)]
        weights = [a.value for a in node.args if _holds(view, phase, a.value, "W")]
        if not states or not weights or place.scope != place.module.enclosing(node):
            continue
        for what, pattern in (
            ("first<->second", "[{0}[1], {0}[0], *{0}[2:]]"),
            ("second<->third", "[{0}[0], {0}[2], {0}[1]]"),
        ):
            edits = _permuted(place.module, states, pattern)
            gist = f"the loop over projections takes the quant states in another order ({what})"
            yield Site(place.module, place.scope, what, node, edits, gist)


def _permuted(module: ParsedModule, states: Sequence[cst.BaseExpression], pattern: str) -> tuple[Edit, ...]:
    return tuple(
        module.replace(s, pattern.format(f"list({module.code(s)})"), fires=i == 0) for i, s in enumerate(states)
    )


def _holds_states(view: KernelView, phase: str, node: cst.BaseExpression) -> bool:
    return _holds(view, phase, node, "quant")


def _holds(view: KernelView, phase: str, node: cst.BaseExpression, kind: str) -> bool:
    values = view.seen(phase).get(node, [])
    return bool(values) and all(is_pure(v, kind) and len(siblings(v, kind)) > 1 for v in values)


# -- half a state -------------------------------------------------------------------------------------------


def _phases(view: KernelView) -> list[str]:
    return [*(f"entry {e.scope}" for e in view.entries), "forward", "backward"]


def not_repaired(view: KernelView) -> Iterator[Site]:
    """Reads of `quant_state` off the layer, where the weight itself carries none."""
    by_scope: dict[tuple[ParsedModule, str], dict[cst.BaseExpression, None]] = {}
    for phase in _phases(view):
        for node, values in list(view.seen(phase).items()):
            own = [o for v in values for o in alternatives(v) if o.node is node]
            reads = any(o.kind == "source" and o.name == "quant_state" and o.path == "layer" for o in own)
            if reads and isinstance(node, cst.Call | cst.Attribute):
                module = view.module_of(node)
                by_scope.setdefault((module, module.enclosing(node)), {})[node] = None
    for (module, scope), nodes in by_scope.items():
        first = next(iter(nodes))
        edits = tuple(module.replace(n, "None", fires=n is first) for n in nodes)
        yield Site(module, scope, "", first, edits, "the state that the layer carries for its weight is not read")


def nested_dropped(view: KernelView) -> Iterator[Site]:
    """The second level: as it is read off a state, and as it is put back into one."""
    places = {(m, m.enclosing(n)): None for p in _phases(view) for n in view.seen(p) if (m := view.module_of(n))}
    for module, scope in places:
        for what, nodes in _nested_parts(module, module.scopes.get(scope)):
            edits = tuple(module.replace(n, "None", fires=i == 0) for i, n in enumerate(nodes))
            gist = f"`{one_line(module.code(nodes[0]))}` is None: the nested state is lost"
            yield Site(module, scope, what, nodes[0], edits, gist)


def _nested_parts(module: ParsedModule, function: cst.CSTNode | None) -> Iterator[tuple[str, list[cst.BaseExpression]]]:
    if not isinstance(function, cst.FunctionDef):
        return
    reads: list[cst.BaseExpression] = []
    writes: list[cst.BaseExpression] = []
    stack: list[cst.CSTNode] = list(children(function.body))
    while stack:
        node = stack.pop(0)
        if isinstance(node, cst.Attribute) and node.attr.value == "state2":
            reads.append(node)
            continue
        if isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "state2":
            writes.append(node.value)
        stack[:0] = list(children(node))
    if reads:
        yield "read", reads
    if writes and module.code(writes[0]) != "None":
        yield "rebuilt", writes


def _mutation(
    ident: str, fault: str, imitates: str, find: Callable[[KernelView], Iterator[Site]], absent: str
) -> Mutation:
    seen_by = "NF4 parity with siblings far apart; nested and streamed NF4; the oracle float64"
    return Mutation(ident, "quantised weight", fault, imitates, seen_by, find, absent)


REVIEW = "The review of the SwiGLU kernel: "
MUTATIONS = (
    _mutation("sibling-state-in-forward", "The forward dequantises a projection with its sibling's quant state.",
              REVIEW + "gate with up's state, forward; killed on one seed of three.", swapped("forward"),
              "one projection has no sibling of its shape"),
    _mutation("sibling-state-in-backward", "The backward dequantises a projection with its sibling's quant state.",
              REVIEW + "the same swap in the backward; passed all three seeds.", swapped("backward"),
              "one projection has no sibling of its shape"),
    _mutation("state-not-repaired", "A streamed weight without a state is taken as it is, though the layer has it.",
              REVIEW + "a copy of the helper without the streamed-state repair.", not_repaired,
              "the state is read off the weight only"),
    _mutation("nested-state-dropped", "The second level of a nested quant state is lost.",
              "Public: dequantising that assumed flat states.", nested_dropped, "no nested state is taken apart"),
)  # fmt: skip
