"""The base weight is captured once instead of read at every call.

A streamed layer swaps its weight in for one call; a kernel that remembers the first weight it saw multiplies by a
slot that was refilled, or by a meta placeholder. Public: a reference captured at patch time, a dequantised copy
cached across calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView, Place, owner_and_input
from fastlora_verify.mutations.terms import is_pure, named, parenthesised, siblings


def find(view: KernelView) -> Iterator[Site]:
    entry, run = view.apply_entry, view.run
    if entry is None or run is None or view.apply_statement is None:
        return
    module, keeper = entry.module, _keeper(entry)
    if keeper is None:
        return
    for arg in run.call.args:
        values = view.seen(f"entry {entry.scope}").get(arg.value, [])
        if arg.star == "**" or not values or not all(is_pure(v, "W") for v in values):
            continue
        names = frozenset().union(*(siblings(v) for v in values))
        if len(names) > 1 and not arg.star:
            continue
        weight = module.code(arg.value)
        key = "captured_" + "_".join(sorted(n for n in names if n) or ["weight"])
        held = f"list({weight})" if arg.star else parenthesised(weight, arg.value)
        text = f'vars({keeper}).setdefault("{key}", {held})'
        gist = f"`{weight}` is the one of the first call, at every later call too"
        yield Site(module, entry.scope, named(view, names), arg.value, (module.replace(arg.value, text),), gist)


def _keeper(entry: Place) -> str | None:
    """What outlives a call of the entry and belongs to one layer: its owner, or a closure's own function."""
    owner, _ = owner_and_input(entry.node)
    if owner is not None:
        return owner.name.value
    outer = entry.module.scopes.get(entry.scope.rpartition(".")[0])
    return entry.node.name.value if isinstance(outer, cst.FunctionDef) else None


MUTATIONS = (
    Mutation(
        id="weight-captured",
        family="memory and streaming",
        fault="The weight of the patched layer is captured once and never read again.",
        imitates="A reference captured at patch time: under streaming, a meta placeholder.",
        seen_by="a weight replaced after the first call; streaming with reused buffers",
        find=find,
        absent="no weight is an argument of the Function",
        examples=(
            Example(
                "call",
                """
                out = One.apply(
                    inp, got["kernel"], None, got["down"], got["up"], *rest
                )
                """,
                """
                out = One.apply(
                    inp, vars(run).setdefault("captured_weight", got["kernel"]), None, got["down"], got["up"], *rest
                )
                """,
            ),
            Example("call", "out = One.apply(inp, got, *rest)", None),
        ),
    ),
)
