"""The entry's own way of handing a call back to PEFT, found by data flow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from fastlora_verify.mutations.kernel_view import KernelView, Place, owner_and_input
from fastlora_verify.mutations.names import assigned_names, bound_at_top, parameter_names, read_names
from fastlora_verify.mutations.tree import small_statements

NOT_PEFT = frozenset({"base_layer", "get_base_layer", "apply"})  # the frozen layer alone, the kernel itself


@lru_cache(maxsize=64)
def handbacks(view: KernelView, entry: Place) -> tuple[cst.Call, ...]:
    """The calls that an entry returns and that give its own input on to something captured, best first.

    Best is a call that passes every argument on and needs only names that are bound when the entry starts.
    """
    _, x = owner_and_input(entry.node)
    if x is None:
        return ()
    returned = [call for _, call in _returned_calls(entry.node)]
    found = [c for c in returned if _gives_on(c, x.name.value) and _is_captured(view, entry, c)]
    return tuple(sorted(found, key=lambda c: (_said_at_top(entry, c) is None, -len(c.args))))


def hands_back(view: KernelView, entry: Place, value: cst.BaseExpression | None) -> bool:
    """Whether what an entry returns (a call, or the name that holds its result) is PEFT's."""
    calls = {id(call) for call in handbacks(view, entry)}
    return any(returned is value and id(call) in calls for returned, call in _returned_calls(entry.node))


def handback_at_top(view: KernelView, entry: Place) -> str | None:
    """Text of a hand-back that can stand as the first statement of the entry."""
    texts = (_said_at_top(entry, call) for call in handbacks(view, entry))
    return next((text for text in texts if text is not None), None)


def _said_at_top(entry: Place, call: cst.Call) -> str | None:
    """The call's text with a local that was read off something bound replaced by what was read."""
    code = entry.module.code
    missing = [n for n in read_names(call) if not bound_at_top(entry.module, entry.scope, n)]
    if not missing:
        return code(call)
    if isinstance(call.func, cst.Name) and missing == [call.func.value]:
        source = assigned_once(entry, call.func.value)
        if source is not None and all(bound_at_top(entry.module, entry.scope, n) for n in read_names(source)):
            return code(source) + code(call)[len(code(call.func)) :]
    return None


def assigned_once(entry: Place, name: str) -> cst.BaseExpression | None:
    """What the entry assigns to a local, if it does so once and plainly."""
    found = [
        small.value
        for small in small_statements(entry.node)
        if isinstance(small, cst.Assign)
        and name in {t.target.value for t in small.targets if isinstance(t.target, cst.Name)}
    ]
    return found[0] if len(found) == 1 else None


def _returned_calls(function: cst.FunctionDef) -> Iterator[tuple[cst.BaseExpression, cst.Call]]:
    """(what a return returns, the call that made it): itself, a branch of it, or what its name was just given."""
    before: cst.BaseSmallStatement | None = None
    for small in small_statements(function):
        if isinstance(small, cst.Return) and small.value is not None:
            for branch in (*_branches(small.value), _just_given(before, small.value)):
                if isinstance(branch, cst.Call):
                    yield small.value, branch
        before = small


def _branches(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(value, cst.IfExp):
        yield from _branches(value.body)
        yield from _branches(value.orelse)
    else:
        yield value


def _just_given(before: cst.BaseSmallStatement | None, value: cst.BaseExpression) -> cst.BaseExpression | None:
    """`out = original(x)` in front of `return out`."""
    if isinstance(value, cst.Name) and isinstance(before, cst.Assign):
        target = before.targets[0].target
        if isinstance(target, cst.Name) and target.value == value.value:
            return before.value
    return None


def _gives_on(call: cst.Call, x: str) -> bool:
    return any(isinstance(a.value, cst.Name) and a.value.value == x and not a.star for a in call.args)


def _is_captured(view: KernelView, entry: Place, call: cst.Call) -> bool:
    """Whether what is called comes from outside the entry or from the patched module, not from its own results."""
    names, words = read_names(call.func), _words(call.func)
    owner, x = owner_and_input(entry.node)
    if not names or words & NOT_PEFT or (x is not None and x.name.value in names):
        return False
    own = _own_functions(view, entry, call)
    if any(scope in view.interpreter.led_to_kernel or not _asks_another(view, scope) for scope in own):
        return False
    local = assigned_names(entry.node.body) - parameter_names(entry.node)
    if names & local:
        source = assigned_once(entry, call.func.value) if isinstance(call.func, cst.Name) else None
        return source is not None and owner is not None and owner.name.value in read_names(source)
    return not names <= _imported(entry.module.tree) or bool(words & {"forward", "__call__"})


def _words(node: cst.BaseExpression) -> set[str]:
    found = {node.attr.value} if isinstance(node, cst.Attribute) else set()
    inner = node.value if isinstance(node, cst.Attribute) else node.func if isinstance(node, cst.Call) else None
    return found | _words(inner) if inner is not None else found


def _own_functions(view: KernelView, entry: Place, call: cst.Call) -> set[tuple[str, str]]:
    """The target's own functions that the call may be one of."""
    return view.interpreter.called[f"entry {entry.scope}", call]


def _asks_another(view: KernelView, scope: tuple[str, str]) -> bool:
    """Whether a function of the target's own returns what something else gives for one of its arguments."""
    node = view.source.modules[scope[0]].scopes[scope[1]]
    if not isinstance(node, cst.FunctionDef):
        return False
    given = parameter_names(node)
    return any(_gives_on(call, name) for _, call in _returned_calls(node) for name in given)


@lru_cache(maxsize=64)
def _imported(tree: cst.Module) -> frozenset[str]:
    """Names that a module's own import statements bind."""
    found: set[str] = set()
    for line in tree.body:
        for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.Import | cst.ImportFrom):
                found |= assigned_names(cst.SimpleStatementLine([small]))
    return frozenset(found)
