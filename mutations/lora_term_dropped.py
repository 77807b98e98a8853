"""The LoRA term is missing from an input's gradient.

dX = dY W + s (dY B) A has two terms; with the second one gone the adapter still trains, its own gradients are right,
and only what flows further down is wrong. In a block (SwiGLU) the same holds for dM, the input of the last projection.
Seen in the review of the SwiGLU kernel: "dropping down's LoRA term from dM". Left out: the base term, whose loss no
test of any kind overlooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.operations import Operand, Operation, operations
from fastlora_verify.mutations.terms import (
    factor,
    is_lora_term,
    named,
    one_line,
    product,
    siblings,
)


def _sites(inner: bool) -> Callable[[KernelView], Iterator[Site]]:
    def find(view: KernelView) -> Iterator[Site]:
        for add in operations(view, "backward", "add"):
            fed = {kind for kind, _ in view.feeding(add.node)}
            if "X" not in fed or ("A" in fed) != inner or not view.only_in("backward", add.node):
                continue
            for term in add.operands:
                if not is_lora_term(term.value, "A") or not _is_made_near(view, add, term):
                    continue
                scope = add.module.enclosing(add.node)
                gist = f"`{one_line(add.code)}` loses its LoRA term"
                what = named(view, _adapters(term))
                yield Site(add.module, scope, what, add.node, (add.without(term),), gist)

    return find


def _is_made_near(view: KernelView, add: Operation, term: Operand) -> bool:
    """Whether the sum stands in backward, or where its term is made: not in a function that adds what it is given."""
    made = product(term.value)
    node = made.node if made is not None else None
    if view.in_backward(add.node) or node is None or not add.module.holds(node):
        return view.in_backward(add.node)
    return add.module.enclosing(node) == add.module.enclosing(add.node)


def _adapters(term: Operand) -> frozenset[str]:
    adapter = factor(product(term.value), "A")
    return siblings(adapter) if adapter is not None else frozenset()


FROM_DX = Mutation(
    id="lora-term-dropped-from-dx",
    family="mathematics",
    fault="The input's gradient lacks the adapters' term: dX = dY W.",
    imitates="A backward written for the frozen base, with the adapter's path to X forgotten.",
    seen_by="float64 gradcheck; parity of dX; the oracle float64",
    find=_sites(inner=False),
    absent="backward adds no product with A to dX",
    examples=(
        Example(
            "dX",
            "d_inp = term.mul(factor).add(base).to(inp.dtype).view(inp.shape)",
            "d_inp = base.to(inp.dtype).view(inp.shape)",
        ),
        Example(
            "dX",
            """
                base += term * factor
                d_inp = base.view(inp.shape)
                """,
            """
                pass
                d_inp = base.view(inp.shape)
                """,
        ),
        Example(
            "dX",
            "d_inp = torch.addmm(base, back, down, alpha=factor).view(inp.shape)",
            "d_inp = base.view(inp.shape)",
        ),
        Example(
            "dX",
            "d_inp = base.addmm_(back, down, alpha=factor).view(inp.shape)",
            "d_inp = base.view(inp.shape)",
        ),
        Example("dX", "d_inp = (base + inp).view(inp.shape)", None),
        # In its first turn only is what the loop adds to a LoRA term.
        Example(
            "dX",
            """
            d_inp = torch.mm(joint, torch.cat(downs))
            for grad, kernel, held, plan in zip(grads, kernels, tensors, plans):
                d_inp = d_inp + grad.mm(unpacked(kernel, held, plan, grad.dtype))
            """,
            None,
            kernel="qkv",
        ),
        Example("dM", "d_middle = grad.mm(dense_d) + back_d.mm(down.first)", None, kernel="swiglu"),
    ),
)
FROM_DM = Mutation(
    id="lora-term-dropped-from-dm",
    family="mathematics",
    fault="The gradient of the last projection's input lacks its adapter's term, so everything before it is off.",
    imitates="The review of the SwiGLU kernel: down's LoRA term dropped from dM fails 7 tests.",
    seen_by="float64 gradcheck; parity of every dA and dB before it; the oracle float64",
    find=_sites(inner=True),
    absent="no projection's input is another one's output",
    examples=(
        Example(
            "dM",
            """
                d_middle = grad.mm(dense_d)
                d_middle.addmm_(back_d, down.first)
                """,
            """
                d_middle = grad.mm(dense_d)
                pass
                """,
            kernel="swiglu",
        ),
        Example("dX", "d_inp = torch.add(base, term, alpha=factor)", None),
    ),
)
MUTATIONS = (FROM_DX, FROM_DM)
