"""The early exits of guards, entries and patchers: what decides whether PEFT must run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from fastlora_verify.mutations.handback import hands_back
from fastlora_verify.mutations.kernel_view import KernelView, Place
from fastlora_verify.mutations.names import parameter_names
from fastlora_verify.mutations.statements import leaves
from fastlora_verify.mutations.tree import children, small_statements, statements

TEXT = m.SimpleString() | m.FormattedString() | m.ConcatenatedString()
BOOLEAN = m.Name("True") | m.Name("False")


@dataclass(frozen=True)
class Exit:
    """`if TEST: …; return …` (or `continue`): a refusal."""

    place: Place
    node: cst.If
    last: cst.BaseSmallStatement  # the return or continue

    @property
    def subject(self) -> str:
        """What the test reads, for the mutant's name: attribute names and words first, local names else."""
        words: list[str] = []
        names: list[str] = []
        stack: list[cst.CSTNode] = [self.node.test]
        while stack:
            node = stack.pop(0)
            if isinstance(node, cst.Attribute):
                words.append(node.attr.value)
                stack.insert(0, node.value)
                continue
            if isinstance(node, cst.SimpleString):
                words.append(str(node.evaluated_value))
            elif isinstance(node, cst.Name):
                names.append(node.value)
            stack[:0] = list(children(node))
        return "+".join(dict.fromkeys(w for w in words or names if w.strip()))[:48]


def never(found: Exit) -> str:
    """The test that never holds; what it assigns on its way is still assigned."""
    assigns = m.findall(found.node.test, m.NamedExpr())
    return f"({found.place.module.code(found.node.test)}) and False" if assigns else "False"


def exits(view: KernelView) -> Iterator[Exit]:
    """Every refusal of the kernel's entries, guards and patcher."""
    for place in view.entries:
        returns = (e for e in _exits(place) if isinstance(e.last, cst.Return))
        yield from (e for e in returns if isinstance(e.last, cst.Return) and hands_back(view, place, e.last.value))
    for place in view.guards:
        yield from (e for e in _exits(place) if _refuses(place, e.last))
    if view.patcher is not None:
        yield from (
            e for e in _exits(view.patcher) if isinstance(e.last, cst.Continue) or _gives_up(view.patcher, e.last)
        )


def _exits(place: Place) -> Iterator[Exit]:
    for node in statements(place.node):
        if isinstance(node, cst.If) and leaves(node.body):
            line = node.body.body[-1]
            small = line.body[-1] if isinstance(line, cst.SimpleStatementLine) else line
            if isinstance(small, cst.BaseSmallStatement):
                yield Exit(place, node, small)


def returned(place: Place) -> list[cst.BaseExpression | None]:
    """What the returns of a function return."""
    return [small.value for small in small_statements(place.node) if isinstance(small, cst.Return)]


def gives_reasons(place: Place) -> bool:
    """Whether a guard answers with a text that says why, and None for "no objection"."""
    return any(v is not None and m.matches(v, TEXT) for v in returned(place))


def is_predicate(place: Place) -> bool:
    """Whether a guard answers yes or no."""
    values = returned(place)
    return bool(values) and any(v is not None and m.matches(v, BOOLEAN) for v in values)


def _answers(place: Place) -> bool:
    """`return isinstance(…)`, `return a or b`: an answer that is computed."""
    check = m.Call(func=m.Name("isinstance") | m.Name("any") | m.Name("all") | m.Name("hasattr"))
    yes_or_no = check | m.Comparison() | m.BooleanOperation() | m.UnaryOperation(operator=m.Not())
    values = returned(place)
    return bool(values) and all(v is not None and m.matches(v, yes_or_no) for v in values)


def is_guard(place: Place) -> bool:
    """Whether a function looks like one that decides: it answers yes or no, with a reason, or gives up early."""
    if is_predicate(place) or _answers(place) or gives_reasons(place) or _hands_on_reasons(place):
        return True
    values = returned(place)
    nones = [v for v in values if v is None or m.matches(v, m.Name("None"))]
    return bool(nones) and len(nones) < len(values) and any(_refuses(place, e.last) for e in _exits(place))


def _refuses(place: Place, last: cst.BaseSmallStatement) -> bool:
    if isinstance(last, cst.Continue):
        return True
    if not isinstance(last, cst.Return):
        return False
    is_none = last.value is None or m.matches(last.value, m.Name("None"))
    if is_predicate(place):
        return False
    if gives_reasons(place) or _hands_on_reasons(place):
        return not is_none
    return is_none


def _hands_on_reasons(place: Place) -> bool:
    """A guard that returns what another guard said: `reason = …; if reason is not None: return reason`."""
    names = {v.value for v in returned(place) if isinstance(v, cst.Name) and v.value not in {"None", "True", "False"}}
    tested = [e.node.test for e in _exits(place)]
    return any(isinstance(t, cst.Comparison) and isinstance(t.left, cst.Name) and t.left.value in names for t in tested)


def _gives_up(patcher: Place, last: cst.BaseSmallStatement) -> bool:
    """`return 0`, `return False`, `return` of a patcher, and `return model`: what it was given, as it was."""
    if not isinstance(last, cst.Return):
        return False
    nothing = m.Integer("0") | m.Name("False") | m.Name("None")
    if last.value is None or m.matches(last.value, nothing):
        return True
    return isinstance(last.value, cst.Name) and last.value.value in parameter_names(patcher.node)
