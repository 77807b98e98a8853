"""A site becomes a mutant: edited, compiled, compared, named, probed."""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import tokenize
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from fastlora_verify.mutations.base import Mutant, Mutation, Probes, Site
from fastlora_verify.mutations.part import Part, begin, edited_part, same
from fastlora_verify.mutations.source import ParsedModule, line_starts
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
    if same(before.tree, after.tree):
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
        probes=probes(after.tree, source, fired),
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


def digest(code: str) -> str:
    """Five characters that stay the same while the code does, whatever its white space and comments."""
    return hashlib.sha256(" ".join(_tokens(code)).encode()).hexdigest()[:5]


def _tokens(code: str) -> Iterator[str]:
    """The words of some code, which needn't be whole."""
    flat = "\n".join(line.strip() for line in code.splitlines())  # its indentation needn't be one of Python's
    try:
        for token in tokenize.generate_tokens(io.StringIO(flat).readline):
            if token.type != tokenize.COMMENT and token.string.strip():
                yield token.string
    except tokenize.TokenError:
        return  # it ends inside a bracket: all its words have come


# -- probes ---------------------------------------------------------------------------------------------


def probes(tree: ast.Module, source: str, fired: Sequence[int]) -> Probes:
    """Where running the mutated text shows that its function was entered and that the change itself ran.

    `fired` are the byte offsets of the edits that trigger.
    """
    encoded = source.encode()
    starts = line_starts(encoded)
    reached: dict[int, None] = {}
    triggered: dict[int, None] = {}
    for offset in fired:
        line = bisect_right(starts, offset)
        around = covering(tree, line, offset - starts[line - 1])
        functions = [s for s in around if isinstance(s, Function)]
        if functions:
            reached[body_start(functions[-1]).lineno] = None
        if around:
            last = around[-1]
            triggered[(body_start(last) if isinstance(last, Function) else last).lineno] = None
    return Probes(tuple(reached)[:1], tuple(triggered))


Function = ast.FunctionDef | ast.AsyncFunctionDef


def body_start(function: Function) -> ast.stmt:
    """The first statement behind the docstring."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1] if is_docstring and len(function.body) > 1 else first


def covering(tree: ast.AST, line: int, column: int) -> list[ast.stmt]:
    """The statements that cover a position, outer first, a definition's decorators included."""
    found: list[ast.stmt] = []
    outer = tree
    while True:
        inner = next((s for s in _statements(outer) if _covers(s, line, column)), None)
        if inner is None:
            return found
        found.append(inner)
        outer = inner


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
