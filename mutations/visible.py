"""Whether an expression of one place can be said at another place of the same function."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from fastlora_verify.mutations.names import assigned_names, parameter_names, read_names
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.tree import children, names_of

Loop = cst.For | cst.CompFor


def sayable(module: ParsedModule, expression: cst.BaseExpression, at: cst.CSTNode) -> bool:
    """Whether every name that `expression` reads surely has a value at `at` too, and the same meaning."""
    function = _function(module, at)
    if function is None or _function(module, expression) is not function:
        return False
    local = assigned_names(function.body) - parameter_names(function)
    here, there = _loops(module, expression), _loops(module, at)
    bound = bound_before(module, at)
    for name in read_names(expression):
        if name in here or name in there:
            if not _same_turn(module, expression, name, here.get(name), there.get(name)):
                return False
        elif name in local and name not in bound:
            return False
    return True


def bound_before(module: ParsedModule, at: cst.CSTNode) -> set[str]:
    """Names of the function around that surely have a value when `at` is reached."""
    found: set[str] = set()
    below = at
    for node in module.ancestors(at):
        if isinstance(node, cst.FunctionDef):
            return found | parameter_names(node)
        if isinstance(node, cst.IndentedBlock | cst.SimpleStatementLine | cst.SimpleStatementSuite):
            for statement in node.body:
                if statement is below:
                    break
                found |= _surely_bound(statement)
        elif isinstance(node, cst.With):
            found |= set().union(*(names_of(i.asname.name) for i in node.items if i.asname is not None))
        elif isinstance(node, cst.If | cst.While):
            found |= assigned_names(cst.Expr(node.test)) if node.test is not below else set()
        below = node
    return found


@lru_cache(maxsize=4096)
def _surely_bound(node: cst.CSTNode) -> frozenset[str]:
    """Names that have a value once a statement has run."""
    if isinstance(node, cst.If):
        return _surely_bound(node.body) & _surely_bound(node.orelse) if node.orelse is not None else frozenset()
    if isinstance(node, cst.With):
        return assigned_names(cst.With(node.items, cst.IndentedBlock([]))) | _surely_bound(node.body)
    if isinstance(node, cst.Else | cst.IndentedBlock | cst.SimpleStatementSuite):
        inner = node.body.body if isinstance(node, cst.Else) else node.body
        return frozenset().union(*(_surely_bound(s) for s in inner))
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        return frozenset({node.name.value})
    if isinstance(node, cst.SimpleStatementLine):
        return assigned_names(node)
    if isinstance(node, cst.BaseSmallStatement):
        return _of_small(node)
    return frozenset()


def _of_small(node: cst.BaseSmallStatement) -> frozenset[str]:
    return assigned_names(cst.SimpleStatementLine([node]))


def _function(module: ParsedModule, node: cst.CSTNode) -> cst.FunctionDef | None:
    return next((a for a in module.ancestors(node) if isinstance(a, cst.FunctionDef)), None)


def _loops(module: ParsedModule, node: cst.CSTNode) -> dict[str, Loop]:
    """Names that the loops and comprehensions around a node bind, the nearest loop first."""
    found: dict[str, Loop] = {}
    for above in module.ancestors(node):
        if isinstance(above, cst.FunctionDef):
            break
        for loop in _binding(above):
            for name in names_of(loop.target):
                found.setdefault(name, loop)
    return found


def _binding(node: cst.CSTNode) -> Iterator[Loop]:
    if isinstance(node, cst.For):
        yield node
    elif isinstance(node, cst.ListComp | cst.GeneratorExp | cst.SetComp | cst.DictComp):
        clause: cst.CompFor | None = node.for_in
        while clause is not None:
            yield clause
            clause = clause.inner_for_in


def _same_turn(
    module: ParsedModule, expression: cst.BaseExpression, name: str, here: Loop | None, there: Loop | None
) -> bool:
    """Whether a loop's name means the same in two loops: of one loop, of loops over the same, or as an index."""
    if here is None or there is None:
        return False
    same = module.code(here.target) == module.code(there.target) and module.code(here.iter) == module.code(there.iter)
    return here is there or same or _only_index(expression, name)


def _only_index(node: cst.CSTNode, name: str) -> bool:
    if isinstance(node, cst.Name):
        return node.value != name
    if isinstance(node, cst.Subscript):
        return _only_index(node.value, name)
    return all(_only_index(child, name) for child in children(node))
