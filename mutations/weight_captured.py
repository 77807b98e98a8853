"""The base weight is captured once instead of read at every call.

A streamed layer swaps its weight in for one call; a kernel that remembers the first weight it saw multiplies by a
slot that was refilled, or by a meta placeholder. Public: a reference captured at patch time, a dequantised copy
cached across calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView, owner_and_input, pure_label
from fastlora_verify.mutations.terms import named, parenthesised


def find(view: KernelView) -> Iterator[Site]:
    entry, run = view.apply_entry, view.run
    if entry is None or run is None or view.apply_statement is None:
        return
    owner, _ = owner_and_input(entry.node)
    if owner is None:
        return
    module = entry.module
    for arg in run.call.args:
        labels = [pure_label(v) for v in view.seen(f"entry {entry.scope}").get(arg.value, [])]
        if arg.star or not labels or any(label is None or label.kind != "W" for label in labels):
            continue
        names = frozenset(label.sibling for label in labels if label is not None)
        weight = parenthesised(module.code(arg.value), arg.value)
        key = "captured_" + "_".join(sorted(names) or ["weight"])
        text = f'vars({owner.name.value}).setdefault("{key}", {weight})'
        gist = f"`{weight}` is the one of the first call, at every later call too"
        yield Site(module, entry.scope, named(view, names), arg.value, (module.replace(arg.value, text),), gist)


MUTATIONS = (
    Mutation(
        id="weight-captured",
        family="memory and streaming",
        fault="The weight of the patched layer is captured once and never read again.",
        imitates="A reference captured at patch time: under streaming, a meta placeholder.",
        seen_by="a weight replaced after the first call; streaming with reused buffers",
        find=find,
        absent="no weight is an argument of the Function",
    ),
)
