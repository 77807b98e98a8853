"""The dropout mask, or its 1 / (1 - p), is missing from dA or from dX.

With X_d = X * mask / (1 - p) in the forward, dA contracts against X_d, and the LoRA term of dX takes the mask and the
rescale on its way back. Public: a fused dropout whose dX never got the mask, and a stand-in dropout without the
rescale that hid it. Left out: the forward's own mask, without which nothing is dropped at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.dropout_mask_examples import EXAMPLES
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.operations import Operand, Operation, operations
from fastlora_verify.mutations.terms import is_pure, kinds, one_line, parenthesised

FIELDS = {"A": "dA", "X": "dX"}
DROPOUT = frozenset({"dropout"})


def _find(part: str, slot: str) -> Callable[[KernelView], Iterator[Site]]:
    def find(view: KernelView) -> Iterator[Site]:
        for operator in ("mul", "div"):
            for binary in operations(view, "backward", operator):
                fed = {kind for kind, _ in view.feeding(binary.node)}
                dropped = _dropped_side(binary, part)
                if dropped is None or slot not in fed or fed & (set(FIELDS) - {slot}):
                    continue
                if not view.in_backward(binary.node):
                    continue
                yield _site(binary, dropped)
        yield from _at_calls(view, part, slot)

    return find


def _at_calls(view: KernelView, part: str, slot: str) -> Iterator[Site]:
    """A function of the target's own that drops: what its call would give without the mask, or the rescale."""
    seen = view.seen("backward")
    for node, values in list(seen.items()):
        fed = {kind for v in values for kind, _ in view.feeds(v)}
        if (
            not isinstance(node, cst.Call)
            or not view.in_backward(node)
            or slot not in fed
            or fed & (set(FIELDS) - {slot})
        ):
            continue
        if all(v.node is node for v in values):  # torch's own
            continue
        by_kind: dict[str, list[cst.BaseExpression]] = {"mask": [], "dropout": [], "": []}
        for arg in node.args:
            made_of = frozenset().union(*(kinds(v) for v in seen.get(arg.value, [])))
            by_kind[
                "mask"
                if "mask" in made_of and made_of <= {"mask", "dropout"}
                else "dropout"
                if made_of == {"dropout"}
                else ""
            ].append(arg.value)
        if [len(by_kind[k]) for k in ("mask", "dropout", "")] != [1, 1, 1]:
            continue
        module = view.backward.module
        heavy, mask, p = (parenthesised(module.code(by_kind[k][0]), by_kind[k][0]) for k in ("", "mask", "dropout"))
        text = f"({heavy} / (1.0 - {p}))" if part == "mask" else f"({heavy} if {mask} is None else {heavy} * {mask})"
        gist = f"`{one_line(module.code(node), 90)}` becomes `{one_line(text, 90)}`"
        yield Site(module, module.enclosing(node), "", node, (module.replace(node, text),), gist)


def _dropped_side(binary: Operation, part: str) -> Operand | None:
    sides = list(binary.sides) if binary.kind == "mul" else [(binary.operands[1], binary.operands[0])]
    for one, other in sides:
        if part == "mask" and is_pure(one.value, "mask", DROPOUT) and kinds(other.value) - {"mask", "dropout"}:
            return one
        if part == "rescale" and is_pure(one.value, "dropout") and kinds(other.value) - {"dropout"}:
            return one
    return None


def _site(binary: Operation, dropped: Operand) -> Site:
    module, node, edit = binary.module, binary.node, binary.without(dropped)
    gist = f"`{one_line(binary.code, 90)}` becomes `{one_line(edit.text, 90)}`"
    return Site(module, module.enclosing(node), "", node, (edit,), gist)


def _mutation(part: str, slot: str) -> Mutation:
    name, field = ("mask-dropped", "the keep-mask") if part == "mask" else ("rescale-dropped", "1 / (1 - p)")
    ident = f"dropout-{name}-in-{FIELDS[slot].lower()}"
    return Mutation(
        id=ident,
        family="mathematics",
        fault=f"With dropout, {FIELDS[slot]} lacks {field}.",
        imitates="A fused LoRA with dropout whose input gradient was wrong whenever p > 0 (public).",
        seen_by="gradients against float64 with the same mask, p > 0",
        find=_find(part, slot),
        absent="the kernel doesn't model dropout",
        examples=EXAMPLES[ident],
    )


MUTATIONS = tuple(_mutation(part, slot) for part in ("mask", "rescale") for slot in ("A", "X"))
