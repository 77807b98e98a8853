"""dX is accumulated from all projections that read X but one.

dX = sum over q, k, v of dY_i W_i: with one term gone, training goes on with a slightly wrong gradient below. Left out:
the LoRA term, which has a mutation of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.operations import Operation, operations
from fastlora_verify.mutations.terms import (
    QUANT,
    factor,
    is_base_term,
    is_lora_term,
    named,
    one_line,
    product,
    siblings,
)
from fastlora_verify.mutations.tree import children
from fastlora_verify.mutations.values import Value


def find(view: KernelView) -> Iterator[Site]:
    for add in operations(view, "backward", "add"):
        if "X" not in {kind for kind, _ in view.feeding(add.node)} or not view.in_backward(add.node):
            continue
        loop = next((a for a in add.module.ancestors(add.node) if isinstance(a, cst.For)), None)
        terms = [side for side, _ in add.sides if is_base_term(side.value)]
        if loop is not None and terms and len(_base_siblings(terms[0].value) | _below(view, add)) > 1:
            if not _makes_more(view, loop):
                yield _shortened_loop(add, loop)
        elif loop is None:
            yield from _dropped_terms(view, add)


def _dropped_terms(view: KernelView, add: Operation) -> Iterator[Site]:
    """A base term on one side, other projections' base terms on the other: drop the one side."""
    for side, other in add.sides:
        names = _base_siblings(side.value) if is_base_term(side.value) else _whole_gradient(side.value)
        if not names or not _has_base_term(other.value):
            continue
        gist = f"`{one_line(add.code, 90)}` without the term of {'+'.join(sorted(names))}"
        what, scope = named(view, names), add.module.enclosing(add.node)
        yield Site(add.module, scope, what, add.node, (add.without(side),), gist)


def _shortened_loop(add: Operation, loop: cst.For) -> Site:
    module = add.module
    text = f"list({module.code(loop.iter)})[:-1]"
    gist = f"`for {module.code(loop.target)} in …` leaves its last element out"
    edit = module.replace(loop.iter, text)
    return Site(module, module.enclosing(loop), "last", loop, (edit,), gist)


def _makes_more(view: KernelView, loop: cst.For) -> bool:
    """Whether a loop's body makes other gradients than dX, which a shorter loop would leave out as well."""
    stack: list[cst.CSTNode] = [loop.body]
    while stack:
        node = stack.pop()
        if {kind for kind, _ in view.feeding(node)} - {"X"}:
            return True
        stack.extend(children(node))
    return False


def _base_siblings(value: Value) -> frozenset[str]:
    base = factor(product(value), "W", QUANT)
    return siblings(base, "W") if base is not None else frozenset()


def _whole_gradient(value: Value) -> frozenset[str]:
    """The projection whose base term and LoRA term a sum consists of, as a function returns them together."""
    summands = list(_summands(value))
    bases = [part for part in summands if is_base_term(part)]
    terms = [part for part in summands if part not in bases]
    if not bases or not all(is_lora_term(part, "A") for part in terms):
        return frozenset()
    names = frozenset().union(*map(_base_siblings, bases))
    adapted = [factor(product(part), "A") for part in terms]
    others = frozenset().union(*(siblings(part, "A") for part in adapted if part is not None))
    return names if len(names) == 1 and others <= names else frozenset()


def _summands(value: Value) -> Iterator[Value]:
    if value.kind in {"use", "cast", "move"} and value.args:
        yield from _summands(value.args[0])
    elif value.kind == "add":
        for arg in value.args[:2]:
            yield from _summands(arg)
    else:
        yield value


def _has_base_term(value: Value) -> bool:
    return any(
        part.kind == "matmul" and factor(part, "W", QUANT) is not None and _feeds_sum(value, part)
        for part in value.below()
    )


def _feeds_sum(value: Value, part: Value) -> bool:
    """Whether `part` is a summand of `value`: reached through sums and casts only."""
    stack = [value]
    while stack:
        current = stack.pop()
        if current is part:
            return True
        if current.kind in {"use", "cast", "move", "join", "add"}:
            stack.extend(current.args)
    return False


def _below(view: KernelView, add: Operation) -> frozenset[str]:
    found: set[str] = set()
    for value in view.seen("backward").get(add.node, []):
        for arg in value.args[:2]:
            found |= _base_siblings(arg)
    return frozenset(found)


MUTATIONS = (
    Mutation(
        id="dx-lacks-a-projection",
        family="mathematics",
        fault="dX is the sum over all but one of the projections that share X.",
        imitates="An accumulation that stopped one projection early.",
        seen_by="parity of dX with all outputs used; float64 gradcheck",
        find=find,
        absent="X is read by one projection only, or the loop that adds up dX makes other gradients, too",
        examples=(
            Example(
                "dX",
                """
                dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
                dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
                d_inp = d_wide_u.mm(dense_u) + d_wide_g.mm(dense_g)
                """,
                """
                dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
                dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
                d_inp = d_wide_g.mm(dense_g)
                """,
                kernel="swiglu",
            ),
            Example(
                "dX",
                """
                dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
                dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
                d_inp = d_wide_u.mm(dense_u) + d_wide_g.mm(dense_g)
                """,
                """
                dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
                dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
                d_inp = d_wide_u.mm(dense_u)
                """,
                kernel="swiglu",
            ),
            Example(
                "dX",
                """
                for grad, kernel, held, plan in zip(grads, kernels, tensors, plans):
                    d_inp += grad.mm(unpacked(kernel, held, plan, grad.dtype))
                """,
                """
                for grad, kernel, held, plan in list(zip(grads, kernels, tensors, plans))[:-1]:
                    d_inp += grad.mm(unpacked(kernel, held, plan, grad.dtype))
                """,
                kernel="qkv",
            ),
            Example("dX", "d_inp = torch.add(base, term, alpha=factor)", None),
            Example(
                "dX",
                """
                dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
                dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
                whole_g = d_wide_g.mm(dense_g) + (d_wide_g @ gate.second) @ gate.first * gate.factor
                d_inp = (d_wide_u.mm(dense_u) + (d_wide_u @ up.second) @ up.first * up.factor) + whole_g
                """,
                """
                dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
                dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
                whole_g = d_wide_g.mm(dense_g) + (d_wide_g @ gate.second) @ gate.first * gate.factor
                d_inp = whole_g
                """,
                kernel="swiglu",
            ),
        ),
    ),
)
