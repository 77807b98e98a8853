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
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.terms import (
    Binary,
    Operand,
    binaries,
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
from fastlora_verify.mutations.values import Value, alternatives
from fastlora_verify.mutations.visible import sayable

Find = Callable[[KernelView], Iterator[Site]]


@dataclass(frozen=True)
class Scaled:
    """A product with s: the product, its scaling side, and the gradients it feeds."""

    product: Binary
    scale: Operand
    feeds: frozenset[tuple[str, str]]

    @property
    def siblings(self) -> frozenset[str]:
        return siblings(self.scale.value)

    def is_in(self, kind: str) -> bool:
        """Whether this factor belongs to the gradient `kind` of its own projection, and to no other kind."""
        own = {k for k, s in self.feeds if s in self.siblings or k == "X"}
        if kind == "B":
            return "B" in own and "A" not in own
        return kind in own and not own & ({"A", "X"} - {kind})


def scaled_products(view: KernelView, phase: str) -> list[Scaled]:
    found = []
    for times in binaries(view, phase, "mul"):
        for scale, other in times.sides:
            if is_pure(scale.value, "scaling") and not is_pure(other.value, "scaling"):
                found.append(Scaled(times, scale, view.feeding(times.node)))
                break
    return found


def _edit_product(view: KernelView, scaled: Scaled, twice: bool) -> Site:
    module, node = scaled.product.module, scaled.product.node
    scale = parenthesised(module.code(scaled.scale.node), scaled.scale.node)
    if twice:
        text = f"{parenthesised(module.code(node), node)} * {scale}"
    else:
        text = scaled.product.without(scaled.scale)
    if isinstance(node, cst.AugAssign):
        text = f"{module.code(node)} * {scale}" if twice else "pass"
    return _site(view, module, node, text, scaled.siblings)


def _site(view: KernelView, module: ParsedModule, node: cst.CSTNode, text: str, names: frozenset[str]) -> Site:
    gist = f"`{one_line(module.code(node), 90)}` becomes `{one_line(text, 90)}`"
    what = named(view, names)
    return Site(module, module.enclosing(node), what, node, (module.replace(node, text),), gist)


# -- the forward ----------------------------------------------------------------------------------------


def in_forward(twice: bool) -> Find:
    def find(view: KernelView) -> Iterator[Site]:
        for scaled in scaled_products(view, "forward"):
            yield _edit_product(view, scaled, twice)
        for module, node in _scale_arguments(view):
            text = module.code(node)
            said = f"({text}) * ({text})" if twice else "1.0"
            yield _site(view, module, node, said, view_siblings(view, node))

    return find


def view_siblings(view: KernelView, node: cst.CSTNode) -> frozenset[str]:
    return frozenset().union(*(siblings(v) for v in view.seen("forward").get(node, [])))


def _scale_arguments(view: KernelView) -> Iterator[tuple[ParsedModule, cst.BaseExpression]]:
    """`alpha=s` of a torch sum, and s given to a function of the target's own."""
    for node in list(view.seen("forward")):
        if not isinstance(node, cst.Call):
            continue
        module = view.module_of(node)
        own = isinstance(node.func, cst.Name) and _is_target_function(view, node.func)
        for arg in node.args:
            is_alpha = arg.keyword is not None and arg.keyword.value == "alpha"
            values = view.seen("forward").get(arg.value, [])
            if (is_alpha or own) and not arg.star and values and all(is_pure(v, "scaling") for v in values):
                yield module, arg.value


def _is_target_function(view: KernelView, name: cst.Name) -> bool:
    return any(o.kind == "function" for v in view.seen("forward").get(name, []) for o in alternatives(v))


# -- gradients ------------------------------------------------------------------------------------------


def in_gradient(kind: str, twice: bool) -> Find:
    def find(view: KernelView) -> Iterator[Site]:
        products = scaled_products(view, "backward")
        natural = [p for p in products if p.is_in(kind)]
        for scaled in natural:
            yield _edit_product(view, scaled, twice)
        covered = frozenset().union(*(p.siblings for p in natural))
        shared = [p for p in products if not p.siblings <= covered]
        split = _split_da if kind == "A" else _split_dx if kind == "X" else _nowhere
        yield from split(view, shared, twice)

    return find


def _nowhere(view: KernelView, shared: list[Scaled], twice: bool) -> Iterator[Site]:
    yield from ()


def _split_da(view: KernelView, shared: list[Scaled], twice: bool) -> Iterator[Site]:
    """dA once it is apart from dX: the last expression that made each slot."""
    made: dict[cst.BaseExpression, set[str]] = {}
    for slot in view.slots:
        for part in alternatives(slot.value) if slot.kind == "A" else ():
            if isinstance(part.node, cst.BaseExpression) and view.in_backward(part.node):
                made.setdefault(part.node, set()).add(slot.sibling)
    for node, names in made.items():
        scale = _scale_at(view, shared, min(names), node)
        if scale is not None:
            yield _wrapped(view, node, scale, twice, frozenset(names))


def _split_dx(view: KernelView, shared: list[Scaled], twice: bool) -> Iterator[Site]:
    """A where it is read for an input's gradient only."""
    for add in binaries(view, "backward", "add"):
        for term, _ in add.sides:
            if not is_lora_term(term.value, "A") or "X" not in {k for k, _ in view.feeding(add.node)}:
                continue
            adapter = factor(product(term.value), "A")
            assert adapter is not None
            for use in uses(adapter):
                site = _dx_site(view, shared, use, twice)
                if site is not None:
                    yield site


def _dx_site(view: KernelView, shared: list[Scaled], use: Value, twice: bool) -> Site | None:
    node = use.node
    if not isinstance(node, cst.BaseExpression) or not view.in_backward(node):
        return None
    names = siblings(use)
    if any((kind, s) in view.feeding(node) for kind in "AB" for s in names):
        return None
    for scaled in shared:
        if scaled.siblings == names and sayable(view.backward.module, scaled.scale.node, node):
            return _wrapped(view, node, scaled.scale.node, twice, names)
    return None


def _scale_at(
    view: KernelView, shared: list[Scaled], sibling: str, at: cst.BaseExpression
) -> cst.BaseExpression | None:
    for scaled in shared:
        if sibling in scaled.siblings and sayable(view.backward.module, scaled.scale.node, at):
            return scaled.scale.node
    return None


def _wrapped(
    view: KernelView, node: cst.BaseExpression, scale: cst.BaseExpression, twice: bool, names: frozenset[str]
) -> Site:
    module = view.backward.module
    factor_text = parenthesised(module.code(scale), scale)
    text = f"({parenthesised(module.code(node), node)} {'*' if twice else '/'} {factor_text})"
    return _site(view, module, node, text, names)


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
    return Mutation(
        id=f"scaling-{'twice' if twice else 'dropped'}-in-{where}",
        family="mathematics",
        fault=f"The adapter's scaling is {deed} in {subject}.",
        imitates="A gradient written as for alpha = r; public: scale applied twice to a combined adapter's dA.",
        seen_by=f"{seen_by}; the oracle float64 (scaling must not be 1)",
        find=make(twice),
        absent="no factor that is purely the scaling feeds it",
    )


MUTATIONS = tuple(_mutation(where, twice) for where in WHERE for twice in (False, True))
