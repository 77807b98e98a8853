"""Python's scopes: which scope a name that is read belongs to.

Python's own `symtable` knows the same of whole functions, not of the single place; an edit is judged by its places.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    node: ast.AST
    outer: Scope | None
    bound: set[str] = field(default_factory=set)
    global_names: set[str] = field(default_factory=set)
    nonlocal_names: set[str] = field(default_factory=set)

    @property
    def path(self) -> str:
        """The dotted name of the function or class that this is, or is inside of."""
        names = [s.node.name for s in self.outwards() if isinstance(s.node, Function | ast.ClassDef)]
        return ".".join(reversed(names))

    @property
    def module(self) -> Scope:
        return list(self.outwards())[-1]

    @property
    def defers(self) -> bool:
        """Whether its code runs later than the code around it."""
        return isinstance(self.node, Function | ast.Lambda)

    def outwards(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def owner(self, name: str) -> Scope | None:
        """The scope whose name this is when it is read here; None where no scope binds it."""
        for scope in self.outwards():
            if name in scope.global_names:
                return scope.module if name in scope.module.bound else None
            seen = scope is self or not isinstance(scope.node, ast.ClassDef)
            if seen and name in scope.bound and name not in scope.nonlocal_names:
                return scope
        return None


@dataclass(frozen=True)
class Scopes:
    """All scopes of a module, by the node that makes one, and the scope that every read name stands in."""

    of_node: dict[ast.AST, Scope]
    of_read: dict[ast.Name, Scope]


def scopes(tree: ast.Module) -> Scopes:
    """Every scope of a module."""
    visitor = _Visitor(tree)
    for statement in tree.body:
        visitor.visit(statement)
    return Scopes(visitor.of_node, visitor.of_read)


class _Visitor(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.scope = Scope(tree, None)
        self.of_node: dict[ast.AST, Scope] = {tree: self.scope}
        self.of_read: dict[ast.Name, Scope] = {}
        self.postponed = any(
            isinstance(s, ast.ImportFrom) and s.module == "__future__" and any(a.name == "annotations" for a in s.names)
            for s in tree.body
        )

    def _bind(self, name: str) -> None:
        target = self.scope.module if name in self.scope.global_names else self.scope
        if name not in self.scope.nonlocal_names:
            target.bound.add(name)

    def _inside(self, node: ast.AST, names: Sequence[str], parts: Sequence[ast.AST]) -> None:
        outer = self.scope
        self.scope = self.of_node[node] = Scope(node, outer, set(names))
        for statement in parts:  # declared before anything is bound by them
            _declare(statement, self.scope)
        for part in parts:
            self.visit(part)
        self.scope = outer

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.of_read[node] = self.scope
        else:
            self._bind(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.of_read[node.target] = self.scope

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)
        if not self.postponed and not self.scope.defers:
            self.visit(node.annotation)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        inner = self.scope
        while isinstance(self.scope.node, Comprehension) and self.scope.outer is not None:
            self.scope = self.scope.outer
        self._bind(node.target.id)
        self.scope = inner

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: Function) -> None:
        self._bind(node.name)
        types = [p.name for p in getattr(node, "type_params", ())]
        for part in before_body(node, annotations=not self.postponed and not types):
            self.visit(part)
        self._inside(node, [*parameters(node.args), *types], node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in defaults(node.args):
            self.visit(part)
        self._inside(node, parameters(node.args), [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        types = [p.name for p in getattr(node, "type_params", ())]
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            if not types:
                self.visit(part)
        self._inside(node, types, node.body)

    def _comprehension(self, node: Comprehension) -> None:
        first, *others = node.generators
        self.visit(first.iter)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        rest = [part for clause in others for part in (clause.target, clause.iter, *clause.ifs)]
        self._inside(node, [], [first.target, *first.ifs, *rest, *results])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(bound_by(alias))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(bound_by(alias))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        for name in pattern_names(node):
            self._bind(name)
        super().generic_visit(node)


def _declare(statement: ast.AST, scope: Scope) -> None:
    """What `global` and `nonlocal` say, wherever in the scope they stand."""
    stack = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Global):
            scope.global_names |= set(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.nonlocal_names |= set(node.names)
        elif not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            stack += list(ast.iter_child_nodes(node))


def bound_by(alias: ast.alias) -> str:
    """The name that an import binds; `*` where that is anything."""
    return alias.asname or alias.name.partition(".")[0]


def pattern_names(node: ast.AST) -> list[str]:
    """Names that this node of a `case` binds."""
    if isinstance(node, ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    return [node.rest] if isinstance(node, ast.MatchMapping) and node.rest else []


def parameters(arguments: ast.arguments) -> list[str]:
    """Names of all parameters."""
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [a.arg for a in (*plain, arguments.vararg, arguments.kwarg) if a is not None]


def defaults(arguments: ast.arguments) -> list[ast.expr]:
    """What is evaluated when a function is made."""
    return [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]


def before_body(node: Function, *, annotations: bool) -> list[ast.expr]:
    """What a `def` evaluates itself: decorators, defaults, and annotations unless they are postponed."""
    found = [*node.decorator_list, *defaults(node.args)]
    if annotations:
        arguments = node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        found += [a.annotation for a in every if a is not None and a.annotation is not None]
        found += [node.returns] if node.returns is not None else []
    return found


def is_type_checking(test: ast.expr) -> bool:
    """Whether a block is for type checkers alone."""
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING" or (isinstance(test, ast.Constant) and not test.value)


def touched(body: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """Names that some statements of one scope can be the first to bind, and those that they delete."""
    bound: set[str] = set()
    deleted: set[str] = set()
    later: set[ast.AST] = set()  # targets of `x += 1` and `x = x + 1`, which need a value of the name themselves
    for node in own_nodes(body):
        later |= _needing(node)
        if node in later:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            deleted.add(node.id)
        elif isinstance(node, Function | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {bound_by(alias) for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
            deleted.add(node.name)
        bound |= set(pattern_names(node))
    return bound, deleted


def _needing(node: ast.AST) -> set[ast.AST]:
    """The targets of an assignment whose value reads them."""
    if isinstance(node, ast.AugAssign):
        return {node.target}
    if not isinstance(node, ast.Assign):
        return set()
    inside = list(ast.walk(node.value))
    if any(isinstance(part, ast.Lambda | ast.IfExp | ast.BoolOp | Comprehension) for part in inside):
        return set()
    read = {part.id for part in inside if isinstance(part, ast.Name)}
    return {target for target in node.targets if isinstance(target, ast.Name) and target.id in read}


def own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of one scope: functions and classes in it are met, not entered."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            stack += list(ast.iter_child_nodes(node))
