"""The adapter's scaling s is missing, or applied twice: in the forward, in dA, in dB, in dX.

Y gets s X Aᵀ Bᵀ, dB is s dYᵀ H, dA is s (dY B)ᵀ X, dX gets s (dY B) A: one factor in each. A kernel that forms
s dY B once for dA and dX has no product of its own for either: there the one gradient is divided (or multiplied) by s
after it was split off. Public faults of this kind: a scale recomputed as alpha / r under rsLoRA, applied twice to dA
in a combined adapter, dropped from one branch. Left out: a wrong constant, which every parity test sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.operations import operations
from fastlora_verify.mutations.scaling_examples import EXAMPLES
from fastlora_verify.mutations.source import Edit, ParsedModule
from fastlora_verify.mutations.terms import (
    factor,
    is_lora_term,
    is_pure,
    named,
    one_line,
    parenthesised,
    product,
    siblings,
    uses,
)
from fastlora_verify.mutations.values import alternatives, resolve
from fastlora_verify.mutations.visible import sayable

Find = Callable[[KernelView], Iterator[Site]]


@dataclass(frozen=True)
class Scaled:
    """A factor s: where it stands, the edits that drop it and that apply it twice, and the gradients it feeds."""

    module: ParsedModule
    node: cst.CSTNode  # what changes
    scale: cst.BaseExpression
    siblings: frozenset[str]
    feeds: frozenset[tuple[str, str]]
    dropped: Edit
    doubled: Edit

    def is_in(self, kind: str) -> bool:
        """Whether this factor belongs to the gradient `kind` of its own projection, and to no other kind."""
        return {k for k, s in self.feeds if s in self.siblings or k == "X"} == {kind}

    def site(self, view: KernelView, twice: bool) -> Site:
        return _site(view, self.module, self.node, self.doubled if twice else self.dropped, self.siblings)


def _site(view: KernelView, module: ParsedModule, node: cst.CSTNode, edit: Edit, names: frozenset[str]) -> Site:
    gist = f"`{one_line(module.code(node), 90)}` becomes `{one_line(edit.text, 90)}`"
    return Site(module, module.enclosing(node), named(view, names), node, (edit,), gist)


def scaled(view: KernelView, phase: str) -> list[Scaled]:
    """Every factor s of a phase that is not in a function which the other phase calls too."""
    found = [*_products(view, phase), *_arguments(view, phase)]
    return [s for s in found if view.only_in(phase, s.node)]


def _products(view: KernelView, phase: str) -> Iterator[Scaled]:
    for times in operations(view, phase, "mul"):
        for scale, other in times.sides:
            if scale.node is None or not is_pure(scale.value, "scaling") or is_pure(other.value, "scaling"):
                continue
            feeds = view.feeding(times.node)
            edits = times.without(scale), times.again(scale)
            yield Scaled(times.module, times.node, scale.node, siblings(scale.value), feeds, *edits)
            break


def _arguments(view: KernelView, phase: str) -> Iterator[Scaled]:
    """`alpha=s` of a torch sum, and s given to a function of the target's own."""
    products = {id(times.node) for times in operations(view, phase, "mul")}
    for call in list(view.seen(phase)):
        if not isinstance(call, cst.Call) or id(call) in products:
            continue
        module = view.module_of(call)
        own = isinstance(call.func, cst.Name) and _is_target_function(view, phase, call.func)
        for arg in call.args:
            is_alpha = arg.keyword is not None and arg.keyword.value == "alpha"
            values = view.seen(phase).get(arg.value, [])
            if not (is_alpha or own) or arg.star or not values or not all(is_pure(v, "scaling") for v in values):
                continue
            text = parenthesised(module.code(arg.value), arg.value)
            edits = module.replace(arg.value, "1.0"), module.replace(arg.value, f"{text} * {text}")
            names = frozenset().union(*(siblings(v) for v in values))
            yield Scaled(module, arg.value, arg.value, names, view.feeding(call if is_alpha else arg.value), *edits)


def _is_target_function(view: KernelView, phase: str, name: cst.Name) -> bool:
    return any(o.kind == "function" for v in view.seen(phase).get(name, []) for o in alternatives(v))


def in_forward(twice: bool) -> Find:
    return lambda view: (s.site(view, twice) for s in scaled(view, "forward"))


# -- gradients ------------------------------------------------------------------------------------------


def in_gradient(kind: str, twice: bool) -> Find:
    def find(view: KernelView) -> Iterator[Site]:
        factors = scaled(view, "backward")
        natural = [p for p in factors if p.is_in(kind)]
        yield from (s.site(view, twice) for s in natural)
        covered = frozenset().union(*(p.siblings for p in natural))
        shared = [p for p in factors if not p.siblings <= covered]
        yield from _split_dx(view, shared, twice) if kind == "X" else _split_slots(view, kind, shared, twice)

    return find


def _split_slots(view: KernelView, kind: str, shared: list[Scaled], twice: bool) -> Iterator[Site]:
    """dA (or dB) once it is apart from the rest: the last expression that made each slot, or its name in the return."""
    made: dict[cst.BaseExpression, set[str]] = {}
    for slot in view.slots:
        if slot.kind == kind:
            parts = [o.node for o in alternatives(slot.value) if _is_tensor(view, o.node)]
            for node in parts or ([slot.node] if _is_tensor(view, slot.node) else []):
                assert isinstance(node, cst.BaseExpression)
                made.setdefault(node, set()).add(slot.sibling)
    for node, names in made.items():
        for factor_ in shared:
            if names <= factor_.siblings and sayable(view.backward.module, factor_.scale, node):
                yield _wrapped(view, node, factor_.scale, twice, frozenset(names))
                break


def _is_tensor(view: KernelView, node: cst.CSTNode | None) -> bool:
    """Whether an expression of backward holds one tensor, not a row of them."""
    if not isinstance(node, cst.BaseExpression) or not view.in_backward(node):
        return False
    held = {resolve(v).kind for v in view.seen("backward").get(node, [])}
    return bool(held) and not held & {"seq", "dict", "instance", "none"}


def _split_dx(view: KernelView, shared: list[Scaled], twice: bool) -> Iterator[Site]:
    """A where it is read for an input's gradient only."""
    done: set[tuple[int, frozenset[str]]] = set()
    for add in operations(view, "backward", "add"):
        for term in add.operands:
            if not is_lora_term(term.value, "A") or "X" not in {k for k, _ in view.feeding(add.node)}:
                continue
            made = product(term.value)
            adapter = factor(made, "A")
            assert made is not None and adapter is not None
            for use in uses(adapter):
                if use.node is None:
                    continue
                names = _names(view, use.node)
                site = _dx_site(view, shared, use.node, names, twice)
                key = (id(made.node), names)
                if site is not None and key not in done:
                    done.add(key)
                    yield site


def _names(view: KernelView, node: cst.CSTNode) -> frozenset[str]:
    """The projections of all that was read at one place."""
    return frozenset().union(*(siblings(v) for v in view.seen("backward").get(node, [])))


def _dx_site(
    view: KernelView, shared: list[Scaled], node: cst.CSTNode, names: frozenset[str], twice: bool
) -> Site | None:
    if not isinstance(node, cst.BaseExpression) or not _is_tensor(view, node):
        return None
    if any((kind, s) in view.feeding(node) for kind in "AB" for s in names):
        return None
    for factor_ in shared:
        if factor_.siblings == names and sayable(view.backward.module, factor_.scale, node):
            return _wrapped(view, node, factor_.scale, twice, names)
    return None


def _wrapped(
    view: KernelView, node: cst.BaseExpression, scale: cst.BaseExpression, twice: bool, names: frozenset[str]
) -> Site:
    module = view.backward.module
    code = parenthesised(module.code(node), node)
    text = f"{code} {'*' if twice else '/'} {parenthesised(module.code(scale), scale)}"
    if isinstance(module.parent(node), cst.BaseElement):  # one of several, perhaps None
        text = f"None if {code} is None else {text}"
    return _site(view, module, node, module.replace(node, f"({text})"), names)


# -- the catalogue's entries ------------------------------------------------------------------------------

WHERE = {
    "forward": ("the output", in_forward, "parity of the output"),
    "da": ("dA", lambda twice: in_gradient("A", twice), "parity of dA; float64 gradcheck"),
    "db": ("dB", lambda twice: in_gradient("B", twice), "parity of dB; float64 gradcheck"),
    "dx": ("dX", lambda twice: in_gradient("X", twice), "parity of dX; float64 gradcheck"),
}


def _mutation(where: str, twice: bool) -> Mutation:
    subject, make, seen_by = WHERE[where]
    deed = "applied twice" if twice else "dropped"
    name = f"scaling-{'twice' if twice else 'dropped'}-in-{where}"
    return Mutation(
        id=name,
        family="mathematics",
        fault=f"The adapter's scaling is {deed} in {subject}.",
        imitates="A gradient written as for alpha = r; public: scale applied twice to a combined adapter's dA.",
        seen_by=f"{seen_by}; the oracle float64 (scaling must not be 1)",
        find=make(twice),
        absent="no factor that is purely the scaling feeds it, or none that could be split off",
        examples=EXAMPLES[name],
    )


MUTATIONS = tuple(_mutation(where, twice) for where in WHERE for twice in (False, True))
