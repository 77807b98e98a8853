"""The kernel silently doesn't run: an entry hands calls back to PEFT under a condition that nobody asked for.

Imitates the narrowings of both reviews: a kernel that never runs, or runs only for the layout that a test happens
to build, computes what PEFT computes, so agreement proves nothing. Left out: a condition that no caller can meet.

One factory makes the whole family: a condition that reads only the entry's own input and owner stands at the top of
the entry; one that reads a projection's state stands in front of `Function.apply`, in the terms of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.delegation_examples import EXAMPLES
from fastlora_verify.mutations.handback import handback_at_top, handbacks
from fastlora_verify.mutations.kernel_view import Place, owner_and_input
from fastlora_verify.mutations.names import bound_at_top
from fastlora_verify.mutations.visible import sayable

if TYPE_CHECKING:
    from fastlora_verify.mutations.kernel_view import KernelView

ABSENT = "the entry has no way of handing a call back to PEFT"
UNSAID = ABSENT + ", or doesn't give the Function what the condition is about"
SEEN_BY = "the node assertion; the oracle node-taken"


def first_statement(function: cst.FunctionDef) -> cst.BaseStatement | None:
    body = list(function.body.body)
    if body and isinstance(body[0], cst.SimpleStatementLine) and len(body) > 1:
        small = body[0].body[0]
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString | cst.ConcatenatedString):
            body = body[1:]
    return body[0] if body and isinstance(body[0], cst.BaseStatement) else None


def torch_at(place: Place) -> str:
    """How to say `torch` there: a module that imports it inside its functions has no global of that name."""
    return "torch" if bound_at_top(place.module, place.scope, "torch") else '__import__("torch")'


def _insert(place: Place, statement: cst.BaseStatement, condition: str | None, back: str) -> Site:
    """`if CONDITION: return BACK` in front of a statement."""
    if condition is None:
        lines, fires, gist = [f"return {back}"], 0, f"return {back}"
    else:
        lines, fires, gist = [f"if {condition}:", f"    return {back}"], 1, f"if {condition}: return {back}"
    edit = place.module.insert_before(statement, lines, fires=fires)
    return Site(place.module, place.scope, "", statement, (edit,), gist)


def at_top(condition: Callable[[Place, str], str | None]) -> Callable[[KernelView], Iterator[Site]]:
    """Sites at the top of every entry; `condition(place, x)` is None for "always"."""

    def find(view: KernelView) -> Iterator[Site]:
        for entry in view.entries:
            _, x = owner_and_input(entry.node)
            back = handback_at_top(view, entry)
            first = first_statement(entry.node)
            if back is not None and x is not None and first is not None:
                yield _insert(entry, first, condition(entry, x.name.value), back)

    return find


def before_apply(
    condition: Callable[[KernelView, str], str | None],
) -> Callable[[KernelView], Iterator[Site]]:
    """One site in front of `Function.apply`; no site where the condition can't be said there."""

    def find(view: KernelView) -> Iterator[Site]:
        entry, statement = view.apply_entry, view.apply_statement
        if entry is None or statement is None:
            return
        _, x = owner_and_input(entry.node)
        text = condition(view, x.name.value) if x is not None else None
        backs = [c for c in handbacks(view, entry) if sayable(entry.module, c, statement)]
        back = entry.module.code(backs[0]) if backs else handback_at_top(view, entry)
        if text is not None and back is not None:
            yield _insert(entry, statement, text, back)

    return find


def texts(view: KernelView, kind: str) -> list[str]:
    """The arguments of `apply` that carry `kind`, as they are said in front of it; none where one is missing."""
    found = view.arguments(kind)
    return list(dict.fromkeys(text for _, text in found)) if {s for s, _ in found} >= set(view.siblings) else []


def every(view: KernelView, kind: str, template: str, word: str) -> str | None:
    """`template` said of every argument of `apply` that carries `kind`, joined by `word`."""
    found = texts(view, kind)
    if any(text.startswith("*") for text in found):
        test = template.format("part")
        return f"{'all' if word == 'and' else 'any'}({test} for part in ({', '.join(found)},))"
    return f" {word} ".join(template.format(text) for text in found) if found else None


def _adapters(view: KernelView) -> str | None:
    """A row of the adapters' A's that are there."""
    found = texts(view, "A")
    return f"[part for part in ({', '.join(found)},) if part is not None and part.numel()]" if found else None


def _unless_all_adapted(view: KernelView, x: str) -> str | None:
    if len(view.siblings) < 2 or not texts(view, "A"):
        return None
    return f"not all(part is not None and part.numel() for part in ({', '.join(texts(view, 'A'))},))"


def _on_unequal_ranks(view: KernelView, x: str) -> str | None:
    found = _adapters(view)
    return f"len({{len(part) for part in {found}}}) > 1" if len(view.siblings) > 1 and found else None


def _on_mixed_dtype(view: KernelView, x: str) -> str | None:
    found = _adapters(view)
    return f"any(part.dtype != {x}.dtype for part in {found})" if found else None


def _on_swapped_weight(view: KernelView, x: str) -> str | None:
    kind = f"{torch_at(view.apply_entry)}.nn.Parameter" if view.apply_entry is not None else ""
    return every(view, "W", f"not isinstance({{}}, {kind})", "or")


def _delegates(
    ident: str,
    fault: str,
    seen: str,
    find: Callable[[KernelView], Iterator[Site]],
    absent: str = ABSENT,
    needs: str = "cpu",
) -> Mutation:
    name = f"delegates-{ident}"
    return Mutation(name, "delegation", fault, seen, SEEN_BY, find, absent, needs=needs, examples=EXAMPLES[name])


REVIEWS = "both reviews: inserted at the top of the patched forward"
PIN = "the review of the kernel-taken pin"
MLP = "the review of the SwiGLU kernel"
ONE = "a kernel of one projection has no sibling; or " + UNSAID


def _dtype(name: str) -> Callable[[Place, str], str]:
    return lambda place, x: f"{x}.dtype == {torch_at(place)}.{name}"


MUTATIONS = (
    _delegates("always", "Every call is handed back to PEFT.", REVIEWS, at_top(lambda p, x: None)),
    _delegates("on-2d", "Calls with a 2-D input are handed back.", MLP, at_top(lambda p, x: f"{x}.dim() == 2")),
    _delegates("on-3d", "Calls with a 3-D input are handed back.", MLP, at_top(lambda p, x: f"{x}.dim() == 3")),
    _delegates("without-bias", "Calls on a base without bias are handed back.", REVIEWS,
               before_apply(lambda v, x: every(v, "bias", "{} is None", "and")),
               absent="the base's bias is no argument of the Function"),
    _delegates("with-bias", "Calls on a base with bias are handed back.", REVIEWS,
               before_apply(lambda v, x: every(v, "bias", "{} is not None", "or")),
               absent="the base's bias is no argument of the Function"),
    _delegates("unless-4-byte", "Only inputs of four bytes an element reach the kernel.", REVIEWS,
               at_top(lambda p, x: f"{x}.dtype.itemsize != 4")),
    _delegates("on-fp16", "fp16 inputs are handed back.", PIN, at_top(_dtype("float16"))),
    _delegates("on-bf16", "bf16 inputs are handed back.", PIN, at_top(_dtype("bfloat16"))),
    _delegates("on-mixed-dtype", "Adapters of another dtype than the input's are handed back.",
               PIN, before_apply(_on_mixed_dtype), absent=UNSAID),
    _delegates("on-quant-state", "4-bit bases are handed back.", REVIEWS,
               before_apply(lambda v, x: every(v, "W", "not {}.is_floating_point()", "or")), absent=UNSAID),
    _delegates("unless-all-adapted", "A block with an unadapted projection is handed back.", MLP,
               before_apply(_unless_all_adapted), absent=ONE),
    _delegates("on-unequal-ranks", "A block whose adapters differ in rank is handed back.", MLP,
               before_apply(_on_unequal_ranks), absent=ONE),
    _delegates("under-autocast", "Calls under autocast are handed back.", MLP,
               at_top(lambda p, x: f"{torch_at(p)}.is_autocast_enabled('cuda' if {x}.is_cuda else 'cpu')")),
    _delegates("on-frozen-input", "Inputs that need no gradient (a first layer's) are handed back.", REVIEWS,
               at_top(lambda p, x: f"not {x}.requires_grad")),
    _delegates("in-streamed-layer", "Layers whose weight was swapped in for the call are handed back.", MLP,
               before_apply(_on_swapped_weight), absent=UNSAID),
    _delegates("on-cuda", "Calls on a CUDA device are handed back.", REVIEWS,
               before_apply(lambda v, x: f"{x}.is_cuda"), needs="cuda"),
)  # fmt: skip
