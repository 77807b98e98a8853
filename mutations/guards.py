"""Guards broken: skipped, a disjunct dropped, failing open, a count weakened, a positive guard always true.

A guard decides that PEFT must run. With one gone, the kernel computes something that it doesn't model: an adapter
that is disabled, dropout, DoRA, an 8-bit weight read as a matrix. Each is one edit of one guard, named after what the
guard reads. In the reviews most guards could be deleted while B was zero, and some masked each other. Left out: a
guard that refuses too much, which the delegation family has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst
import libcst.matchers as m

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.exits import Exit, exits, gives_reasons, is_predicate, never, returned
from fastlora_verify.mutations.guards_examples import EXAMPLES
from fastlora_verify.mutations.kernel_view import KernelView, Place
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.statements import leaves
from fastlora_verify.mutations.terms import one_line
from fastlora_verify.mutations.tree import small_statements, statements


def _site(place: Place, what: str, node: cst.CSTNode, text: str, gist: str) -> Site:
    return Site(place.module, place.scope, what, node, (place.module.replace(node, text),), gist)


def skipped(view: KernelView) -> Iterator[Site]:
    for found in exits(view):
        test = found.node.test
        gist = f"`if {one_line(found.place.module.code(test), 100)}` never holds"
        yield _site(found.place, found.subject, test, never(found), gist)


def disjunct_dropped(view: KernelView) -> Iterator[Site]:
    for found in exits(view):
        test = found.node.test
        parts = _disjuncts(test)
        if len(parts) < 2:
            continue
        code = found.place.module.code
        for part in parts:
            rest = " or ".join(_operand(code(p), p) for p in parts if p is not part)
            gist = f"`if {one_line(code(test), 80)}` without `{one_line(code(part), 60)}`"
            yield _site(found.place, _word(code(part)), test, rest, gist)


def _disjuncts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
        return [*_disjuncts(node.left), *_disjuncts(node.right)]
    return [node]


def _operand(text: str, node: cst.BaseExpression) -> str:
    needs = isinstance(node, cst.BooleanOperation | cst.IfExp | cst.Lambda) and not node.lpar
    return f"({text})" if needs else text


def _word(text: str) -> str:
    return one_line(text, 40)


def fails_open(view: KernelView) -> Iterator[Site]:
    """A refusing answer becomes an accepting one."""
    for place in view.guards:
        refusal = refusing_answer(view, place) if is_predicate(place) else ""
        for small in small_statements(place.node):
            value = small.value if isinstance(small, cst.Return) else None
            text = _accepting(place, value, refusal)
            if value is not None and text is not None:
                code = place.module.code(value)
                yield _site(
                    place,
                    _answer(value),
                    value,
                    text,
                    f"`return {one_line(code, 80)}` becomes `return {text}`",
                )


def _accepting(place: Place, value: cst.BaseExpression | None, refusal: str) -> str | None:
    if value is None:
        return None
    if refusal:
        return OPPOSITE[refusal] if isinstance(value, cst.Name) and value.value == refusal else None
    is_text = m.matches(value, m.SimpleString() | m.FormattedString() | m.ConcatenatedString())
    return "None" if gives_reasons(place) and is_text else None


OPPOSITE = {"True": "False", "False": "True"}


def refusing_answer(view: KernelView, place: Place) -> str:
    """Which answer of a predicate makes PEFT run: as its callers take it, or else as it ends."""
    for found in exits(view):
        for call in _calls_of(place, found.node.test):
            nots = sum(_is_not(a) for a in (call, *found.place.module.ancestors(call)) if _within(found, a))
            return "False" if nots % 2 else "True"
    takes = view.patcher is not None and any(_calls_of(place, test) for test in _conditions(view.patcher.node))
    constants = [v.value for v in returned(place) if isinstance(v, cst.Name) and v.value in OPPOSITE]
    if takes or len(set(constants)) == 1:
        return "False" if takes else constants[0]
    return OPPOSITE[constants[-1]]


def _conditions(function: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
    for node in m.findall(function, m.CompIf() | m.If()):
        if isinstance(node, cst.CompIf | cst.If):
            yield node.test


def _calls_of(place: Place, test: cst.CSTNode) -> list[cst.CSTNode]:
    name = m.Name(place.node.name.value)
    return list(m.findall(test, m.Call(func=name | m.Attribute(attr=name))))


def _is_not(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)


def _within(found: Exit, node: cst.CSTNode) -> bool:
    test = found.node.test
    return node is test or any(a is test for a in found.place.module.ancestors(node))


def _answer(value: cst.BaseExpression) -> str:
    if isinstance(value, cst.SimpleString):
        return str(value.evaluated_value)
    if isinstance(value, cst.FormattedString):
        return "".join(p.value if isinstance(p, cst.FormattedStringText) else "…" for p in value.parts)
    return "" if isinstance(value, cst.Name) else "text"


def count_weakened(view: KernelView) -> Iterator[Site]:
    """`len(…) != 1` to `< 1`: none is refused, several are not; `> 1` to `> 2`."""
    for found in exits(view):
        for comparison in m.findall(found.node.test, m.Comparison()):
            weaker = _weaker(found, comparison)  # type: ignore[arg-type]
            if weaker is not None:
                code = found.place.module.code(comparison)
                yield _site(found.place, found.subject, comparison, weaker, f"`{one_line(code)}` becomes `{weaker}`")


def _weaker(found: Exit, comparison: cst.Comparison) -> str | None:
    if len(comparison.comparisons) != 1:
        return None
    target = comparison.comparisons[0]
    is_count = m.matches(comparison.left, m.Call(func=m.Name("len")))
    if not is_count or not isinstance(target.comparator, cst.Integer):
        return None
    left, number = found.place.module.code(comparison.left), target.comparator.evaluated_value
    if isinstance(target.operator, cst.NotEqual):
        return f"{left} < {number}"
    if isinstance(target.operator, cst.GreaterThan):
        return f"{left} > {number + 1}"
    return None


CHECK = m.Call(func=m.Name("isinstance") | m.Name("hasattr") | m.Name("issubclass")) | m.Comparison()


def positive_always_true(view: KernelView) -> Iterator[Site]:
    """`if isinstance(…): targets.append(…)`, and the same as the condition of a comprehension."""
    for place in (*([view.patcher] if view.patcher is not None else []), *view.guards):
        for node in statements(place.node):
            if (
                isinstance(node, cst.If)
                and node.orelse is None
                and not leaves(node.body)
                and _in_loop(place.module, node)
            ) and m.findall(node.test, CHECK):
                yield _always(place, node.test)
        for clause in m.findall(place.node, m.CompIf()):
            assert isinstance(clause, cst.CompIf)
            if place is view.patcher and m.findall(clause.test, CHECK):
                yield _always(place, clause.test)


def _in_loop(module: ParsedModule, node: cst.CSTNode) -> bool:
    return any(isinstance(a, cst.For) for a in module.ancestors(node))


def _always(place: Place, test: cst.BaseExpression) -> Site:
    code = place.module.code(test)
    return _site(place, _word(code), test, "True", f"`if {one_line(code, 100)}` always holds")


def _guard(
    ident: str, fault: str, imitates: str, find: Callable[[KernelView], Iterator[Site]], absent: str
) -> Mutation:
    seen_by = "a test of the refusal whose numbers would move: B not zero, the guard's own reason asserted"
    return Mutation(ident, "guards", fault, imitates, seen_by, find, absent, examples=EXAMPLES[ident])


MUTATIONS = (
    _guard("guard-skipped", "A case that PEFT must run is taken by the kernel.",
           "Both reviews: each guard removed once, with the test that goes red named.", skipped,
           "no early exit in entries, guards or patcher"),
    _guard("guard-disjunct-dropped", "One of several reasons for handing back is forgotten.",
           "A guard list copied between modules, one item short.", disjunct_dropped, "no guard joins reasons by `or`"),
    _guard("guard-fails-open", "A guard that cannot tell says yes.",
           "The review of the SwiGLU kernel: a missing act_fn was taken for SiLU.", fails_open,
           "no guard answers yes, no, or with a reason"),
    _guard("guard-count-weakened", "A count that must be one may be more.",
           "The review of the SwiGLU kernel: `len(active) != 1`, unpinned on main too.", count_weakened,
           "no guard counts"),
    _guard("positive-guard-always-true", "Whatever passes is patched.",
           "8-bit layers patched by child names alone: NaN, and nothing raised.", positive_always_true,
           "no guard is written as a condition for taking something"),
)  # fmt: skip
