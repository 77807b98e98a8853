"""A site becomes a mutant: edited, compiled, compared, named, probed."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Iterator

from fastlora_verify.mutations.base import Mutant, Mutation, Probes, Site
from fastlora_verify.mutations.part import Part, begin, edited_part
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.symbols import symbols


class BadMutantError(Exception):
    """A site whose edit doesn't compile, doesn't differ, or brings in an unbound name: a fault of the mutation."""


def build_mutant(mutation: Mutation, site: Site, kernels: tuple[str, ...], name: str) -> Mutant:
    """Apply a site's edits and check what they made. Raises `BadMutantError`."""
    module = site.module
    file = module.file
    try:
        source, fired = module.apply(site.edits)
        compile(source, file.path, "exec", dont_inherit=True)
        before, after = edited_part(module, site.edits, source)
    except SyntaxError as error:
        raise BadMutantError(f"{name}: line {error.lineno} does not compile: {error.msg}") from error
    except ValueError as error:
        raise BadMutantError(f"{name}: {error}") from error
    if before.dump == after.dump:
        raise BadMutantError(f"{name}: does not differ from the original")
    unbound = unbound_names(module, before, after, source)
    if unbound:
        raise BadMutantError(f"{name}: brings in unbound names: {', '.join(sorted(unbound))}")
    return Mutant(
        name=name,
        mutation=mutation.id,
        family=mutation.family,
        kernels=kernels,
        module=file.module,
        path=file.path,
        line=module.line(site.node),
        scope=site.scope,
        source=source,
        diff=unified(file.text, source, file.path),
        gist=site.gist,
        probes=probes(after.tree, source, site.scope, fired),
        new_names=tuple(sorted(after.symbols.used - before.symbols.used - module.symbols.used)),
    )


def unbound_names(module: ParsedModule, before: Part, after: Part, source: str) -> frozenset[str]:
    """Global names that a mutant reads, nobody binds, and the original didn't read so."""
    if before.symbols.bound <= after.symbols.bound:
        free = after.symbols.unbound(module.symbols.bound)
    else:  # a binding is gone: whoever reads it counts, wherever
        free = symbols(source).unbound()
    # Alone, a part shows names of annotations that a module with postponed annotations does not.
    return free - module.symbols.unbound() - before.symbols.unbound()


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


def find_scope(tree: ast.AST, scope: str) -> ast.AST | None:
    """The definition of a dotted name; of several with one name, the last."""
    found: list[ast.AST] = [tree]
    for part in scope.split(".") if scope else []:
        found = [d for outer in found for d in _definitions(outer) if d.name == part]
    return found[-1] if found else None


def _definitions(outer: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The definitions directly inside, those under `if`, `try` and `with` included."""
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        else:
            yield from _definitions(node)


def body_start(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1] if is_docstring and len(function.body) > 1 else first


def innermost(tree: ast.AST, line: int, column: int) -> ast.stmt | None:
    """The innermost statement that covers a position, a definition's decorators included."""
    found: ast.stmt | None = None
    inner: ast.stmt | None = None
    while True:
        inner = next((s for s in _statements(found or tree) if _covers(s, line, column)), None)
        if inner is None:
            return found
        found = inner


def _statements(outer: ast.AST) -> Iterator[ast.stmt]:
    """The statements directly inside, those of handlers and cases included."""
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, ast.stmt):
            yield node
        elif isinstance(node, ast.ExceptHandler | ast.match_case):
            yield from _statements(node)


def _covers(statement: ast.stmt, line: int, column: int) -> bool:
    first = begin(statement)
    start = (first, statement.col_offset if first == statement.lineno else 0)
    end = (statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
    return start <= (line, column) < end
