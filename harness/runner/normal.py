"""What of a Python file can matter to a run: its syntax tree without comments, docstrings and positions, as digests.

A tree takes longer to build than to look up, so digests are kept by the digest of the content that they were made of.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlora_verify.harness.plain import from_plain, to_plain
from fastlora_verify.harness.spared import write_spared

FILE = "normal.json"
_MOST = 20_000  # digests that are kept
_DOCS = re.compile(rb"__doc__|getdoc|doctest")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = ast.Module | ast.ClassDef | _Function


@dataclass(frozen=True)
class PartedFile:
    """A file of tests, its functions apart."""

    outline: str  # of everything but the statements of its functions and of its classes' methods
    functions: Mapping[str, str]  # the digest of the statements, by `function` or `Class.method`
    names: tuple[str, ...]  # parts of the modules' names that it imports, and of texts that might be such a name
    uses: tuple[str, ...]  # names and attributes that it reads


class Normal:
    """Digests of files, kept in `folder` between runs. `version` stands for the code that makes them."""

    def __init__(self, folder: Path, version: str, *, resume: bool = True) -> None:
        self._path = folder / FILE
        self._version = f"{version} {sys.version}"
        self._known: dict[str, Any] = _read(self._path, self._version) if resume else {}
        self._used: dict[str, Any] = {}

    def code(self, data: bytes, *, docs: bool = False) -> str:
        """Of a file; of its bytes where our Python can't parse it. `docs`: docstrings count."""
        return str(self._kept(f"code {docs:d}", data, lambda: _code(data, docs=docs)))

    def tests(self, data: bytes) -> PartedFile | None:
        """Of a file of tests; None where our Python can't parse it."""
        plain = self._kept("tests", data, lambda: to_plain(_tests(data)))
        return from_plain(PartedFile, plain) if plain is not None else None

    def probed(self, source: str, lines: Sequence[int], *, docs: bool = False) -> str:
        """Of a mutated file with the lines that are watched, told by the statements that begin there."""
        data = source.encode("utf-8", "surrogatepass")
        made = f"probed {docs:d} {','.join(map(str, lines))}"
        return str(self._kept(made, data, lambda: _probed(data, lines, docs=docs)))

    def save(self) -> None:
        """Keeps what was asked for, and of what earlier runs asked for as much as there is room for."""
        if self._used.keys() <= self._known.keys():
            return
        older = list(self._known.items())[-_MOST:]
        text = json.dumps({"version": self._version, "known": {**dict(older), **self._used}}, separators=(",", ":"))
        write_spared(self._path, text.encode("utf-8"))

    def _kept(self, what: str, data: bytes, make: Callable[[], Any]) -> Any:
        key = hashlib.sha256(what.encode() + b"\0" + data).hexdigest()
        if key not in self._used:
            self._used[key] = self._known[key] if key in self._known else make()
        return self._used[key]


def docs_matter(contents: Iterable[bytes]) -> bool:
    """Whether some file asks for docstrings, or runs them."""
    return any(_DOCS.search(data) for data in contents)


def _read(path: Path, version: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
        return dict(data["known"]) if data["version"] == version else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parsed(data: bytes) -> ast.Module | None:
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _code(data: bytes, *, docs: bool) -> str:
    tree = _parsed(data)
    if tree is None:
        return hashlib.sha256(data).hexdigest()
    return _digest(ast.dump(tree if docs else _without_docs(tree)))


def _without_docs(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, _Scope) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _probed(data: bytes, lines: Sequence[int], *, docs: bool) -> str:
    """A line where no statement begins is told by its number, so that a comment above it makes another digest."""
    tree = _parsed(data)
    if tree is None:
        return _digest(f"{hashlib.sha256(data).hexdigest()} {list(lines)}")
    tree = tree if docs else _without_docs(tree)
    starts: dict[int, int] = {}
    for index, node in enumerate(node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        starts.setdefault(node.lineno, index)
    places = [f"statement {starts[line]}" if line in starts else f"line {line}" for line in lines]
    return _digest(f"{ast.dump(tree)} {places}")


def _tests(data: bytes) -> PartedFile | None:
    tree = _parsed(data)
    if tree is None:
        return None
    names, uses = tuple(sorted(_names(tree))), tuple(sorted(_uses(tree)))
    functions: dict[str, str] = {}
    for name, node in _functions(tree):
        functions[name] = _digest(functions.get(name, "") + "\n".join(map(ast.dump, node.body)))
        node.body = [ast.Pass()]
    return PartedFile(_digest(ast.dump(tree)), functions, names, uses)


def _functions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Functions and methods, wherever in the module's or the class's own statements they stand."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, _Function):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            waiting += ast.iter_child_nodes(node)


def _names(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            found.update((node.module or "").split("."), (alias.name for alias in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w./]+", node.value):
            found.update(re.split(r"[./]", node.value))
    return found - {""}


def _uses(tree: ast.Module) -> set[str]:
    read = [node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Load)]
    names = {node.id for node in read if isinstance(node, ast.Name)}
    return names | {node.attr for node in read if isinstance(node, ast.Attribute)}
