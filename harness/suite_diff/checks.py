"""What a test asserts and where it skips: its own statements, its fixtures', and those of the helpers that it calls.

A helper of the tree is followed at each call, with the arguments in its parameters' place: an assertion that moves
into a helper stays the assertion that it was. Each is told with the conditions under which it is reached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fastlora_verify.harness.suite_diff.assertions import forms, is_assertion, is_failing, is_raising, negated
from fastlora_verify.harness.suite_diff.fixtures import fixtures_of, is_fixture, parametrised
from fastlora_verify.harness.suite_diff.frame import DEEPEST, Frame, called
from fastlora_verify.harness.suite_diff.numbers import is_bound
from fastlora_verify.harness.suite_diff.sources import FUNCTIONS, Module, Place, Sources
from fastlora_verify.harness.suite_diff.tables import literal
from fastlora_verify.harness.suite_diff.values import enter, resolve, with_locals

_SKIPS = {"skip", "xfail", "importorskip", "skipTest"}
_SWALLOWING = {"", "AssertionError", "Exception", "BaseException"}


@dataclass(frozen=True)
class Via:
    """A helper, as it was called."""

    place: Place
    call: ast.Call

    @cached_property
    def source(self) -> str:
        """All of the helper."""
        return ast.dump(self.place.node)


@dataclass(frozen=True)
class Check:
    """One assertion, in its form."""

    expr: ast.expr
    file: str
    line: int
    shown: str  # as it is written, on one line
    guards: tuple[str, ...] = ()  # conditions under which it is reached
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of literal loops around it, by their names
    is_part: bool = False  # of several that one statement makes
    written: tuple[ast.expr, Frame, int] | None = None  # what it was made of: expression, place, which of its forms

    via: Via | None = None  # the helper that it stands in; None: the test itself, or a fixture

    @cached_property
    def written_out(self) -> str:
        """Its form with the names that are assigned once written out."""
        return ast.unparse(self._form(written_out=True))

    @cached_property
    def plain(self) -> ast.expr:
        """Its form with the names that it is written with, but for those of bounds."""
        return self._form(written_out=False)

    def _form(self, *, written_out: bool) -> ast.expr:
        if self.written is None:
            return self.expr
        node, frame, index = self.written
        made = list(forms(resolve(node, frame.written_out if written_out else frame.plain)))
        return made[min(index, len(made) - 1)]


@dataclass(frozen=True)
class Skip:
    """A call that skips the test or expects it to fail."""

    text: str
    file: str
    line: int
    guards: tuple[str, ...] = ()


@dataclass
class Body:
    """All of a test that is compared."""

    place: Place
    checks: list[Check] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    locals: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # by function; the test's own is ("", "")

    def note(self, place: Place, frame: Frame) -> None:
        """Remembers the names that a function binds, those of its comprehensions too."""
        own = ("", "") if place.key == self.place.key else place.key
        inner = {n.id for n in ast.walk(place.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.locals.setdefault(own, set()).update(frame.hidden, inner)


@dataclass(frozen=True)
class _Here:
    """Where the walk is."""

    frame: Frame
    guards: tuple[str, ...] = ()
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    via: Via | None = None


def read_test(sources: Sources, place: Place, owner: tuple[Module, str] | None) -> Body:
    """What the test at `place` asserts; `owner` is the class that it is collected in."""
    body = Body(place)
    for fixture in fixtures_of(sources, place, owner):
        _function(body, fixture, Frame(sources, fixture.module, owner))
    names = parametrised(place, sources, owner)
    _function(body, place, Frame(sources, place.module, owner, names))
    return body


def module_body(sources: Sources, module: Module) -> Body:
    """What a whole file asserts, and where it skips, while it is imported."""
    body = Body(Place(module, "", ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), [], [])))
    rest = [s for s in module.tree.body if not isinstance(s, (*FUNCTIONS, ast.ClassDef))]
    _block(body, rest, _Here(Frame(sources, module)))
    return body


def _function(body: Body, place: Place, frame: Frame) -> None:
    if place.key in frame.stack or len(frame.stack) >= DEEPEST:
        return
    frame = with_locals(place.node, replace(frame, stack=(*frame.stack, place.key)))
    body.note(place, frame)
    _block(body, place.node.body, _Here(frame))


def _block(body: Body, statements: Sequence[ast.stmt], here: _Here) -> None:
    names = {
        n.func.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    for statement in statements:
        if isinstance(statement, FUNCTIONS):
            if statement.name not in names:  # a callback: it runs, nobody knows with what
                scope = f"{here.frame.stack[-1][1]}.{statement.name}" if here.frame.stack else statement.name
                inside = _Here(replace(here.frame, stack=(*here.frame.stack, (here.frame.module.path, scope))))
                inside = replace(inside, frame=with_locals(statement, inside.frame), guards=here.guards)
                _block(body, statement.body, inside)
            continue
        _statement(body, statement, here)
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return  # nothing behind it runs
        here = replace(here, guards=(*here.guards, *_left_out(statement, here.frame)))


def _statement(body: Body, statement: ast.stmt, here: _Here) -> None:
    if isinstance(statement, ast.Assert):
        _calls(body, statement.test, here)
        _add(body, statement.test, statement, here)
    elif is_failing(statement):
        _add(body, ast.copy_location(ast.Constant(False), statement), statement, here)
    elif isinstance(statement, ast.If):
        _if(body, statement, here)
    elif isinstance(statement, ast.While):
        _calls(body, statement.test, here)
        _block(body, statement.body, replace(here, guards=(*here.guards, _said(statement.test, here.frame))))
    elif isinstance(statement, ast.For | ast.AsyncFor):
        _calls(body, statement.iter, here)
        _block(body, statement.body, replace(here, rows={**here.rows, **_rows(statement, here.frame)}))
        _block(body, statement.orelse, here)
    elif isinstance(statement, ast.With | ast.AsyncWith):
        _with(body, statement, here)
    elif isinstance(statement, ast.Try | ast.TryStar):
        _try(body, statement, here)
    elif isinstance(statement, ast.Match):
        _calls(body, statement.subject, here)
        for case in statement.cases:
            _block(body, case.body, replace(here, guards=(*here.guards, f"case {ast.unparse(case.pattern)}")))
    elif not isinstance(statement, ast.ClassDef):
        _calls(body, statement, here)


def _if(body: Body, statement: ast.If, here: _Here) -> None:
    _calls(body, statement.test, here)
    if statement.body and is_failing(statement.body[0]):
        _add(body, negated(statement.test), statement.body[0], here, statement)
    else:
        _block(body, statement.body, replace(here, guards=(*here.guards, _said(statement.test, here.frame))))
    otherwise = _said(negated(statement.test), here.frame)
    _block(body, statement.orelse, replace(here, guards=(*here.guards, otherwise)))


def _with(body: Body, statement: ast.With | ast.AsyncWith, here: _Here) -> None:
    for item in statement.items:
        call = item.context_expr
        _calls(body, call, here)
        if _suppresses(call):
            here = replace(here, guards=(*here.guards, ast.unparse(call)))
    _block(body, statement.body, here)


def _suppresses(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "suppress":
        return False
    return any(ast.unparse(kind) in _SWALLOWING for kind in node.args)


def _try(body: Body, statement: ast.Try | ast.TryStar, here: _Here) -> None:
    swallowed = [handler for handler in statement.handlers if _swallows(handler)]
    guards = tuple(f"no {ast.unparse(h.type) if h.type else 'exception'} is caught" for h in swallowed)
    _block(body, statement.body, replace(here, guards=(*here.guards, *guards)))
    for handler in statement.handlers:
        kind = ast.unparse(handler.type) if handler.type else "exception"
        _block(body, handler.body, replace(here, guards=(*here.guards, f"{kind} is caught")))
    _block(body, statement.orelse, here)
    _block(body, statement.finalbody, here)


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a failing assertion ends there."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind) if kind is not None else "" for kind in kinds}
    again = any(
        isinstance(node, ast.Raise) or (isinstance(node, ast.stmt) and is_failing(node)) for node in ast.walk(handler)
    )
    return bool(names & _SWALLOWING) and not again


def _left_out(statement: ast.stmt, frame: Frame) -> tuple[str, ...]:
    """The condition under which what follows `if C: return` is reached; a skip is told for itself."""
    if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break):
        return (_said(negated(statement.test), frame),)
    return ()


def _calls(body: Body, node: ast.AST, here: _Here) -> None:
    """Assertions, skips and helpers among the calls of a statement or expression."""
    for call in _walk(node):
        name = ast.unparse(call.func)
        last = name.rpartition(".")[2]
        place = called(call, here.frame)
        if last in _SKIPS and (name.startswith(("pytest.", "self.", "unittest.")) or name == last) and place is None:
            body.skips.append(_skip(call, here))
        elif place is not None:
            _helper(body, call, place, here)
        elif is_raising(call) or is_assertion(call):
            _add(body, call, call, here)


def _walk(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _helper(body: Body, call: ast.Call, place: Place, here: _Here) -> None:
    if place.key in here.frame.stack or len(here.frame.stack) >= DEEPEST or is_fixture(place.node):
        return
    given, wide = (_given(call, frame) for frame in (here.frame, here.frame.written_out))
    frame = enter(given, place, here.frame, written_out=wide)
    body.note(place, frame)
    _block(body, place.node.body, _Here(frame, here.guards, here.rows, Via(place, call)))


def _given(call: ast.Call, frame: Frame) -> ast.Call:
    """The call with its arguments resolved."""
    values = [value if isinstance(value, ast.Starred) else resolve(value, frame) for value in call.args]
    return ast.Call(call.func, values, [ast.keyword(word.arg, resolve(word.value, frame)) for word in call.keywords])


def _add(body: Body, node: ast.expr, at: ast.AST, here: _Here, shown: ast.AST | None = None) -> None:
    made = list(forms(resolve(node, here.frame)))
    path, line, text = here.frame.module.path, getattr(at, "lineno", 0), _line(shown or at)
    for index, form in enumerate(made):
        written = (node, here.frame, index)
        body.checks.append(Check(form, path, line, text, here.guards, here.rows, len(made) > 1, written, here.via))


def _skip(call: ast.Call, here: _Here) -> Skip:
    return Skip(_line(call), here.frame.module.path, call.lineno, here.guards)


def _line(node: ast.AST) -> str:
    if isinstance(node, ast.Assert):
        node = ast.Assert(node.test)  # its message says nothing of what it accepts
    return " ".join(ast.unparse(node).split())


def _said(test: ast.expr, frame: Frame) -> str:
    return ast.unparse(resolve(test, frame))


def _rows(statement: ast.For | ast.AsyncFor, frame: Frame) -> dict[str, tuple[str, ...]]:
    cells = literal(statement.iter, frame)
    return {ast.unparse(statement.target): tuple(map(_case, cells))} if cells else {}


def _case(row: ast.expr) -> str:
    """What a row is about: its cells but for the numbers, which may be bounds."""
    if isinstance(row, ast.Tuple | ast.List):
        cells = [cell for cell in row.elts if not is_bound(cell)]
        return ", ".join(map(ast.unparse, cells or row.elts))
    return ast.unparse(row)
