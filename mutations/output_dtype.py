"""What an entry returns is cast back to the input's dtype.

Under autocast PEFT's output has autocast's dtype; a kernel that casts back returns fp32 where PEFT returns bf16, and
the node on top is the cast's. Found in the review as a regression of a refactor: only a 4-bit base casts back.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.handback import hands_back
from fastlora_verify.mutations.kernel_view import KernelView, owner_and_input
from fastlora_verify.mutations.terms import one_line, parenthesised
from fastlora_verify.mutations.tree import small_statements


def find(view: KernelView) -> Iterator[Site]:
    for entry in view.entries:
        _, x = owner_and_input(entry.node)
        if x is None:
            continue
        for small in small_statements(entry.node):
            value = small.value if isinstance(small, cst.Return) else None
            if value is None or hands_back(view, entry, value) or isinstance(value, cst.Tuple):
                continue
            text = _cast(entry.module.code, value, x.name.value)
            gist = f"`return {one_line(entry.module.code(value), 90)}` is cast back to the input's dtype"
            yield Site(entry.module, entry.scope, "", value, (entry.module.replace(value, text),), gist)


def _cast(code, value: cst.BaseExpression, x: str) -> str:  # type: ignore[no-untyped-def]
    if isinstance(value, cst.IfExp):
        # `out if no cast is due else out.to(dtype)`: the cast is always due.
        for branch in (value.body, value.orelse):
            if isinstance(branch, cst.Call):
                return str(code(branch))
    return f"{parenthesised(code(value), value)}.to({x}.dtype)"


MUTATIONS = (
    Mutation(
        id="output-cast-back",
        family="precision",
        fault="The output is cast to the input's dtype, under autocast too.",
        imitates="The review of the SwiGLU kernel: a refactor returned fp32 where PEFT returns bf16.",
        seen_by="output dtype and node under autocast",
        find=find,
        absent="no entry returns the kernel's output",
        examples=(
            Example("answer", "return out", "return out.to(inp.dtype)"),
            Example(
                "answer",
                "return out if out.dtype == inp.dtype else out.to(inp.dtype)",
                "return out.to(inp.dtype)",
            ),
            Example("second entry", "return formers[1](inp)", None, kernel="qkv"),
        ),
    ),
)
