"""K and V computed with Q: served to another input, or kept after use.

A QKV kernel computes K and V when Q is asked for and hands them to the next two projection calls, for the identical
input object only. Served to another tensor they are silently those of the query's input (cross-attention); kept after
use they hold a graph alive. Both named by the tracker of the reviews.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.handback import hands_back
from fastlora_verify.mutations.kernel_view import KernelView, Place
from fastlora_verify.mutations.terms import is_pure, one_line
from fastlora_verify.mutations.tree import statements

KINDS = frozenset({"qkv", "other"})


def later_entries(view: KernelView) -> list[Place]:
    """The entries that are served: all but the one that calls the Function."""
    first = view.apply_entry
    return [e for e in view.entries if first is None or e.node is not first.node]


def stale(view: KernelView) -> Iterator[Site]:
    """Comparisons of the input with what K and V were computed from."""
    for entry in later_entries(view):
        seen = view.seen(f"entry {entry.scope}")
        for node in list(seen):
            if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
                continue
            target = node.comparisons[0]
            sides = (node.left, target.comparator)
            if not any(is_pure(v, "X") for side in sides for v in seen.get(side, [])):
                continue
            text = _always_same(target.operator)
            if text is not None:
                module = view.module_of(node)
                gist = f"`{one_line(module.code(node))}` is taken for {text}"
                what = "" if "_version" not in module.code(node) else "version"
                yield Site(module, module.enclosing(node), what, node, (module.replace(node, text),), gist)


def _always_same(operator: cst.BaseCompOp) -> str | None:
    if isinstance(operator, cst.Is | cst.Equal):
        return "True"
    return "False" if isinstance(operator, cst.IsNot | cst.NotEqual) else None


def kept(view: KernelView) -> Iterator[Site]:
    """What is taken out stays in."""
    for entry in later_entries(view):
        for node in list(view.seen(f"entry {entry.scope}")):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node.func.attr.value == "pop" and node.args:
                module = view.module_of(node)
                gist = f"`{one_line(module.code(node))}` reads without taking out"
                edit = module.replace(node.func.attr, "get")
                yield Site(module, module.enclosing(node), "", node, (edit,), gist)
        yield from _cleared(view, entry)


def _cleared(view: KernelView, entry: Place) -> Iterator[Site]:
    """Statements that set the store to None on the way to returning what it held."""
    for block in statements(entry.node):
        if not isinstance(block, cst.If) or not isinstance(block.body, cst.IndentedBlock):
            continue
        last = block.body.body[-1]
        small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
        if not isinstance(small, cst.Return) or hands_back(view, entry, small.value):
            continue
        for line in block.body.body:
            if isinstance(line, cst.SimpleStatementLine) and _sets_none(line.body[0]):
                gist = f"`{one_line(entry.module.code(line))}` is skipped"
                edit = entry.module.replace(line.body[0], "pass")
                yield Site(entry.module, entry.scope, "cleared", line, (edit,), gist)


def _sets_none(small: cst.BaseSmallStatement) -> bool:
    if isinstance(small, cst.Assign):
        return isinstance(small.value, cst.Name) and small.value.value == "None"
    if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
        return False
    call = small.value
    is_setattr = isinstance(call.func, cst.Name) and call.func.value == "setattr"
    last = call.args[-1].value if call.args else None
    return is_setattr and isinstance(last, cst.Name) and last.value == "None"


MUTATIONS = (
    Mutation(
        id="stale-kv-served",
        family="lifecycle",
        fault="K and V of one input are handed to another.",
        imitates="Cross-attention whose K and V silently come from the query's input (the tracker of the reviews).",
        seen_by="k_proj and v_proj called with another tensor; with the same one changed in place",
        find=stale,
        absent="no later entry compares its input with an earlier one",
        kinds=KINDS,
        examples=(
            Example(
                "handed",
                """
                source, version, out = self.held.pop(key)
                if source is inp and version == inp._version:
                    return out
                out = None
                """,
                """
                source, version, out = self.held.pop(key)
                if True and version == inp._version:
                    return out
                out = None
                """,
                kernel="qkv",
            ),
            Example(
                "handed",
                """
                source, version, out = self.held.pop(key)
                if source is inp and version == inp._version:
                    return out
                out = None
                """,
                """
                source, version, out = self.held.pop(key)
                if source is inp and True:
                    return out
                out = None
                """,
                kernel="qkv",
            ),
            Example("handed", "out = self.held.pop(key, None)", None, kernel="qkv"),
        ),
    ),
    Mutation(
        id="kv-kept-after-use",
        family="lifecycle",
        fault="K and V stay with the module after they were handed over.",
        imitates="A cache bounded in the design and not in the code: a graph kept alive between steps.",
        seen_by="no tensor reachable from the module after the call; a second call is not served",
        find=kept,
        absent="no later entry takes anything out of a store",
        kinds=KINDS,
        examples=(
            Example(
                "handed",
                "source, version, out = self.held.pop(key)",
                "source, version, out = self.held.get(key)",
                kernel="qkv",
            ),
            Example("handed", "source, version, out = self.held[key]", None, kernel="qkv"),
        ),
    ),
)
