"""Which names are bound where: a mutant must not bring in a name that nothing binds."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator

import libcst as cst
from fastlora_verify.mutations.source import ParsedModule


def unbound_names(mutated: ast.Module, original: ast.Module) -> set[str]:
    """Global names that the mutated module reads, nobody binds, and the original didn't read so."""
    return free_globals(mutated) - free_globals(original)


def free_globals(tree: ast.Module) -> set[str]:
    table = symtable.symtable(ast.unparse(tree), "<mutant>", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    for inner in _tables(table):
        bound |= {s.get_name() for s in inner.get_symbols() if s.is_declared_global() and s.is_assigned()}
    read: set[str] = set()
    for inner in _tables(table):
        for symbol in inner.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or inner is table):
                read.add(symbol.get_name())
    return {n for n in read - bound if not hasattr(builtins, n) and not n.startswith("__")}


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


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


def assigned_names(block: cst.CSTNode) -> set[str]:
    """Names that the statements of one block bind, those of nested functions left out."""
    found: set[str] = set()
    stack: list[cst.CSTNode] = list(block.children)
    while stack:
        node = stack.pop()
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            found.add(node.name.value)
            continue
        if isinstance(node, cst.Lambda):
            continue
        found |= _bound_by(node)
        stack.extend(node.children)
    return found


def _bound_by(node: cst.CSTNode) -> set[str]:
    if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.NamedExpr | cst.For | cst.CompFor):
        return names_of(node.target)
    if isinstance(node, cst.ImportAlias):
        return {node.evaluated_alias or str(node.evaluated_name).split(".")[0]}
    if isinstance(node, cst.AsName):
        return names_of(node.name)
    return set()


def names_of(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Attribute | cst.Subscript):
        return set()
    return set().union(*(names_of(c) for c in target.children))


def read_names(node: cst.CSTNode) -> set[str]:
    """Names that an expression reads, attribute and keyword names left out."""
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, cst.Attribute):
        return read_names(node.value)
    if isinstance(node, cst.Arg):
        return read_names(node.value)
    return set().union(*(read_names(c) for c in node.children))
