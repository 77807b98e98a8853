"""Walks of syntax trees: children, statements, the small statements that a function runs itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

BLOCKS = (
    cst.BaseStatement, cst.BaseSuite, cst.Else, cst.Finally, cst.ExceptHandler, cst.ExceptStarHandler, cst.MatchCase,
)  # fmt: skip
WHITE_SPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine)


@lru_cache(maxsize=1 << 16)  # the nodes of some 20,000 lines; a node can't be referred to weakly
def children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The nodes directly under one, in source order, white space left out.

    Each is found once: LibCST finds them anew, by a visit, at every call.
    """
    return tuple(child for child in node.children if not isinstance(child, WHITE_SPACE))


def statements(function: cst.FunctionDef) -> Iterator[cst.BaseStatement]:
    """Every statement of a function, outer before inner, nested definitions' own left out."""
    return (s for s in _statements(function.body) if isinstance(s, cst.BaseStatement))


def small_statements(function: cst.FunctionDef) -> Iterator[cst.BaseSmallStatement]:
    """Every assignment, return, call, … of a function, in source order."""
    return (s for s in _statements(function.body) if isinstance(s, cst.BaseSmallStatement))


def _statements(block: cst.CSTNode) -> Iterator[cst.BaseStatement | cst.BaseSmallStatement]:
    """The statements of a block, and of the blocks in it: under `if`, `for`, `with`, `try` and `match`."""
    for node in children(block):
        if isinstance(node, cst.BaseStatement | cst.BaseSmallStatement):
            yield node
        if isinstance(node, BLOCKS) and not isinstance(node, cst.FunctionDef | cst.ClassDef):
            yield from _statements(node)


def names_of(target: cst.CSTNode) -> set[str]:
    """Names that an assignment to `target` binds."""
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Attribute | cst.Subscript):
        return set()
    return set().union(*(names_of(c) for c in children(target)))
