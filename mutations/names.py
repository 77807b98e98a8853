"""Which names are bound where: what a mutant says must be bound at the place where it says it."""

from __future__ import annotations

import builtins
from functools import lru_cache

import libcst as cst

from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.tree import children, names_of


def bound_at_top(module: ParsedModule, scope: str, name: str) -> bool:
    """Whether `name` is bound when the first statement of the function `scope` runs."""
    function = module.scopes[scope]
    if isinstance(function, cst.FunctionDef) and name in parameter_names(function):
        return True
    outer = scope.rpartition(".")[0]
    while outer:
        definition = module.scopes[outer]
        if not isinstance(definition, cst.FunctionDef):
            pass
        elif name in parameter_names(definition) | assigned_names(definition.body):
            return True
        outer = outer.rpartition(".")[0]
    return name in assigned_names(module.tree) or hasattr(builtins, name)


def parameter_names(function: cst.FunctionDef) -> set[str]:
    params = function.params
    found = {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)}
    found |= {s.name.value for s in (params.star_arg, params.star_kwarg) if isinstance(s, cst.Param)}
    return found


@lru_cache(maxsize=4096)
def assigned_names(block: cst.CSTNode) -> frozenset[str]:
    """Names that the statements of one block bind, those of nested functions left out."""
    found: set[str] = set()
    stack: list[cst.CSTNode] = list(children(block))
    while stack:
        node = stack.pop()
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            found.add(node.name.value)
            continue
        if isinstance(node, cst.Lambda):
            continue
        found |= _bound_by(node)
        stack.extend(children(node))
    return frozenset(found)


def _bound_by(node: cst.CSTNode) -> set[str]:
    if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.NamedExpr | cst.For | cst.CompFor):
        return names_of(node.target)
    if isinstance(node, cst.ImportAlias):
        return {node.evaluated_alias or str(node.evaluated_name).split(".")[0]}
    if isinstance(node, cst.AsName):
        return names_of(node.name)
    return set()


def read_names(node: cst.CSTNode) -> set[str]:
    """Names that an expression reads, attribute and keyword names left out."""
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, cst.Attribute):
        return read_names(node.value)
    if isinstance(node, cst.Arg):
        return read_names(node.value)
    return set().union(*(read_names(c) for c in children(node)))
