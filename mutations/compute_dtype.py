"""The compute dtype of a 4-bit base is not honoured.

`Linear4bit` computes in its `compute_dtype`, whatever it is given; a kernel that computes in the input's dtype agrees
with PEFT only where the two are the same. Named in the first round of the SwiGLU review.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.terms import kinds, one_line
from fastlora_verify.mutations.values import alternatives


def find(view: KernelView) -> Iterator[Site]:
    entry = view.apply_entry
    if entry is None:
        return
    for node, values in list(view.seen(f"entry {entry.scope}").items()):
        is_read = isinstance(node, cst.Attribute | cst.Call) and any(
            o.kind == "source" and o.node is node and kinds(o) == {"compute_dtype"}
            for v in values
            for o in alternatives(v)
        )
        if not is_read:
            continue
        module = view.module_of(node)
        gist = f"`{one_line(module.code(node))}` is read as None"
        yield Site(module, module.enclosing(node), "", node, (module.replace(node, "None"),), gist)


MUTATIONS = (
    Mutation(
        id="compute-dtype-ignored",
        family="precision",
        fault="A 4-bit base is computed in the input's dtype instead of its own compute dtype.",
        imitates="The review of the SwiGLU kernel: no compute-dtype handling beside a helper that had it.",
        seen_by="fp32 input on a 4-bit base with compute dtype bf16: output equal to PEFT's",
        find=find,
        absent="no entry reads `compute_dtype`",
        examples=(
            Example("working", "chosen = bottom.compute_dtype", "chosen = None"),
            Example("working", "chosen = bottom.weight.dtype", None),
        ),
    ),
)
