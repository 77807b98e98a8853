"""Which names have a value where they are read: surely, perhaps, or never.

One walk along the paths through a function: branches are joined, loops may run not at all, a `try` may end anywhere.
A `with` is taken to run to its end, and a block behind `if TYPE_CHECKING:` to be none of the program.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastlora_verify.mutations.scoping import (
    Comprehension,
    Function,
    Scope,
    Scopes,
    before_body,
    bound_by,
    defaults,
    is_type_checking,
    parameters,
    pattern_names,
    touched,
)
from fastlora_verify.mutations.states import SURELY, Key, Reached, State, join


@dataclass
class _Loop:
    breaks: list[Reached] = field(default_factory=list)


class Flow:
    """One scope's statements, and those of the classes in it, which run along with them.

    `levels` has every read name of these scopes. `made` has the state at every function made in them.
    """

    def __init__(self, scopes: Scopes, scope: Scope) -> None:
        self._scopes = scopes
        self._scope = scope
        self._loops: list[_Loop] = []
        self.levels: dict[ast.Name, int] = {}
        self.made: dict[ast.AST, State] = {}
        node = scope.node
        given = parameters(node.args) if isinstance(node, Function | ast.Lambda) else []
        types = [p.name for p in getattr(node, "type_params", ())]
        start = State()
        for name in (*given, *types):
            start = self._with(start, name)
        if isinstance(node, ast.Lambda):
            self.end: Reached = self._expression(node.body, start)
        else:
            assert isinstance(node, Function | ast.Module)
            self.end = self._block(node.body, start)

    # -- names ------------------------------------------------------------------------------------------

    def _key(self, name: str) -> Key:
        target = self._scope.module if name in self._scope.global_names else self._scope
        return id(target), name

    def _with(self, state: State, *names: str) -> State:
        keys = {self._key(name) for name in names}
        return State(state.sure | keys, state.some | keys)

    def _without(self, state: State, name: str) -> State:
        key = self._key(name)
        return State(state.sure - {key}, state.some - {key})

    def _read(self, node: ast.Name, state: State) -> None:
        owner = self._scopes.of_read[node].owner(node.id)
        if owner is None or isinstance(owner.node, Comprehension):
            return
        key = (id(owner), node.id)
        if isinstance(owner.node, ast.ClassDef) and key not in state.some and node.id in owner.module.bound:
            owner = owner.module  # a class's body reads on in the module
            key = (id(owner), node.id)
        inside = self._scope
        while inside is not owner and not inside.defers and inside.outer is not None:
            inside = inside.outer
        if inside is owner:  # names of functions around it are none of this walk's
            self.levels[node] = min(state.level(key), self.levels.get(node, SURELY))

    # -- expressions ------------------------------------------------------------------------------------

    def _expression(self, node: ast.AST | None, state: State) -> State:
        """What an expression reads and, by `:=`, binds."""
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self._read(node, state)
            return state
        if isinstance(node, ast.NamedExpr):
            return self._with(self._expression(node.value, state), node.target.id)
        if isinstance(node, ast.Lambda):
            for part in defaults(node.args):
                state = self._expression(part, state)
            self.made[node] = state
            return state
        if isinstance(node, ast.IfExp):
            state = self._expression(node.test, state)
            both = join(self._expression(node.body, state), self._expression(node.orelse, state))
            return both or state
        if isinstance(node, ast.BoolOp):
            return self._perhaps(node.values[1:], self._expression(node.values[0], state))
        if isinstance(node, Comprehension):
            first, *_ = node.generators
            state = self._expression(first.iter, state)
            parts = [p for p in ast.iter_child_nodes(node) if not isinstance(p, ast.comprehension)]
            rest = [p for g in node.generators for p in (g.iter, *g.ifs) if p is not first.iter]
            return self._perhaps([*rest, *parts], state)
        for child in ast.iter_child_nodes(node) if node is not None else ():
            state = self._expression(child, state)
        return state

    def _perhaps(self, nodes: Sequence[ast.AST], state: State) -> State:
        """Expressions that may not be reached: what they bind may be bound."""
        after = state
        for node in nodes:
            after = self._expression(node, after)
        return State(state.sure, after.some)

    def _bind(self, target: ast.AST, state: State) -> State:
        """An assignment to a target."""
        if isinstance(target, ast.Name):
            return self._with(state, target.id)
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                state = self._bind(part, state)
            return state
        if isinstance(target, ast.Starred):
            return self._bind(target.value, state)
        return self._expression(target, state)

    # -- statements -------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt], state: Reached) -> Reached:
        for statement in statements:
            if state is None:
                return None
            state = self._statement(statement, state)
        return state

    def _statement(self, node: ast.stmt, state: State) -> Reached:
        handler = getattr(self, f"_on_{type(node).__name__}", None)
        if handler is not None:
            return handler(node, state)  # type: ignore[no-any-return]
        return self._expression(node, state)

    def _on_Assign(self, node: ast.Assign, state: State) -> Reached:
        state = self._expression(node.value, state)
        for target in node.targets:
            state = self._bind(target, state)
        return state

    def _on_AugAssign(self, node: ast.AugAssign, state: State) -> Reached:
        if isinstance(node.target, ast.Name):
            self._read(node.target, state)
        return self._bind(node.target, self._expression(node.value, state))

    def _on_AnnAssign(self, node: ast.AnnAssign, state: State) -> Reached:
        if node.value is None:
            return state if isinstance(node.target, ast.Name) else self._expression(node.target, state)
        return self._bind(node.target, self._expression(node.value, state))

    def _on_Delete(self, node: ast.Delete, state: State) -> Reached:
        for target in node.targets:
            for part in ast.walk(target) if isinstance(target, ast.Tuple | ast.List) else (target,):
                if isinstance(part, ast.Name):
                    state = self._without(state, part.id)
            if not isinstance(target, ast.Name | ast.Tuple | ast.List):
                state = self._expression(target, state)
        return state

    def _on_Return(self, node: ast.Return, state: State) -> Reached:
        self._expression(node.value, state)
        return None

    def _on_Raise(self, node: ast.Raise, state: State) -> Reached:
        self._expression(node.cause, self._expression(node.exc, state))
        return None

    def _on_Break(self, node: ast.Break, state: State) -> Reached:
        if self._loops:
            self._loops[-1].breaks.append(state)
        return None

    def _on_Continue(self, node: ast.Continue, state: State) -> Reached:
        return None

    def _on_If(self, node: ast.If, state: State) -> Reached:
        state = self._expression(node.test, state)
        if is_type_checking(node.test):
            return self._block(node.orelse, state)
        return join(self._block(node.body, state), self._block(node.orelse, state))

    def _on_While(self, node: ast.While, state: State) -> Reached:
        head = self._expression(node.test, self._looping(node.body, state))
        breaks = self._loop(node.body, head)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return join(None if endless else self._block(node.orelse, head), *breaks)

    def _on_For(self, node: ast.For | ast.AsyncFor, state: State) -> Reached:
        state = self._expression(node.iter, state)
        head = self._looping([node], state)
        breaks = self._loop(node.body, self._bind(node.target, head))
        return join(self._block(node.orelse, head), *breaks)

    _on_AsyncFor = _on_For

    def _loop(self, body: Sequence[ast.stmt], head: State) -> list[Reached]:
        self._loops.append(_Loop())
        self._block(body, head)
        return self._loops.pop().breaks

    def _looping(self, body: Sequence[ast.stmt], state: State) -> State:
        """At the head of a loop: what the turn before may have bound, or deleted."""
        bound, deleted = touched(body)
        sure = state.sure - {self._key(name) for name in deleted}
        return State(sure, state.some | {self._key(name) for name in bound})

    def _on_With(self, node: ast.With | ast.AsyncWith, state: State) -> Reached:
        for item in node.items:
            state = self._expression(item.context_expr, state)
            if item.optional_vars is not None:
                state = self._bind(item.optional_vars, state)
        return self._block(node.body, state)

    _on_AsyncWith = _on_With

    def _on_Try(self, node: ast.Try | ast.TryStar, state: State) -> Reached:
        after = (
            self._block(node.orelse, self._block(node.body, state)) if node.orelse else self._block(node.body, state)
        )
        anywhere = self._looping(node.body, state)
        ends = [after, *(self._handler(handler, anywhere) for handler in node.handlers)]
        whole = self._looping([*node.body, *node.orelse, *(s for h in node.handlers for s in h.body)], state)
        self._block(node.finalbody, whole)
        return self._block(node.finalbody, join(*ends))

    _on_TryStar = _on_Try

    def _handler(self, handler: ast.ExceptHandler, state: State) -> Reached:
        state = self._expression(handler.type, state)
        if handler.name is None:
            return self._block(handler.body, state)
        end = self._block(handler.body, self._with(state, handler.name))
        return None if end is None else self._without(end, handler.name)

    def _on_Match(self, node: ast.Match, state: State) -> Reached:
        state = self._expression(node.subject, state)
        ends: list[Reached] = []
        falls: Reached = state
        for case in node.cases:
            names = [name for part in ast.walk(case.pattern) for name in pattern_names(part)]
            inner = self._expression(case.guard, self._with(self._expression(case.pattern, state), *names))
            ends.append(self._block(case.body, inner))
            if case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                falls = None
        return join(*ends, falls)

    def _on_FunctionDef(self, node: Function, state: State) -> Reached:
        for part in before_body(node, annotations=False):
            state = self._expression(part, state)
        for part in before_body(node, annotations=True):
            if all(name in self._scopes.of_read for name in ast.walk(part) if _is_read(name)):
                state = self._expression(part, state)
        self.made[node] = state
        return self._with(state, node.name)

    _on_AsyncFunctionDef = _on_FunctionDef

    def _on_ClassDef(self, node: ast.ClassDef, state: State) -> Reached:
        if not getattr(node, "type_params", ()):
            for part in (*node.decorator_list, *node.bases, *node.keywords):
                state = self._expression(part, state)
        outer, self._scope = self._scope, self._scopes.of_node[node]
        end = self._block(node.body, state)
        self._scope = outer
        return None if end is None else self._with(end, node.name)

    def _on_Import(self, node: ast.Import | ast.ImportFrom, state: State) -> Reached:
        return self._with(state, *(bound_by(alias) for alias in node.names))

    _on_ImportFrom = _on_Import


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
