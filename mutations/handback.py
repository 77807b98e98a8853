"""The entry's own way of handing a call back to PEFT, found by data flow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst
from fastlora_verify.mutations.kernel_view import KernelView, Place, owner_and_input, statements
from fastlora_verify.mutations.names import assigned_names, bound_at_top, parameter_names, read_names


@lru_cache(maxsize=64)
def handbacks(entry: Place) -> tuple[cst.Call, ...]:
    """The calls that an entry returns and that give its own input on to something captured, best first.

    Best is a call that passes every argument on and needs only names that are bound when the entry starts.
    """
    _, x = owner_and_input(entry.node)
    if x is None:
        return ()
    found = [c for c in _returned_calls(entry.node) if _gives_on(c, x.name.value) and _is_captured(entry, c)]
    return tuple(sorted(found, key=lambda c: (_said_at_top(entry, c) is None, -len(c.args))))


def handback_at_top(entry: Place) -> str | None:
    """Text of a hand-back that can stand as the first statement of the entry."""
    for call in handbacks(entry):
        text = _said_at_top(entry, call)
        if text is not None:
            return text
    return None


def _said_at_top(entry: Place, call: cst.Call) -> str | None:
    """The call's text with a local that was read off something bound replaced by what was read."""
    code = entry.module.code
    missing = [n for n in read_names(call) if not bound_at_top(entry.module, entry.scope, n)]
    if not missing:
        return code(call)
    if isinstance(call.func, cst.Name) and missing == [call.func.value]:
        source = _assigned(entry, call.func.value)
        if source is not None and all(bound_at_top(entry.module, entry.scope, n) for n in read_names(source)):
            return code(source) + code(call)[len(code(call.func)) :]
    return None


def _assigned(entry: Place, name: str) -> cst.BaseExpression | None:
    """What the entry assigns to a local, if it does so once and plainly."""
    found = [
        small.value
        for statement in statements(entry.node.body.body)  # type: ignore[arg-type]
        if isinstance(statement, cst.SimpleStatementLine)
        for small in statement.body
        if isinstance(small, cst.Assign)
        and name in {t.target.value for t in small.targets if isinstance(t.target, cst.Name)}
    ]
    return found[0] if len(found) == 1 else None


def _returned_calls(function: cst.FunctionDef) -> Iterator[cst.Call]:
    for statement in statements(function.body.body):  # type: ignore[arg-type]
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for small in statement.body:
            if isinstance(small, cst.Return) and isinstance(small.value, cst.Call):
                yield small.value


def _gives_on(call: cst.Call, x: str) -> bool:
    return any(isinstance(a.value, cst.Name) and a.value.value == x and not a.star for a in call.args)


def _is_captured(entry: Place, call: cst.Call) -> bool:
    """Whether what is called comes from outside the entry or from the patched module, not from its own results."""
    names = read_names(call.func)
    if not names:
        return False
    own = parameter_names(entry.node)
    owner, x = owner_and_input(entry.node)
    if x is not None and x.name.value in names:
        return False
    local = assigned_names(entry.node.body)
    return all(n in own or n not in local for n in names) or _from_owner(entry, call, owner)


def _from_owner(entry: Place, call: cst.Call, owner: cst.Param | None) -> bool:
    """A local that was read off the patched module (`original = self._original`)."""
    if owner is None or not isinstance(call.func, cst.Name):
        return False
    source = _assigned(entry, call.func.value)
    return source is not None and owner.name.value in read_names(source)


def can_hand_back(view: KernelView) -> bool:
    return any(handbacks(entry) for entry in view.entries)
