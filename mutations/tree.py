"""The children of syntax nodes, each found once: LibCST finds them anew, by a visit, at every call."""

from __future__ import annotations

from functools import lru_cache

import libcst as cst

WHITE_SPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine)


@lru_cache(maxsize=1 << 16)  # the nodes of some 20,000 lines; a node can't be referred to weakly
def children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The nodes directly under one, in source order, white space left out."""
    return tuple(child for child in node.children if not isinstance(child, WHITE_SPACE))
