"""The Python files of a tree, parsed when they are asked for: functions by scope, imports, module constants.

Python's own parser is used: white space, comments and quotes don't reach its tree, so that two assertions are the
same where they say the same. Every node keeps its `file`, for it may come to stand in another file's assertion.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """One parsed file."""

    path: str
    tree: ast.Module
    scopes: Mapping[str, Definition]  # by dotted name; of two with one name the last wins, as in Python
    imports: Mapping[str, tuple[str, str]]  # local name to (dotted module, attribute or "")
    constants: Mapping[str, ast.expr]  # names that the module binds exactly once, by an assignment


@dataclass(frozen=True)
class Place:
    """A function of the tree: where it stands, and the class that it is called on."""

    module: Module
    scope: str
    node: Function
    owner: str = ""  # scope of the class that `self` is of

    @property
    def key(self) -> tuple[str, str]:
        return self.module.path, self.scope


@dataclass
class Sources:
    """The files of one tree by path; `read` gives a file's text."""

    paths: frozenset[str]
    read: Callable[[str], str]
    broken: dict[str, str] = field(default_factory=dict)  # files that are no Python: path to why
    _modules: dict[str, Module | None] = field(default_factory=dict)
    _found: dict[tuple[str, str], Module | None] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Sources:
        """Sources whose texts are at hand."""
        return cls(frozenset(files), lambda path: files[path])

    def module(self, path: str) -> Module | None:
        """The file at `path`; None if there is none, or it is no Python."""
        if path not in self._modules:
            self._modules[path] = self._parse(path) if path in self.paths else None
        return self._modules[path]

    def _parse(self, path: str) -> Module | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of invalid escapes in the target's strings
                tree = ast.parse(self.read(path))
        except SyntaxError as error:
            self.broken[path] = f"{error.msg} at line {error.lineno}"
            return None
        except (OSError, ValueError, LookupError, RecursionError) as error:
            self.broken[path] = str(error) or type(error).__name__
            return None
        for node in ast.walk(tree):
            node.file = path  # type: ignore[attr-defined]
        return Module(path, tree, _scopes(tree), dict(_imports(tree, path)), constants(tree.body))

    def imported(self, module: Module, name: str) -> tuple[Module, str] | None:
        """The tree's own module that a name was imported from, and the name there ("" for the module itself)."""
        if name not in module.imports:
            return None
        dotted, attribute = module.imports[name]
        if attribute:
            inner = self._find(f"{dotted}.{attribute}" if dotted else attribute, module.path)
            if inner is not None:
                return inner, ""
        found = self._find(dotted, module.path) if dotted else None
        return (found, attribute) if found is not None else None

    def _find(self, dotted: str, near: str) -> Module | None:
        """The tree's file of that module, the one that shares most of its folders with `near`."""
        if (dotted, near) not in self._found:
            self._found[dotted, near] = self._look_for(dotted, near)
        return self._found[dotted, near]

    def _look_for(self, dotted: str, near: str) -> Module | None:
        stem = dotted.replace(".", "/")
        tails = (f"{stem}.py", f"{stem}/__init__.py")
        found = [path for path in self.paths if path.endswith(tails) and _is_tail(path, tails)]
        folders = PurePosixPath(near).parts
        found.sort(key=lambda path: (-_shared(PurePosixPath(path).parts, folders), path))
        return self.module(found[0]) if found else None

    def conftests(self, path: str) -> Iterator[Module]:
        """The conftest.py files that pytest reads for a test file, the nearest first."""
        for folder in PurePosixPath(path).parents:
            module = self.module(str(folder / "conftest.py"))
            if module is not None:
                yield module

    def function(self, module: Module, name: str, depth: int = 0) -> Place | None:
        """The function that a global name of `module` is, imports followed."""
        node = module.scopes.get(name)
        if isinstance(node, FUNCTIONS):
            return Place(module, name, node, name.rpartition(".")[0])
        there = self.imported(module, name)
        if there is not None and there[1] and depth < 5:
            return self.function(there[0], there[1], depth + 1)
        return None

    def method(self, module: Module, owner: str, name: str, depth: int = 0) -> Place | None:
        """A method of the class `owner`, looked up in its bases too."""
        node = module.scopes.get(f"{owner}.{name}")
        if isinstance(node, FUNCTIONS):
            return Place(module, f"{owner}.{name}", node, owner)
        for base_module, base in self.bases(module, owner) if depth < 10 else ():
            found = self.method(base_module, base, name, depth + 1)
            if found is not None:
                return Place(found.module, found.scope, found.node, found.owner)
        return None

    def bases(self, module: Module, owner: str) -> Iterator[tuple[Module, str]]:
        """The classes of the tree that a class names as its bases."""
        node = module.scopes.get(owner)
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            name = ast.unparse(base)
            if isinstance(module.scopes.get(name), ast.ClassDef):
                yield module, name
                continue
            head, _, rest = name.partition(".")
            there = self.imported(module, head)
            if there is not None and (there[1] or rest):
                yield there[0], there[1] or rest

    def constant(self, module: Module, name: str, depth: int = 0) -> tuple[Module, ast.expr] | None:
        """The value of a module's constant, and the module that it stands in."""
        if name in module.constants:
            return module, module.constants[name]
        there = self.imported(module, name)
        if there is not None and there[1] and depth < 5:
            return self.constant(there[0], there[1], depth + 1)
        return None


def constants(body: Iterable[ast.stmt]) -> dict[str, ast.expr]:
    """Names that a block binds once, by a plain assignment; names bound again anywhere in it are left out."""
    values: dict[str, ast.expr] = {}
    bound: dict[str, int] = {}
    for statement in body:
        for name in bindings(statement):
            bound[name] = bound.get(name, 0) + 1
        values.update(assigned(statement))
    return {name: value for name, value in values.items() if bound[name] == 1}


def assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of a plain assignment; `a, b = 1, 2` is two."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
        yield statement.target.id, statement.value
    if not isinstance(statement, ast.Assign):
        return
    value = statement.value
    for target in statement.targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = zip(target.elts, value.elts, strict=True)
            yield from ((name.id, part) for name, part in pairs if isinstance(name, ast.Name))


def bindings(node: ast.AST) -> Iterator[str]:
    """Every binding of a name in a block's own scope, once for each time it stands there."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
        yield from bindings(node.value)
    elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif not isinstance(node, ast.Lambda | ast.comprehension):
        for child in ast.iter_child_nodes(node):
            yield from bindings(child)
        if isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _scopes(tree: ast.Module) -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        inner: list[tuple[str, ast.AST]] = []
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                name = f"{prefix}.{child.name}" if prefix else child.name
                if name not in found or found[name].lineno < child.lineno:
                    found[name] = child
                inner.append((name, child))
            else:
                inner.append((prefix, child))
        stack += inner
    return found


def _imports(tree: ast.Module, path: str) -> Iterator[tuple[str, tuple[str, str]]]:
    folder = PurePosixPath(path).parent
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                dotted = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or dotted, (dotted, "")
        elif isinstance(node, ast.ImportFrom):
            above = [folder, *folder.parents]
            parts = above[min(node.level, len(above)) - 1].parts if node.level else ()
            dotted = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                yield alias.asname or alias.name, (dotted, alias.name)


def _is_tail(path: str, tails: tuple[str, ...]) -> bool:
    return any(path == tail or path.endswith(f"/{tail}") for tail in tails)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
