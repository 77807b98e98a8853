"""What an edit takes from other modules of the target: names that they import, and that are gone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastlora_verify.mutations.scoping import is_type_checking
from fastlora_verify.mutations.symbols import symbols


@dataclass(frozen=True)
class Missing:
    """A name that one module imports from another that has it no longer."""

    name: str
    module: str
    importer: str


def missing_imports(before: Mapping[str, str], after: Mapping[str, str | None]) -> list[Missing]:
    """The imports that an edit breaks. `before` are the texts of all modules, `after` those that it changes.

    Imports that may fail, in a `try`, and those for type checkers are none.
    """
    lost: dict[str, frozenset[str]] = {}
    for module, text in after.items():
        kept = symbols(text).bound if text is not None else frozenset()
        lost[module] = symbols(before[module]).bound - kept if module in before else frozenset()
    found: dict[Missing, None] = {}
    for importer, text in {**before, **after}.items():
        for module, name in _imported(text, importer) if text is not None and any(lost.values()) else ():
            if importer != module and name in lost.get(module, ()):
                found[Missing(name, module, importer)] = None
    return list(found)


def _imported(text: str, importer: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that a module surely imports from another."""
    stack: list[ast.AST] = [ast.parse(text)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.ImportFrom):
            module = _absolute(node, importer)
            yield from ((module, alias.name) for alias in node.names)
        if isinstance(node, ast.Try) and node.handlers:
            stack += [*node.orelse, *node.finalbody]
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            stack += node.orelse
        else:
            stack += list(ast.iter_child_nodes(node))


def _absolute(node: ast.ImportFrom, importer: str) -> str:
    """The module that an import is from; a package's own `__init__` is taken for a module of it."""
    if not node.level:
        return node.module or ""
    parents = importer.split(".")[: -node.level]
    return ".".join([*parents, *([node.module] if node.module else [])])
