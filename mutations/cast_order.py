"""The LoRA term is rounded to the base's 16-bit dtype before it is added, instead of after.

PEFT promotes, adds, and casts once. A fused kernel that casts the fp32 term first rounds twice: bit-exactness with
PEFT is lost and, on one seed in twelve of the review, the 2x-float64 rule. Public: a 4-bit LoRA whose cast moved
across the add, drifting layer by layer. The shared helper has it for all kernels at once; each call of it alone is a
mutant too, since a test of one projection says nothing about its siblings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.cast_order_examples import EXAMPLES
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.operations import Operation, in_place, operations
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.terms import (
    QUANT,
    factor,
    is_lora_term,
    named,
    one_line,
    parenthesised,
    product,
    siblings,
    uncast,
)
from fastlora_verify.mutations.values import TRANSPARENT, Value, alternatives, strip

IMITATES = "The review of the SwiGLU kernel: the fp32 LoRA term cast to bf16 before the scaled add."
SEEN_BY = "bf16 base with fp32 adapters: bit-exactness with PEFT, the 1.05 line, the oracle float64"

TURNS = frozenset({"t", "T", "mT", "H", "transpose", "swapaxes", "permute", "adjoint"})


def _lora_sums(view: KernelView) -> Iterator[tuple[Operation, cst.BaseExpression, cst.BaseExpression]]:
    """(sum, its LoRA term, its base) in forward, or in a function that it alone calls."""
    for add in operations(view, "forward", "add"):
        if isinstance(add.node, cst.AugAssign) or in_place(add.node) or not view.only_in("forward", add.node):
            continue  # in place the sum takes the base's dtype anyway
        for term, base in add.sides:
            is_sum = is_lora_term(term.value, "B") and not is_lora_term(base.value, "B")
            if is_sum and term.node is not None and base.node is not None:
                yield add, term.node, base.node


def in_helper(view: KernelView) -> Iterator[Site]:
    """Sums in a function that forward calls."""
    for add, term, base in _lora_sums(view):
        if not _in_forward(view, add.module, add.node):
            yield from _cast_first(add, term, base)


def _in_forward(view: KernelView, module: ParsedModule, node: cst.CSTNode) -> bool:
    return module is view.forward.module and any(a is view.forward.node for a in module.ancestors(node))


def _cast_first(add: Operation, term: cst.BaseExpression, base: cst.BaseExpression) -> Iterator[Site]:
    module = add.module
    inner, target = uncast(term), parenthesised(module.code(uncast(base)), uncast(base))
    text = f"{parenthesised(module.code(inner), inner)}.to({target}.dtype)"
    gist = f"`{one_line(module.code(inner), 60)}` is cast to {target}.dtype before the add"
    if module.code(term) not in {text, f"({text})"}:  # else it is cast first as it stands
        yield Site(module, module.enclosing(add.node), "", inner, (module.replace(inner, text),), gist)


def at_call(view: KernelView) -> Iterator[Site]:
    """Calls, in forward itself, of a function that adds the term; and sums that forward makes itself."""
    seen = view.seen("forward")
    for node, values in list(seen.items()):
        if not isinstance(node, cst.Call) or not _in_forward(view, view.module_of(node), node):
            continue
        made = [s for v in values for o in alternatives(v) if (s := strip(o)).kind == "add" and s.node is not node]
        terms = [product(side) for s in made for side in s.args[:2] if is_lora_term(side, "B")]
        if terms:
            yield from _call_site(view, node, terms[0])
    for add, term, base in _lora_sums(view):
        if _in_forward(view, add.module, add.node):
            yield from _cast_first(add, term, base)


def _call_site(view: KernelView, call: cst.Call, term: Value | None) -> Iterator[Site]:
    """`add(base, hidden, B, s)`, spelled out with the cast in front of the sum."""
    module = view.forward.module
    parts: dict[str, cst.BaseExpression] = {}
    for arg in call.args:
        kinds = frozenset().union(*(v.kinds for v in view.seen("forward").get(arg.value, [])))
        if kinds == {"A"} or ("W" in kinds and kinds <= {"W"} | QUANT):
            return  # the function makes the products itself: no call of it has base and term apart
        if kinds == {"scaling"}:
            parts["scale"] = arg.value
        elif kinds == {"B"}:
            parts["B"] = arg.value
        elif "W" in kinds and "base" not in parts:
            parts["base"] = arg.value
        elif "A" in kinds:
            parts["hidden"] = arg.value
    if set(parts) != {"scale", "B", "base", "hidden"} or term is None or term.name == "einsum":
        return
    said = {name: parenthesised(module.code(node), node) for name, node in parts.items()}
    if _is_turned(term, view.seen("forward").get(parts["B"], [])):
        said["B"] += ".transpose(-2, -1)"
    said["once"] = said["base"]
    if not isinstance(parts["base"], cst.Name | cst.Attribute):
        said |= {"base": "summed", "once": f"(summed := {said['base']})"}
    text = "{once} + ({hidden} @ {B} * {scale}).to({base}.dtype)".format(**said)
    names = frozenset().union(*(siblings(v, "B") for v in view.seen("forward").get(parts["B"], [])))
    gist = f"`{one_line(module.code(call), 90)}` casts its term to the base's dtype first"
    yield Site(module, module.enclosing(call), named(view, names), call, (module.replace(call, text),), gist)


def _is_turned(term: Value, given: Sequence[Value]) -> bool:
    """Whether the function multiplies with B as it was given, transposed."""
    adapter = factor(term, "B")
    stop = {id(v) for v in given}
    turns = int(term.name == "linear")
    while adapter is not None and id(adapter) not in stop and adapter.kind in TRANSPARENT and adapter.args:
        turns += adapter.kind == "move" and adapter.name in TURNS
        adapter = adapter.args[0]
    return turns % 2 == 1


MUTATIONS = (
    Mutation(
        id="lora-term-cast-before-add",
        family="precision",
        fault="The shared helper rounds the LoRA term to the base's dtype before adding it.",
        imitates=IMITATES,
        seen_by=SEEN_BY,
        find=in_helper,
        absent="forward adds the term itself, in no function that it calls",
        examples=EXAMPLES["lora-term-cast-before-add"],
    ),
    Mutation(
        id="lora-term-cast-before-add-here",
        family="precision",
        fault="One projection's LoRA term is rounded to the base's dtype before it is added.",
        imitates=IMITATES + " Reverting the down projection's add alone left every test green.",
        seen_by=SEEN_BY,
        find=at_call,
        absent="forward adds no LoRA term, or a function adds it that makes both products itself",
        examples=EXAMPLES["lora-term-cast-before-add-here"],
    ),
)
