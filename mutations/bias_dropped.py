"""The frozen base's bias is not added.

A fast path that returns before the bias add was shipped; every kernel test on a Llama, whose projections have no
bias, stays green. Left out: a bias added twice, which the same tests see.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.operations import operations
from fastlora_verify.mutations.terms import is_pure, named, one_line, siblings


def find(view: KernelView) -> Iterator[Site]:
    seen = view.seen("forward")
    for node, values in list(seen.items()):
        if not isinstance(node, cst.Call) or not any(v.kind == "matmul" and v.node is node for v in values):
            continue
        module = view.module_of(node)
        for arg in node.args:
            made_of = seen.get(arg.value, [])
            if made_of and not arg.star and all(is_pure(v, "bias") for v in made_of):
                names = frozenset().union(*(siblings(v) for v in made_of))
                gist = f"`{one_line(module.code(node), 90)}` without its bias"
                what = named(view, names)
                edit = module.replace(arg.value, "None")
                yield Site(module, module.enclosing(node), what, arg.value, (edit,), gist)
    for add in operations(view, "forward", "add"):
        for bias, other in add.sides:
            if is_pure(bias.value, "bias") and not is_pure(other.value, "bias"):
                gist = f"`{one_line(add.code, 90)}` without its bias"
                what, scope = named(view, siblings(bias.value)), add.module.enclosing(add.node)
                yield Site(add.module, scope, what, add.node, (add.without(bias),), gist)


MUTATIONS = (
    Mutation(
        id="bias-dropped",
        family="mathematics",
        fault="The base's bias is missing from a projection's output.",
        imitates="A fast branch that returned before the bias add, in a public 4-bit library.",
        seen_by="output parity on a base with bias",
        find=find,
        absent="the Function adds no bias",
        examples=(
            Example(
                "base",
                "out = torch.nn.functional.linear(inp, dense, bias=shift)",
                "out = torch.nn.functional.linear(inp, dense, bias=None)",
            ),
            Example("base", "out = torch.addmm(shift, inp, dense.t())", "out = (inp @ dense.t())"),
            Example(
                "base",
                """
                out = torch.mm(inp, dense.t())
                if shift is not None:
                    out.add_(shift)
                """,
                """
                out = torch.mm(inp, dense.t())
                if shift is not None:
                    pass
                """,
            ),
            Example("base", "out = torch.nn.functional.linear(inp, dense)", None),
        ),
    ),
)
