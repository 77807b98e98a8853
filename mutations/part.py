"""The part of a module that edits change: the top-level statements around them, before and after.

What lies outside is the same text in the mutant, so a mutant is parsed, compared and searched for names here only.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fastlora_verify.mutations.source import Edit, ParsedModule, line_starts
from fastlora_verify.mutations.symbols import Symbols, symbols


@dataclass(frozen=True)
class Part:
    """Some top-level statements of a module; the tree's line numbers are the module's."""

    tree: ast.Module
    symbols: Symbols


def edited_part(module: ParsedModule, edits: Sequence[Edit], source: str) -> tuple[Part, Part]:
    """The statements around the edits, in the original and in the mutated `source`. Raises `SyntaxError`."""
    first, last = _whole_statements(module, min(e.start for e in edits), max(e.end for e in edits))
    mutated = source.encode()
    starts = line_starts(mutated)
    grown = len(starts) - len(module.line_starts)
    before = _lines(module.file.text.encode(), module.line_starts, first, last)
    after = _lines(mutated, starts, first, last + grown)
    return _original(before, first), _part(after, first)


def _whole_statements(module: ParsedModule, start: int, end: int) -> tuple[int, int]:
    """First and last line of the top-level statements that touch the bytes `start:end`."""
    first, last = module.line_at(start), module.line_at(end)
    spans = [(begin(node), node.end_lineno or node.lineno) for node in module.python.body]
    for low, high in [*spans, *reversed(spans)]:  # statements may share a line: both ways along the module
        if low <= last and first <= high:
            first, last = min(first, low), max(last, high)
    return first, last


def begin(statement: ast.stmt) -> int:
    """The first line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _lines(text: bytes, starts: Sequence[int], first: int, last: int) -> str:
    stop = starts[last] if last < len(starts) else len(text)
    return text[starts[first - 1] : stop].decode()


def _part(text: str, first: int) -> Part:
    tree = ast.parse("\n" * (first - 1) + text)
    return Part(tree, symbols(text))


_original = lru_cache(maxsize=256)(_part)  # many mutants of one statement


def same(one: object, other: object) -> bool:
    """Whether two trees say the same, wherever they stand in the text."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.AST):
        return all(same(getattr(one, name, None), getattr(other, name, None)) for name in one._fields)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
