"""A site becomes a mutant: edited, compiled, compared, named, probed."""

from __future__ import annotations

import ast
import difflib
import hashlib

from fastlora_verify.mutations.base import Mutant, Mutation, Probes, Site
from fastlora_verify.mutations.names import unbound_names


class BadMutantError(Exception):
    """A site whose edit doesn't compile, doesn't differ, or brings in an unbound name: a fault of the mutation."""


def build_mutant(mutation: Mutation, site: Site, kernels: tuple[str, ...], name: str) -> Mutant:
    """Apply a site's edits and check what they made. Raises `BadMutantError`."""
    file = site.module.file
    source, fired = site.module.apply(site.edits)
    try:
        tree = ast.parse(source)
        compile(source, file.path, "exec")
    except SyntaxError as error:
        raise BadMutantError(f"{name}: line {error.lineno} does not compile: {error.msg}") from error
    if ast.dump(tree) == ast.dump(ast.parse(file.text)):
        raise BadMutantError(f"{name}: does not differ from the original")
    unbound = unbound_names(tree, ast.parse(file.text))
    if unbound:
        raise BadMutantError(f"{name}: brings in unbound names: {', '.join(sorted(unbound))}")
    new_names = names_in(tree) - names_in(ast.parse(file.text))
    return Mutant(
        name=name,
        mutation=mutation.id,
        family=mutation.family,
        kernels=kernels,
        module=file.module,
        path=file.path,
        line=site.module.line(site.node),
        scope=site.scope,
        source=source,
        diff=unified(file.text, source, file.path),
        gist=site.gist,
        probes=probes(tree, source, site.scope, fired),
        new_names=tuple(sorted(new_names)),
    )


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def unified(before: str, after: str, path: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", n=3, lineterm="")
    return "\n".join(lines) + "\n"


def digest(text: str) -> str:
    """Five characters that stay the same while the text does, whatever its white space."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:5]


# -- probes ---------------------------------------------------------------------------------------------


def probes(tree: ast.Module, source: str, scope: str, fired: tuple[int, ...]) -> Probes:
    """Where running the mutated text shows that its scope was entered and that the change itself ran."""
    encoded = source.encode()
    triggered = []
    for offset in fired:
        line = encoded.count(b"\n", 0, offset) + 1
        column = offset - (encoded.rfind(b"\n", 0, offset) + 1)
        statement = innermost(tree, line, column)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            statement = body_start(statement)
        if statement is not None:
            triggered.append(statement.lineno)
    definition = find_scope(tree, scope)
    reached: tuple[int, ...] = ()
    if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        reached = (body_start(definition).lineno,)
    return Probes(reached, tuple(dict.fromkeys(triggered)))


def find_scope(tree: ast.Module, scope: str) -> ast.AST | None:
    """The definition of a dotted name; of several with one name, the last."""
    found: list[ast.AST] = [tree]
    for part in scope.split(".") if scope else []:
        found = [
            node
            for outer in found
            for node in ast.walk(outer)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == part
        ]
    return found[-1] if found else None


def body_start(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1] if is_docstring and len(function.body) > 1 else first


def innermost(tree: ast.Module, line: int, column: int) -> ast.stmt | None:
    """The innermost statement that covers a position (a position on blank space belongs to what starts next)."""
    best: ast.stmt | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or node.end_lineno is None or node.end_col_offset is None:
            continue
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        if start <= (line, column) < end and (best is None or start >= (best.lineno, best.col_offset)):
            best = node
    return best
