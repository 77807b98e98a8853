"""Every name that a module reads, and whether it has a value there: what an edit is checked by."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fastlora_verify.mutations.assigned import Flow
from fastlora_verify.mutations.scoping import (
    Comprehension,
    Function,
    Scope,
    bound_by,
    is_type_checking,
    own_nodes,
    scopes,
)
from fastlora_verify.mutations.source import line_starts
from fastlora_verify.mutations.states import NEVER, PERHAPS, SURELY

MODULES_OWN = frozenset(
    {"__name__", "__file__", "__doc__", "__spec__", "__loader__", "__package__", "__path__", "__builtins__",
     "__debug__", "__annotations__", "__dict__", "__class__", "__module__", "__qualname__"}
)  # fmt: skip


@dataclass(frozen=True)
class Read:
    """One place at which a name is read."""

    name: str
    start: int  # bytes
    end: int
    level: int  # NEVER, PERHAPS or SURELY
    scope: str  # the dotted function or class around it
    has_attribute: bool  # `name.something`
    is_global: bool  # no function or class around binds it


Span = tuple[int, int]  # bytes of a text, the end excluded


@lru_cache(maxsize=64)
def reads(text: str) -> tuple[Read, ...]:
    """Every read of a name in a module, in no order. Raises `SyntaxError`."""
    return tuple(_Reads(text).all())


class _Reads:
    def __init__(self, text: str) -> None:
        self._tree = ast.parse(text)
        self._starts = line_starts(text.encode())
        self._scopes = scopes(self._tree)
        self._flows: dict[Scope, Flow] = {}
        for node, scope in self._scopes.of_node.items():
            if isinstance(node, Function | ast.Lambda | ast.Module):
                self._flows[scope] = Flow(self._scopes, scope)
        self._levels = {name: level for flow in self._flows.values() for name, level in flow.levels.items()}
        self._made = {node: (s, flow.made[node]) for s, flow in self._flows.items() for node in flow.made}
        self._bases = {n.value for n in ast.walk(self._tree) if isinstance(n, ast.Attribute)}

    def all(self) -> Iterator[Read]:
        for node, scope in self._scopes.of_read.items():
            start = self._starts[node.lineno - 1] + node.col_offset
            end = self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            owner = scope.owner(node.id)
            is_global = owner is None or isinstance(owner.node, ast.Module)
            yield Read(node.id, start, end, self._level(node, scope), scope.path, node in self._bases, is_global)

    def _level(self, node: ast.Name, scope: Scope) -> int:
        owner = scope.owner(node.id)
        if owner is None:
            return SURELY if hasattr(builtins, node.id) or node.id in MODULES_OWN else NEVER
        if isinstance(owner.node, Comprehension):
            return SURELY
        if node in self._levels:
            return self._or_builtin(node.id, owner, self._levels[node])
        if not _reachable(scope, owner):  # behind a `return`: it never runs
            return SURELY
        if isinstance(owner.node, ast.Module):
            return self._or_builtin(node.id, owner, self._at_module(node.id, owner))
        return self._from_closure(node, scope, owner)

    def _or_builtin(self, name: str, owner: Scope, level: int) -> int:
        """A name that a module or class lacks may be Python's own."""
        outside = isinstance(owner.node, ast.Module | ast.ClassDef) and (hasattr(builtins, name) or name in MODULES_OWN)
        return SURELY if outside and level != SURELY else level

    def _at_module(self, name: str, module: Scope) -> int:
        """A global read from a function: as it is once the module is imported."""
        end = self._flows[module].end
        level = end.level((id(module), name)) if end is not None else SURELY
        return max(level, PERHAPS) if level == NEVER and self._is_assigned_globally(name) else level

    def _is_assigned_globally(self, name: str) -> bool:
        """Whether a function that declares the name global binds it."""
        declaring = [node for node, scope in self._scopes.of_node.items() if name in scope.global_names]
        return any(_binds(inner, name) for node in declaring for inner in ast.walk(node))

    def _from_closure(self, node: ast.Name, scope: Scope, owner: Scope) -> int:
        """A name of a function around: bound before this function is made, or before it is mentioned."""
        maker = scope
        for inner in scope.outwards():
            if inner is owner:
                break
            if inner.defers:
                maker = inner
        found = self._made.get(maker.node)
        if found is None:  # made behind a `return`: never
            return SURELY
        level = found[1].level((id(owner), node.id))
        if level == SURELY:
            return SURELY
        return PERHAPS if level == PERHAPS or self._bound_in_time(maker, owner, node.id) else NEVER

    def _bound_in_time(self, maker: Scope, owner: Scope, name: str) -> bool:
        """Whether the function around binds the name after this one was made, and before it says this one's name."""
        made = maker.node
        assert isinstance(made, Function | ast.Lambda)
        behind = (made.end_lineno or made.lineno, made.end_col_offset or 0)
        mine = made.name if isinstance(made, Function) else ""
        bound = [place for n in ast.walk(owner.node) if _binds(n, name) and (place := _bound_at(n)) >= behind]
        if not bound:
            return False
        body = owner.node.body if isinstance(owner.node, Function) else ()
        used = [_place(n) for n in own_nodes(body) if isinstance(n, ast.Name) and n.id == mine]
        return not any(behind <= place < min(bound) for place in used)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _bound_at(node: ast.AST) -> tuple[int, int]:
    """Where a name has its value: behind the whole of a definition."""
    if isinstance(node, Function | ast.ClassDef):
        return node.end_lineno or node.lineno, node.end_col_offset or 0
    return _place(node)


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any(name in (alias.asname, alias.name.partition(".")[0]) for alias in node.names)
    return isinstance(node, Function | ast.ClassDef) and node.name == name


def _reachable(scope: Scope, owner: Scope) -> bool:
    """Whether code of `scope` runs after that of `owner`, not along with it."""
    for inner in scope.outwards():
        if inner is owner:
            return False
        if inner.defers:
            return True
    return False


# -- what an edit does to them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Unbound:
    """A name that an edit leaves, or brings in, without a value."""

    name: str
    where: str  # the dotted function or class, "" at module level
    said: bool  # the edit's own text reads it; else text that it leaves alone
    perhaps: bool  # some path leads there with a value
    has_attribute: bool  # wherever the edit reads it


def unbound(before: str, after: str, spans: Sequence[Span]) -> list[Unbound]:
    """The names that lack a value in `after` where the edited `spans` read them, or elsewhere by the edit's doing.

    A global that the original reads without a visible value, too, comes from a star import or is set from outside.
    """
    old, new = reads(before), reads(after)
    unseen = {read.name for read in old if read.is_global and read.level == NEVER}
    known: dict[tuple[str, str], int] = {}
    for read in old:
        key = read.scope, read.name
        known[key] = min(known.get(key, SURELY), read.level)
    found: dict[tuple[str, str, bool], Unbound] = {}
    for read in new:
        said = any(read.start < end and start < read.end for start, end in spans)
        worse = read.level < known.get((read.scope, read.name), SURELY)
        if read.is_global and read.name in unseen:
            continue
        if (said and read.level == NEVER) or (not said and worse):
            others = [r for r in new if r.name == read.name and r.scope == read.scope and r.level == read.level]
            found[read.name, read.scope, said] = Unbound(
                read.name, read.scope, said, read.level == PERHAPS, all(r.has_attribute for r in others)
            )
    return list(found.values())


# -- what could bind them ---------------------------------------------------------------------------------

IMPORTS = {
    "torch": "import torch", "nn": "from torch import nn", "F": "import torch.nn.functional as F",
    "math": "import math", "functools": "import functools", "itertools": "import itertools", "os": "import os",
    "sys": "import sys", "warnings": "import warnings",
}  # fmt: skip
ANYWHERE = {"torch", "__future__", *(line.split()[1] for line in IMPORTS.values())}


def binding(text: str, name: str, *, has_attribute: bool) -> str | None:
    """The import that gives a name its value wherever it is said; None where none is safe.

    Safe is what the module itself imports by that name, always the same and outside of a `try`; and torch and a few
    of Python's own modules by their usual names, where the edit reads them as modules.
    """
    own = {line for line in _imports(ast.parse(text)) if line[0] == name}
    if len(own) == 1:
        return next(iter(own))[1]
    if own or (name != "torch" and not has_attribute):
        return None
    return IMPORTS.get(name)


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, import) of everything that a module surely can import: optional libraries are none of it."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, checking = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            root = (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
            for alias in node.names if not checking or root in ANYWHERE else ():
                only = ast.Import([alias]) if isinstance(node, ast.Import) else _from(node, alias)
                yield bound_by(alias), ast.unparse(only)
        inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.Try) and node.handlers:
            inner = [*node.orelse, *node.finalbody]
        unsure = checking or (isinstance(node, ast.If) and is_type_checking(node.test))
        stack += [(child, unsure) for child in inner]


def _from(node: ast.ImportFrom, alias: ast.alias) -> ast.ImportFrom:
    return ast.ImportFrom(node.module, [alias], node.level)
