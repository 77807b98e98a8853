"""The kernels made to raise: sources for the control that shows that the suite runs them at all."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.source import SourceFile

RAISE = 'raise RuntimeError("fastlora-verify: this kernel was made to raise")'


def raising_sources(
    target: Target, sources: Mapping[str, SourceFile], kernels: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """For each of the named kernels, the file of its Function with a forward that raises: (path, text).

    Where the Function has no forward of its own, its first entry raises.
    """
    found: dict[tuple[str, str], None] = {}
    for kernel in target.kernels:
        if kernel.name not in kernels:
            continue
        for scope in (f"{kernel.function}.forward", *kernel.entries):
            module, _, inner = scope.partition(":")
            text = _raising(sources[module].text, inner)
            if text is not None:
                found[sources[module].path, text] = None
                break
    return tuple(found)


def _raising(text: str, scope: str) -> str | None:
    """`text` with a raise at the top of the function `scope`, None if there is no such function."""
    node = _function(ast.parse(text), scope.split("."))
    if node is None:
        return None
    first = node.body[0]
    line = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]) - 1
    # As lines that Python counts: only \n, \r\n and \r end one, and str.splitlines knows more.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    newline = "\r\n" if "\r\n" in text else "\n"
    before = lines[line].encode()[: first.col_offset].decode()
    if before.strip():  # a body on the line of its def
        lines[line] = f"{before}{RAISE}"
    else:
        lines.insert(line, f"{before}{RAISE}")
    return newline.join(lines)


def _function(tree: ast.AST, names: list[str]) -> ast.FunctionDef | None:
    """The last function of that dotted name."""
    places = [tree]
    for name in names:
        inner = [node for place in places for node in _definitions(place) if node.name == name]
        places = list(inner)
    functions = [node for node in places if isinstance(node, ast.FunctionDef)]
    return functions[-1] if functions else None


def _definitions(tree: ast.AST) -> list[ast.FunctionDef | ast.ClassDef]:
    """Functions and classes of this scope, those under `if` and `try` included, not those of inner scopes."""
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            found.append(child)
        elif not isinstance(child, ast.AsyncFunctionDef | ast.Lambda):
            found += _definitions(child)
    return found
