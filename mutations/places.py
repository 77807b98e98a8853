"""The places that an edit changes: which lines, in which function, and where running them shows that the change ran."""

from __future__ import annotations

import ast
import difflib
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastlora_verify.mutations.base import Probes
from fastlora_verify.mutations.build import covering, probes
from fastlora_verify.mutations.part import begin
from fastlora_verify.mutations.source import line_starts


@dataclass(frozen=True)
class Span:
    """A changed place, in bytes of the text before and of the text after."""

    old: tuple[int, int]
    new: tuple[int, int]
    fires: int | None = None  # the byte after the edit whose statement triggers; None: found by the text
    silent: bool = False  # no change that anybody asked for: an import that it needs


@dataclass(frozen=True)
class FileEdit:
    """One file, before and after."""

    module: str  # dotted, or what stands for it
    path: str
    before: str | None  # None: a new file
    after: str | None  # None: it is gone
    spans: tuple[Span, ...] = ()


def lines_of(text: str) -> list[str]:
    """The lines of a text as Python counts them, ends included."""
    data = text.encode()
    starts = [*line_starts(data), len(data)]
    return [data[a:b].decode() for a, b in itertools.pairwise(starts) if b > a]


def spans_of(before: str, after: str) -> tuple[Span, ...]:
    """The runs of lines that differ."""
    old, new = lines_of(before), lines_of(after)
    return tuple(
        Span((size(old[:a]), size(old[:b])), (size(new[:c]), size(new[:d])))
        for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    )


def size(lines: Iterable[str]) -> int:
    """Bytes of some lines."""
    return sum(len(line.encode()) for line in lines)


def scopes_of(edit: FileEdit) -> list[str]:
    """The innermost function or class around each place: of the new text, or of the old where text only goes."""
    found = []
    for span in edit.spans:
        text, (start, end) = (edit.after, span.new) if span.new[0] < span.new[1] else (edit.before, span.old)
        found.append(scope_at(text or "", start, end))
    return list(dict.fromkeys(found))


def common_scope(edit: FileEdit) -> str:
    """The function or class around all places."""
    parts = [scope.split(".") for scope in scopes_of(edit)]
    if not parts:
        return ""
    shared = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)


def scope_at(text: str, start: int, end: int) -> str:
    """The dotted name of the innermost function or class whose lines hold the bytes `start:end`."""
    data = text.encode()
    piece = data[start:end]
    start += len(piece) - len(piece.lstrip())
    starts = line_starts(data)
    first = line_at(starts, start)
    last = max(first, line_at(starts, start + len(piece.strip()) - 1)) if piece.strip() else first
    names = []
    body: list[ast.AST] = list(ast.parse(text).body)
    while body:
        node = body.pop()
        low, high = (begin(node), node.end_lineno or node.lineno) if isinstance(node, ast.stmt) else (0, last)
        if not (low <= first and last <= high):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        body = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return ".".join(names)


def line_at(starts: Sequence[int], offset: int) -> int:
    """The line, from 1, of a byte."""
    return bisect_right(starts, offset)


def first_line(edit: FileEdit) -> int:
    """The line, from 1, of the original text at which the edit begins."""
    if not edit.spans or edit.before is None:
        return 1
    return line_at(line_starts(edit.before.encode()), edit.spans[0].old[0])


# -- probes -----------------------------------------------------------------------------------------------


def probes_of(edit: FileEdit) -> Probes:
    """Where running the new text shows that each edited function was entered and that each change ran."""
    if edit.after is None:
        return Probes((), ())
    tree = ast.parse(edit.after)
    reached: dict[int, None] = {}
    triggered: dict[int, None] = {}
    for span in edit.spans:
        fires = span.fires if span.fires is not None else _fires(tree, edit, span)
        if fires is not None and not span.silent:
            found = probes(tree, edit.after, [fires])
            reached |= dict.fromkeys(found.reached)
            triggered |= dict.fromkeys(found.triggered)
    return Probes(tuple(reached), tuple(triggered))


def _fires(tree: ast.Module, edit: FileEdit, span: Span) -> int | None:
    """The byte at which the statement stands whose running means that the changed text ran."""
    after = (edit.after or "").encode()
    starts = line_starts(after)
    if not _says_something(after, span.new) and not _says_something((edit.before or "").encode(), span.old):
        return None  # comments
    if _says_something(after, span.new):
        statement = _trigger(tree, span.new, starts)
        if statement is not None:
            return _start(statement, starts)
        piece = after[slice(*span.new)]
        return int(span.new[0] + len(piece) - len(piece.lstrip()))
    return _beside(edit, span, after, starts, tree)


def _says_something(text: bytes, span: tuple[int, int]) -> bool:
    lines = text[slice(*span)].decode(errors="ignore").splitlines()
    return any(line.strip() and not line.strip().startswith("#") for line in lines)


def _trigger(tree: ast.Module, span: tuple[int, int], starts: Sequence[int]) -> ast.stmt | None:
    """Of the statements that begin in the new text the first, or the last if it is a condition; then what it guards."""
    inside = _outermost(tree, span, starts)
    if not inside:
        return None
    chosen = inside[-1] if isinstance(inside[-1], ast.If) else inside[0]
    while isinstance(chosen, ast.If | ast.For | ast.While) and not chosen.orelse:
        if not span[0] <= _start(chosen.body[0], starts) < span[1]:
            break
        chosen = chosen.body[0]
    return chosen


def _outermost(node: ast.AST, span: tuple[int, int], starts: Sequence[int]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and span[0] <= _start(child, starts) < span[1]:
            found.append(child)
        elif not isinstance(child, ast.expr):
            found += _outermost(child, span, starts)
    return found


def _start(statement: ast.stmt, starts: Sequence[int]) -> int:
    """The byte that a statement begins at, decorators left out."""
    return int(starts[statement.lineno - 1] + statement.col_offset)


def _beside(edit: FileEdit, span: Span, after: bytes, starts: Sequence[int], tree: ast.Module) -> int | None:
    """Where text only goes: the statement behind it, or before it where the next one is another function's."""
    scope = scope_at(edit.before or "", *span.old)
    here = line_at(starts, span.new[0])
    count = len(starts)
    for line in (*range(here, count + 1), *range(here - 1, 0, -1)):
        text = after[starts[line - 1] : starts[line] if line < count else len(after)]
        at = int(starts[line - 1] + len(text) - len(text.lstrip()))
        if not _says_something(text, (0, len(text))) or not covering(tree, line, at - starts[line - 1]):
            continue
        if scope_at(edit.after or "", at, at + 1) == scope:
            return at
    return None
