"""More matrix products than the kernel is there to save.

dX of an input that needs none doubles a first layer's backward (measured in the review of the single projection); two
GEMMs where the concatenation makes one is a fusion that isn't implemented, as the first round of the SwiGLU review
found. No number changes, so only a count sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.delegation import torch_at
from fastlora_verify.mutations.gemms_examples import EXAMPLES
from fastlora_verify.mutations.kernel_view import KernelView, Place, pure_label
from fastlora_verify.mutations.operations import tensors_of
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.terms import is_pure, one_line, parenthesised
from fastlora_verify.mutations.values import Value, alternatives, resolve, strip


def dx_always(view: KernelView) -> Iterator[Site]:
    """Conditions of backward on `ctx.needs_input_grad` of X."""
    run = view.run
    if run is None:
        return
    index = next((i for i, a in enumerate(run.args) if (lab := pure_label(a)) is not None and lab.kind == "X"), None)
    module = view.backward.module
    needs = [
        node
        for node, values in list(view.seen("backward").items())
        if isinstance(node, cst.BaseExpression)
        and any(_is_need(v, index) for v in values)
        and view.in_backward(node)
        and _decides(view, node)
    ]
    if needs:  # all of them: with one alone, dX may be summed of parts that were not computed
        gist = f"`{module.code(needs[0])}` is taken for True: dX is computed whether or not it is needed"
        edits = tuple(module.replace(node, "True", fires=node is needs[0]) for node in needs)
        yield Site(module, view.backward.scope, "", needs[0], edits, gist)


def _is_need(value: Value, index: int | None) -> bool:
    held = resolve(value)
    position = held.attrs.get("index")
    return held.kind == "item" and position is not None and index is not None and resolve(position).const == index


def _decides(view: KernelView, node: cst.CSTNode) -> bool:
    """Whether the expression is (part of) the test of an if that computes dX."""
    module = view.backward.module
    for above in module.ancestors(node):
        if isinstance(above, cst.If | cst.IfExp):
            return _is_inside(module, node, above.test) and _computes_dx(view, above)
        if isinstance(above, cst.BaseStatement):
            return False
    return False


def _is_inside(module: ParsedModule, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
    return node is outer or any(a is outer for a in module.ancestors(node))


def _computes_dx(view: KernelView, branch: cst.If | cst.IfExp) -> bool:
    module = view.backward.module
    return any(
        {k for k, _ in view.feeding(node)} == {"X"}
        for node in list(view.seen("backward"))
        if isinstance(node, cst.Call | cst.BinaryOperation) and _is_inside(module, node, branch.body)
    )


def forward_split(view: KernelView) -> Iterator[Site]:
    for node, values in list(view.seen("forward").items()):
        products = [v for v in values if v.kind == "matmul" and v.node is node]
        if any(is_pure(arg, "A") and _is_cat(arg) for v in products for arg in v.args[:2]):
            yield from _split(view, view.forward, "forward", node)


def da_split(view: KernelView) -> Iterator[Site]:
    for node, values in list(view.seen("backward").items()):
        fed = view.feeding(node)
        shared = len({s for k, s in fed if k == "A"}) > 1 and not {k for k, _ in fed} - {"A"}
        if shared and any(v.kind == "matmul" and v.node is node and any(map(_is_cat, v.args[:2])) for v in values):
            yield from _split(view, view.backward, "backward", node)


def _is_cat(value: Value) -> bool:
    return any(strip(o).kind == "cat" for o in alternatives(strip(value)))


def _split(view: KernelView, place: Place, phase: str, node: cst.CSTNode) -> Iterator[Site]:
    """The concatenated operand cut in two, one product each, and the results concatenated again."""
    module = view.module_of(node)
    if module is not place.module or place.scope != module.enclosing(node):
        return
    found = _operands(view, phase, node)
    if found is None:
        return
    operands, is_linear = found
    for i, operand in enumerate(operands):
        if not any(_is_cat(v) for v in view.seen(phase).get(operand, [])):
            continue
        dim = -2 if i == 0 or is_linear else -1
        joined = -2 if i == 0 else -1
        code = module.code(node)
        start, _ = module.span(node)
        low, high = (p - start for p in module.span(operand))
        encoded = code.encode()
        product = (encoded[:low] + b"part" + encoded[high:]).decode()
        parts = f"{parenthesised(module.code(operand), operand)}.chunk(2, dim={dim})"
        text = f"{torch_at(place)}.cat([{product} for part in {parts}], dim={joined})"
        gist = f"`{one_line(code, 90)}` is computed as two products"
        yield Site(module, place.scope, "", node, (module.replace(node, text),), gist)
        return


def _operands(view: KernelView, phase: str, node: cst.CSTNode) -> tuple[list[cst.BaseExpression], bool] | None:
    if isinstance(node, cst.BinaryOperation):
        return [node.left, node.right], False
    names = {v.name for v in view.seen(phase).get(node, []) if v.kind == "matmul" and v.node is node}
    if isinstance(node, cst.Call) and names and names <= {"linear", "matmul", "mm", "bmm"}:
        return tensors_of(view, phase, node)[:2], names == {"linear"}
    return None


def _mutation(
    ident: str, fault: str, imitates: str, find: Callable[[KernelView], Iterator[Site]], absent: str
) -> Mutation:
    seen_by = "a count of matrix products; the oracle saved-bytes counts them too"
    return Mutation(ident, "memory and streaming", fault, imitates, seen_by, find, absent, examples=EXAMPLES[ident])


MUTATIONS = (
    _mutation("dx-always-computed", "dX is computed for an input that needs no gradient.",
              "The reviews of both kernels: twice the backward of a first layer.", dx_always,
              "backward computes dX unconditionally"),
    _mutation("shared-gemm-split-in-forward", "Siblings' A's that share X are multiplied in two products.",
              "The review of the SwiGLU kernel: the advertised fusion was not implemented.", forward_split,
              "no product of concatenated A's in forward"),
    _mutation("shared-gemm-split-in-da", "dA of siblings that share X is computed in two products.",
              "The review of the SwiGLU kernel: the advertised fusion was not implemented.", da_split,
              "no product of concatenated gradients in backward"),
)  # fmt: skip
