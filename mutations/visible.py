"""Whether an expression of one place can be said at another place of the same function."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from fastlora_verify.mutations.names import names_of, read_names
from fastlora_verify.mutations.source import ParsedModule


def sayable(module: ParsedModule, expression: cst.BaseExpression, at: cst.CSTNode) -> bool:
    """Whether every loop variable that `expression` reads is bound around `at` too."""
    here, there = set(loop_names(module, expression)), set(loop_names(module, at))
    return not (read_names(expression) & here) - there


def loop_names(module: ParsedModule, node: cst.CSTNode) -> Iterator[str]:
    """Names that the loops and comprehensions around a node bind."""
    for above in module.ancestors(node):
        if isinstance(above, cst.FunctionDef):
            return
        if isinstance(above, cst.For):
            yield from names_of(above.target)
        elif isinstance(above, cst.ListComp | cst.GeneratorExp | cst.SetComp):
            yield from names_of(above.for_in.target)
