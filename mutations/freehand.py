"""Edits that a person writes: code put at the top of a function, text replaced in a scope."""

from __future__ import annotations

import ast
import dataclasses
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst

from fastlora_verify.mutations.base import KernelRoles, Mutant
from fastlora_verify.mutations.build import digest
from fastlora_verify.mutations.edited import BadEditError, Label, build_edit
from fastlora_verify.mutations.places import FileEdit, Span
from fastlora_verify.mutations.reads import binding
from fastlora_verify.mutations.source import Edit, ParsedModule

INDENT = "    "


@dataclass(frozen=True)
class Place:
    """A scope of a target's module; no definition: the module itself."""

    module: ParsedModule
    scope: str  # dotted, inside the module
    node: cst.FunctionDef | cst.ClassDef | None


def lines_called(module: ParsedModule, scope: str) -> list[int]:
    """The lines of every function and class of one dotted name, `@overload`s left out."""
    found: list[int] = []
    stack: list[tuple[str, ast.AST]] = [("", module.python)]
    while stack:
        prefix, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{prefix}.{child.name}" if prefix else child.name
                if inner == scope and not any("overload" in ast.unparse(d) for d in child.decorator_list):
                    found.append(child.lineno)
            stack.append((inner, child))
    return sorted(found)


def insert(code: str, place: Place, kernels: Sequence[KernelRoles]) -> Mutant:
    """`code` at the top of a function, behind its docstring. Raises `BadEditError`."""
    tree = _parsed(code)
    if not isinstance(place.node, cst.FunctionDef):
        what = "a class" if place.node is not None else "a module"
        raise BadEditError(f"code is put at the top of a function, and {place.scope or place.module.name} is {what}")
    label = Label("insert", digest(code), _flat(code), place.scope)
    return _built(
        label, place, lambda imports: [_at_top(place, [*imports, *_lines(code)], tree, len(imports))], kernels
    )


def replace(old: str, new: str, place: Place, kernels: Sequence[KernelRoles]) -> Mutant:
    """`new` in place of the one `old` in a scope. Raises `BadEditError`, which says how often and where it is there."""
    module = place.module
    start, end = _whole(module, place.node)
    old, new = (re.sub(r"\r\n|\r|\n", module.newline, text) for text in (old, new))
    where = f"{module.name}:{place.scope}" if place.scope else module.name
    found = _occurrences(module.text_between(start, end), old)
    if len(found) != 1:
        lines = ", ".join(str(module.line_at(start + at)) for at in found)
        times = f"{len(found)} times in {where} (lines {lines})" if found else f"nowhere in {where}"
        raise BadEditError(f"the text {_flat(old)!r} stands {times}; it must stand there exactly once")
    at = start + found[0]
    edit = Edit(at, at + len(old.encode()), new)
    label = Label("replace", digest(f"{old} -> {new}"), f"{_flat(old)} -> {_flat(new) or '(nothing)'}", None)
    return _built(label, place, lambda imports: [edit, *_imports_for(place, imports, at)], kernels)


def _whole(module: ParsedModule, node: cst.FunctionDef | cst.ClassDef | None) -> tuple[int, int]:
    """The bytes of a scope's lines, decorators included."""
    if node is None:
        return 0, len(module.file.text.encode())
    start = module.span(node.decorators[0] if node.decorators else node)[0]
    return module.line_starts[module.line_at(start) - 1], module.span(node)[1]


def _occurrences(text: str, part: str) -> list[int]:
    """Byte offsets of a text in another, overlapping ones too."""
    if not part:
        return []
    return [len(text[: m.start()].encode()) for m in re.finditer(f"(?={re.escape(part)})", text)]


def _built(
    label: Label, place: Place, edits_with: Callable[[list[str]], list[Edit]], kernels: Sequence[KernelRoles]
) -> Mutant:
    """The mutant; where it says names that only lack an import, with that import in the same function."""
    imports: list[str] = []
    while True:
        try:
            mutant = build_edit(label, [_file_edit(place.module, edits_with(imports))], kernels)
            break
        except BadEditError as error:
            more = _imports_of(place, error)
            if not more or set(more) <= set(imports):
                raise
            imports += [line for line in more if line not in imports]
    if not imports:
        return mutant
    return dataclasses.replace(mutant, gist=f"{mutant.gist}  # with {'; '.join(imports)}")


def _imports_of(place: Place, error: BadEditError) -> list[str]:
    """The imports that would bind every name that is missing; none if one can't be bound."""
    text = place.module.file.text
    found = [
        binding(text, name.name, has_attribute=name.has_attribute) if name.said and name.where else None
        for name in error.unbound
    ]
    return [line for line in found if line is not None] if all(found) else []


def _file_edit(module: ParsedModule, edits: Sequence[Edit]) -> FileEdit:
    after, _ = module.apply(edits)
    spans = []
    grown = 0
    for edit in sorted(edits, key=lambda e: e.start):
        start = edit.start + grown
        length = len(edit.text.encode())
        fires = start + edit.fires if edit.fires else None
        spans.append(Span((edit.start, edit.end), (start, start + length), fires, silent=edit.fires is None))
        grown += length - (edit.end - edit.start)
    return FileEdit(module.name, module.file.path, module.file.text, after, tuple(spans))


# -- the top of a function --------------------------------------------------------------------------------


def _parsed(code: str) -> ast.Module:
    try:
        tree = ast.parse("\n".join(_lines(code)))
    except (SyntaxError, ValueError) as error:
        raise BadEditError(f"{_flat(code)!r} is not Python: {getattr(error, 'msg', error)}") from error
    if not tree.body:
        raise BadEditError(f"{_flat(code)!r} holds no statement")
    return tree


def _lines(code: str) -> list[str]:
    return textwrap.dedent(re.sub(r"\r\n|\r", "\n", code)).strip("\n").split("\n")


def _at_top(place: Place, lines: Sequence[str], tree: ast.Module, skipped: int) -> Edit:
    """`lines`, of which the first `skipped` trigger nothing, in front of the function's first own statement."""
    module, node = place.module, place.node
    assert isinstance(node, cst.FunctionDef)
    whole = ast.parse("\n".join(lines))
    inside = {n for s in ast.walk(whole) if _is_text(s) for n in range(s.lineno + 1, s.end_lineno + 1)}  # type: ignore[attr-defined]
    at, pad, before, after = _top(module, node)
    text = before
    offsets = []
    for number, line in enumerate(lines, 1):
        own = "" if number in inside or not line else pad
        offsets.append(len(text.encode()) + len(own.encode()))
        text += f"{own}{line}" + (module.newline if number < len(lines) else "")
    statement = _guarded(tree.body)
    fires = offsets[statement.lineno - 1 + skipped] + statement.col_offset
    return Edit(at, at, text + after, fires)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _guarded(body: Sequence[ast.stmt]) -> ast.stmt:
    """What runs when the inserted code does what it is there for: the body of its last condition, else its start."""
    chosen = body[-1] if isinstance(body[-1], ast.If) else body[0]
    while isinstance(chosen, ast.If | ast.For | ast.While) and not chosen.orelse:
        chosen = chosen.body[0]
    return chosen


def _top(module: ParsedModule, node: cst.FunctionDef) -> tuple[int, str, str, str]:
    """(byte, indentation, what comes before the code, what comes behind it) for code at the top of a function."""
    newline = module.newline
    if not isinstance(node.body, cst.IndentedBlock):  # def f(x): return x
        pad = module.indent(node) + INDENT
        first = node.body.body[0]
        return module.span(first)[0], pad, newline, f"{newline}{pad}"
    statements = list(node.body.body)
    own = next((s for i, s in enumerate(statements) if not _stays_first(s, is_first=i == 0)), None)
    pad = module.indent(statements[0])
    if own is not None:
        decorators = getattr(own, "decorators", ())
        start, _ = module.span(decorators[0] if decorators else own)
        return start - len(pad.encode()), pad, "", newline
    end = module.line_at(max(module.span(statements[-1])[1] - 1, 0))
    if end < len(module.line_starts):
        return module.line_starts[end], pad, "", newline
    size = len(module.file.text.encode())
    return size, pad, newline, newline


def _stays_first(statement: cst.BaseStatement, *, is_first: bool) -> bool:
    """A docstring, and declarations, which must come before any use of their names."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    if is_first and isinstance(small, cst.Expr) and len(statement.body) == 1:
        return isinstance(small.value, cst.SimpleString | cst.ConcatenatedString)
    return all(isinstance(s, cst.Global | cst.Nonlocal) for s in statement.body)


def _imports_for(place: Place, imports: Sequence[str], at: int) -> list[Edit]:
    """The imports at the top of the innermost function around a byte."""
    if not imports:
        return []
    module = place.module
    around = [
        (scope, node)
        for scope, node in module.scopes.items()
        if isinstance(node, cst.FunctionDef) and _body_holds(module, node, at)
    ]
    if not around:
        return []
    scope, node = max(around, key=lambda found: module.span(found[1])[0])
    edit = _at_top(Place(module, scope, node), imports, ast.parse("\n".join(imports)), 0)
    return [Edit(edit.start, edit.end, edit.text, None)]


def _body_holds(module: ParsedModule, node: cst.FunctionDef, at: int) -> bool:
    start, end = module.span(node.body)
    return start <= at < end


def _flat(code: str) -> str:
    """Code on one line."""
    return re.sub(r"\s*\n\s*", " ", code.strip())
