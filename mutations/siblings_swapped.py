"""dA of two siblings come back in each other's place.

Equal ranks and equal initialisation hide it from every test that looks at shapes or at one projection alone. Public:
a loader that put the gate's tensors into the up slot. Left out: dB, whose shapes differ in most models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.values import known_items, resolve
from fastlora_verify.mutations.visible import sayable


def find(view: KernelView) -> Iterator[Site]:
    yield from _in_rows(view)
    slots = [s for s in view.slots if s.kind == "A" and s.node is not None and view.reads_input("A", s.sibling)]
    module = view.backward.module
    for one, other in itertools.pairwise(slots):
        assert isinstance(one.node, cst.BaseExpression) and isinstance(other.node, cst.BaseExpression)
        if not sayable(module, other.node, one.node) or not sayable(module, one.node, other.node):
            continue
        edits = (
            module.replace(one.node, module.code(other.node)),
            module.replace(other.node, module.code(one.node), fires=False),
        )
        gist = f"dA of {one.sibling} and {other.sibling} change places in what backward returns"
        yield Site(module, module.enclosing(one.node), f"{one.sibling}+{other.sibling}", one.node, edits, gist)


def _in_rows(view: KernelView) -> Iterator[Site]:
    """dA of all siblings in one starred row of what backward returns."""
    module, run = view.backward.module, view.run
    literal = resolve(run.gradients).node if run is not None and run.gradients is not None else None
    shared = [s.sibling for s in view.slots if s.kind == "A" and s.node is None and view.reads_input("A", s.sibling)]
    made = [id(resolve(s.value)) for s in view.slots if s.kind == "A"]
    for element in literal.elements if isinstance(literal, cst.Tuple | cst.List) else ():
        rows = [known_items(v) or () for v in view.seen("backward").get(element.value, [])]
        if not isinstance(element, cst.StarredElement) or not rows or [id(resolve(i)) for i in rows[0]] != made:
            continue
        for i, (one, other) in enumerate(itertools.pairwise(shared)):
            text = permuted(module.code(element.value), len(made), i)
            gist = f"dA of {one} and {other} change places in what backward returns"
            edits = (module.replace(element.value, text),)
            yield Site(module, module.enclosing(element), f"{one}+{other}", element.value, edits, gist)


def permuted(text: str, count: int, first: int) -> str:
    """A row of `count` elements with two neighbours in each other's place."""
    order = list(range(count))
    order[first], order[first + 1] = order[first + 1], order[first]
    return f"[list({text})[i] for i in {order}]"


MUTATIONS = (
    Mutation(
        id="sibling-da-swapped",
        family="mathematics",
        fault="Two projections get each other's dA.",
        imitates="Tensors of one slot appended twice, or unpacked in another order than packed.",
        seen_by="parity of each dA with distinct adapters; float64 gradcheck",
        find=find,
        absent="one projection has no sibling",
        examples=(
            Example(
                "return",
                """
                return (
                    d_inp, None, None, d_gate_first, d_gate_second, *rest,
                    d_up_first, d_up_second, *rest, *d_down, *rest,
                )
                """,
                """
                return (
                    d_inp, None, None, d_up_first, d_gate_second, *rest,
                    d_gate_first, d_up_second, *rest, *d_down, *rest,
                )
                """,
                kernel="swiglu",
            ),
            Example(
                "return",
                "return d_inp, None, *[None] * size, *[None] * size, *d_downs, *d_ups",
                "return d_inp, None, *[None] * size, *[None] * size, *[list(d_downs)[i] for i in [1, 0, 2]], *d_ups",
                kernel="qkv",
            ),
            Example(
                "return",
                "return d_inp, None, *[None] * size, *[None] * size, *d_downs, *d_ups",
                "return d_inp, None, *[None] * size, *[None] * size, *[list(d_downs)[i] for i in [0, 2, 1]], *d_ups",
                kernel="qkv",
            ),
            Example("dA", "d_down = factor * back.t().mm(seen)", None),
        ),
    ),
)
