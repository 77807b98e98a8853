"""dA of two siblings come back in each other's place.

Equal ranks and equal initialisation hide it from every test that looks at shapes or at one projection alone. Public:
a loader that put the gate's tensors into the up slot. Left out: dB, whose shapes differ in most models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView


def find(view: KernelView) -> Iterator[Site]:
    slots = [s for s in view.slots if s.kind == "A" and s.node is not None and view.reads_input("A", s.sibling)]
    module = view.backward.module
    for one, other in itertools.pairwise(slots):
        assert one.node is not None and other.node is not None
        edits = (
            module.replace(one.node, module.code(other.node)),
            module.replace(other.node, module.code(one.node), fires=False),
        )
        gist = f"dA of {one.sibling} and {other.sibling} change places in what backward returns"
        yield Site(module, module.enclosing(one.node), f"{one.sibling}+{other.sibling}", one.node, edits, gist)


MUTATIONS = (
    Mutation(
        id="sibling-da-swapped",
        family="mathematics",
        fault="Two projections get each other's dA.",
        imitates="Tensors of one slot appended twice, or unpacked in another order than packed.",
        seen_by="parity of each dA with distinct adapters; float64 gradcheck",
        find=find,
        absent="one projection has no sibling",
    ),
)
