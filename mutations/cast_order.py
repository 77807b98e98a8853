"""The LoRA term is rounded to the base's 16-bit dtype before it is added, instead of after.

PEFT promotes, adds, and casts once. A fused kernel that casts the fp32 term first rounds twice: bit-exactness with
PEFT is lost and, on one seed in twelve of the review, the 2x-float64 rule. Public: a 4-bit LoRA whose cast moved
across the add, drifting layer by layer. The shared helper has it for all kernels at once; each call of it alone is a
mutant too, since a test of one projection says nothing about its siblings.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.terms import (
    Binary,
    Operand,
    binaries,
    is_lora_term,
    named,
    one_line,
    parenthesised,
    siblings,
    uncast,
)
from fastlora_verify.mutations.values import alternatives, strip

IMITATES = "The review of the SwiGLU kernel: the fp32 LoRA term cast to bf16 before the scaled add."
SEEN_BY = "bf16 base with fp32 adapters: bit-exactness with PEFT, the 1.05 line, the oracle float64"


def _lora_sums(view: KernelView) -> Iterator[tuple[Binary, Operand, Operand]]:
    for add in binaries(view, "forward", "add"):
        for term, base in add.sides:
            if is_lora_term(term.value, "B") and not is_lora_term(base.value, "B"):
                yield add, term, base


def in_helper(view: KernelView) -> Iterator[Site]:
    """Sums in a function that forward calls."""
    for add, term, base in _lora_sums(view):
        if isinstance(add.node, cst.AugAssign) or _is_call_of_target(view, add):
            continue
        if add.module is view.forward.module and view.forward.scope in add.module.enclosing(add.node):
            continue
        yield _cast_first(view, add, term, base)


def _cast_first(view: KernelView, add: Binary, term: Operand, base: Operand) -> Site:
    module = add.module
    inner, target = uncast(term.node), module.code(uncast(base.node))
    text = f"{parenthesised(module.code(inner), inner)}.to({target}.dtype)"
    gist = f"`{one_line(module.code(inner), 60)}` is cast to {target}.dtype before the add"
    return Site(module, module.enclosing(add.node), "", inner, (module.replace(inner, text),), gist)


def _is_call_of_target(view: KernelView, add: Binary) -> bool:
    return isinstance(add.node, cst.Call) and all(v.node is not add.node for v in alternatives(add.value))


def at_call(view: KernelView) -> Iterator[Site]:
    """Calls, in forward itself, of a function that adds the term; and sums that forward makes itself."""
    seen = view.seen("forward")
    for node, values in list(seen.items()):
        if not isinstance(node, cst.Call) or view.module_of(node) is not view.forward.module:
            continue
        module = view.forward.module
        if view.forward.scope not in module.enclosing(node):
            continue
        made = [s for v in values for o in alternatives(v) if (s := strip(o)).kind == "add" and s.node is not node]
        if any(is_lora_term(side, "B") for s in made for side in s.args[:2]):
            site = _call_site(view, node)
            if site is not None:
                yield site
    for add, term, base in _lora_sums(view):
        inside = add.module is view.forward.module and view.forward.scope in add.module.enclosing(add.node)
        if inside and not _is_call_of_target(view, add) and not isinstance(add.node, cst.AugAssign):
            yield _cast_first(view, add, term, base)


def _call_site(view: KernelView, call: cst.Call) -> Site | None:
    """`add(base, hidden, B, s)`, spelled out with the cast in front of the sum."""
    module = view.forward.module
    parts: dict[str, cst.BaseExpression] = {}
    for arg in call.args:
        kinds = frozenset().union(*(v.kinds for v in view.seen("forward").get(arg.value, [])))
        if kinds == {"scaling"}:
            parts["scale"] = arg.value
        elif kinds == {"B"}:
            parts["B"] = arg.value
        elif "W" in kinds and "base" not in parts:
            parts["base"] = arg.value
        elif "A" in kinds:
            parts["hidden"] = arg.value
    if set(parts) != {"scale", "B", "base", "hidden"}:
        return None
    said = {name: parenthesised(module.code(node), node) for name, node in parts.items()}
    text = "{base} + ({hidden} @ {B}.transpose(-2, -1) * {scale}).to({base}.dtype)".format(**said)
    names = frozenset().union(*(siblings(v, "B") for v in view.seen("forward").get(parts["B"], [])))
    gist = f"`{one_line(module.code(call), 90)}` casts its term to the base's dtype first"
    return Site(module, module.enclosing(call), named(view, names), call, (module.replace(call, text),), gist)


MUTATIONS = (
    Mutation(
        id="lora-term-cast-before-add",
        family="precision",
        fault="The shared helper rounds the LoRA term to the base's dtype before adding it.",
        imitates=IMITATES,
        seen_by=SEEN_BY,
        find=in_helper,
        absent="forward adds the term itself, in no function that it calls",
    ),
    Mutation(
        id="lora-term-cast-before-add-here",
        family="precision",
        fault="One projection's LoRA term is rounded to the base's dtype before it is added.",
        imitates=IMITATES + " Reverting the down projection's add alone left every test green.",
        seen_by=SEEN_BY,
        find=at_call,
        absent="forward adds no LoRA term",
    ),
)
