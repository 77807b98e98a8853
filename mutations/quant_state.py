"""A packed weight is read with the wrong quant state, or with half of it.

Siblings of one initialisation have nearly equal absmax: a swapped state moves a dequantised weight by 1 to 4 %, which
a tolerance of 1e-2 swallows (measured in the review; with one sibling scaled by 4 the same swap moves it by 300 %).
A streamed view carries no state of its own, and a nested state has a second level. Public: the state of another
layer used after a cache slip, a nested offset handled unconditionally. Left out: nibble order, which is
bitsandbytes' own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.names import assigned_names, read_names
from fastlora_verify.mutations.quant_state_examples import EXAMPLES
from fastlora_verify.mutations.siblings_swapped import permuted
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.terms import is_pure, kinds, one_line, siblings
from fastlora_verify.mutations.tree import children, names_of
from fastlora_verify.mutations.values import alternatives
from fastlora_verify.mutations.visible import sayable


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
        elif any("quant" in kinds(v) for v in values):
            return weights, []  # half a state: the other half couldn't be exchanged with it
    return weights, states


def swapped(phase: str) -> Callable[[KernelView], Iterator[Site]]:
    def find(view: KernelView) -> Iterator[Site]:
        calls = {sibling: (call, states) for sibling, call, states in dense_calls(view, phase)}
        order = [s for s in view.siblings if s in calls]
        for one, other in itertools.pairwise(order):
            if view.reads_input("W", one) and view.reads_input("W", other):  # another's state would not fit
                yield from _take_state(view, phase, calls, one, other)
                yield from _take_state(view, phase, calls, other, one)
        yield from _permuted_loops(view, phase)

    return find


def _take_state(
    view: KernelView, phase: str, calls: dict[str, tuple[cst.Call, list[cst.Arg]]], one: str, other: str
) -> Iterator[Site]:
    place = view.forward if phase == "forward" else view.backward
    call, mine = calls[one]
    _, theirs = calls[other]
    pairs = list(zip(mine, theirs, strict=False))
    if len(mine) != len(theirs) or not all(sayable(place.module, t.value, m.value) for m, t in pairs):
        return
    edits = tuple(
        place.module.replace(m.value, place.module.code(t.value), fires=i == 0) for i, (m, t) in enumerate(pairs)
    )
    gist = f"{one} is dequantised with {other}'s quant state"
    yield Site(place.module, place.scope, f"{one}<-{other}", call, edits, gist)


def _permuted_loops(view: KernelView, phase: str) -> Iterator[Site]:
    """A loop over projections: the states it walks through change places."""
    place = view.forward if phase == "forward" else view.backward
    count = len(view.siblings)
    for node in list(view.seen(phase)):
        is_zip = isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "zip"
        if not is_zip or not place.module.holds(node) or place.scope != place.module.enclosing(node):
            continue
        assert isinstance(node, cst.Call)
        states = [a.value for a in node.args if _holds(view, phase, a.value, "quant")]
        if not states or not any(_holds(view, phase, a.value, "W") for a in node.args):
            continue
        if not _whole_states(view, phase, node):
            continue
        for i, (one, other) in enumerate(itertools.pairwise(view.siblings)):
            if view.reads_input("W", one) and view.reads_input("W", other):
                texts = [permuted(place.module.code(s), count, i) for s in states]
                edits = tuple(
                    place.module.replace(s, t, fires=s is states[0]) for s, t in zip(states, texts, strict=True)
                )
                gist = f"the loop over projections gives {one} and {other} each other's quant state"
                yield Site(place.module, place.scope, f"{one}<->{other}", node, edits, gist)


def _whole_states(view: KernelView, phase: str, node: cst.Call) -> bool:
    """Whether all that a loop reads of quant states comes from what it walks through, not from an index beside it."""
    module = view.module_of(node)
    loop = next((a for a in module.ancestors(node) if isinstance(a, cst.For | cst.CompFor)), None)
    if loop is None:
        return False
    inside = module.parent(loop) if isinstance(loop, cst.CompFor) else loop
    turn = names_of(loop.target) | (assigned_names(loop.body) if isinstance(loop, cst.For) else set())
    for call in list(view.seen(phase)):
        if not isinstance(call, cst.Call) or call is node or not any(a is inside for a in module.ancestors(call)):
            continue
        for arg in call.args:
            values = view.seen(phase).get(arg.value, [])
            if any(is_pure(v, "quant") for v in values) and not read_names(arg.value) <= turn:
                return False
    return True


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
    return Mutation(ident, "quantised weight", fault, imitates, seen_by, find, absent, examples=EXAMPLES[ident])


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
