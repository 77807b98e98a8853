"""An abstract run of a kernel: statements, and what they assign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import libcst as cst

from fastlora_verify.mutations.expressions import Expressions
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.tree import children
from fastlora_verify.mutations.values import NONE, UNKNOWN, Value, elements, join, known_items, resolve

if TYPE_CHECKING:
    from fastlora_verify.mutations.interpret import Env


class Statements(Expressions):
    """Runs statements; mixed into the interpreter."""

    if TYPE_CHECKING:
        seen: dict[str, dict[cst.CSTNode, list[Value]]]
        returned: dict[cst.CSTNode, list[Value]]
        reads: dict[cst.CSTNode, set[str]]
        writes: dict[str, set[str]]
        _reading: list[set[str]]

    def block(self, body: Sequence[cst.BaseStatement | cst.BaseSmallStatement], env: Env) -> None:
        for statement in body:
            self.statement(statement, env)

    def statement(self, node: cst.CSTNode, env: Env) -> None:
        handler = getattr(self, f"do_{type(node).__name__}", None)
        if handler is not None:
            handler(node, env)

    def do_SimpleStatementLine(self, node: cst.SimpleStatementLine, env: Env) -> None:
        self.block(node.body, env)

    def do_SimpleStatementSuite(self, node: cst.SimpleStatementSuite, env: Env) -> None:
        self.block(node.body, env)

    def do_IndentedBlock(self, node: cst.IndentedBlock, env: Env) -> None:
        self.block(node.body, env)

    def do_Assign(self, node: cst.Assign, env: Env) -> None:
        value = self.eval(node.value, env)
        for target in node.targets:
            self.assign(target.target, value, env)

    def do_AnnAssign(self, node: cst.AnnAssign, env: Env) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, env), env)

    def do_AugAssign(self, node: cst.AugAssign, env: Env) -> None:
        value = self.binary(
            node,
            type(node.operator).__name__.removesuffix("Assign"),
            self.eval(node.target, env),
            self.eval(node.value, env),
        )
        self.note(node, value)
        self.assign(node.target, value, env)

    def do_Expr(self, node: cst.Expr, env: Env) -> None:
        self.eval(node.value, env)

    def do_Return(self, node: cst.Return, env: Env) -> None:
        value = self.eval(node.value, env) if node.value is not None else NONE
        self.returned[node].append(value)
        env.returns.append(value)

    def do_Del(self, node: cst.Del, env: Env) -> None:
        """A deleted name keeps its value: nothing reads it afterwards."""

    def did_read(self, name: str) -> None:
        for names in self._reading:
            names.add(name)

    def did_write(self, name: str) -> None:
        self.writes[self.phase].add(name)

    def do_If(self, node: cst.If, env: Env) -> None:
        self._reading.append(set())
        self.eval(node.test, env)
        self.reads[node.test] |= self._reading.pop()
        before = dict(env.names)
        self.statement(node.body, env)
        taken, env.names = env.names, before
        if node.orelse is not None:
            self.statement(node.orelse, env)
        # What follows an early exit runs on the other branch only.
        if leaves(node.body):
            return
        if node.orelse is not None and leaves(node.orelse):
            env.names = taken
            return
        env.names = merge(taken, env.names)

    def do_Else(self, node: cst.Else, env: Env) -> None:
        self.statement(node.body, env)

    def do_Finally(self, node: cst.Finally, env: Env) -> None:
        self.statement(node.body, env)

    def do_For(self, node: cst.For, env: Env) -> None:
        iterable = self.eval(node.iter, env)
        known = resolve(iterable)
        unrolled = bool(known_items(known))
        for element in elements(iterable):
            before = dict(env.names)
            self.assign(node.target, element, env)
            self.statement(node.body, env)
            if not unrolled:
                env.names = merge(env.names, before)
        if node.orelse is not None:
            self.statement(node.orelse, env)

    def do_While(self, node: cst.While, env: Env) -> None:
        self.eval(node.test, env)
        before = dict(env.names)
        self.statement(node.body, env)
        env.names = merge(env.names, before)

    def do_With(self, node: cst.With, env: Env) -> None:
        for item in node.items:
            value = self.eval(item.item, env)
            if item.asname is not None:
                self.assign(item.asname.name, value, env)
        self.statement(node.body, env)

    def do_Try(self, node: cst.Try, env: Env) -> None:
        self.statement(node.body, env)
        for handler in node.handlers:
            before = dict(env.names)
            self.statement(handler.body, env)
            env.names = merge(env.names, before)
        for block in (node.orelse, node.finalbody):
            if block is not None:
                self.statement(block, env)

    def do_FunctionDef(self, node: cst.FunctionDef, env: Env) -> None:
        self._define(node, "function", env)

    def do_ClassDef(self, node: cst.ClassDef, env: Env) -> None:
        self._define(node, "class", env)

    def _define(self, node: cst.FunctionDef | cst.ClassDef, kind: str, env: Env) -> None:
        name = next((n for n, d in env.module.scopes.items() if d is node), None)
        if name is not None:
            env.names[node.name.value] = Value(kind, node, scope=(env.module.name, name), env=env)

    def do_Match(self, node: cst.Match, env: Env) -> None:
        """Every case on the names before it; a captured name holds the subject or a part of it."""
        subject = self.eval(node.subject, env)
        before = dict(env.names)
        after: dict[str, Value] | None = None
        for case in node.cases:
            env.names = dict(before)
            for name in captured(case.pattern):
                env.names[name] = Value("move", args=(subject,))
            if case.guard is not None:
                self.eval(case.guard, env)
            self.statement(case.body, env)
            if not leaves(case.body):
                after = env.names if after is None else merge(after, env.names)
        env.names = before if after is None else merge(after, before)

    def do_Import(self, node: cst.Import, env: Env) -> None:
        for alias in node.names:
            if str(alias.evaluated_name) in self.source.modules and alias.evaluated_alias is not None:
                env.names[alias.evaluated_alias] = Value("module", name=str(alias.evaluated_name))

    def do_ImportFrom(self, node: cst.ImportFrom, env: Env) -> None:
        if isinstance(node.names, cst.ImportStar):
            return
        package = absolute_module(node, env.module)
        module = self.source.modules.get(package)
        for alias in node.names:
            inner = f"{package}.{alias.evaluated_name}"
            if inner in self.source.modules:
                found: Value | None = Value("module", name=inner)
            else:
                found = self.module_env(module).get(str(alias.evaluated_name)) if module is not None else None
            if found is not None:
                env.names[alias.evaluated_alias or str(alias.evaluated_name)] = found

    # -- assignment ---------------------------------------------------------------------------------------

    def assign(self, target: cst.CSTNode, value: Value, env: Env) -> None:
        if isinstance(target, cst.Name):
            env.names[target.value] = value
        elif isinstance(target, cst.Tuple | cst.List):
            self._unpack(target.elements, value, env)
        elif isinstance(target, cst.Attribute):
            self.set_attribute(self.eval(target.value, env), target.attr.value, value)
        elif isinstance(target, cst.Subscript):
            index = self.index_of(target, env)
            key = resolve(index) if isinstance(index, Value) else UNKNOWN
            if key.kind == "const" and isinstance(key.const, str):
                self.did_write(key.const)
            old = env.get(target.value.value) if isinstance(target.value, cst.Name) else None
            if old is not None and isinstance(target.value, cst.Name):
                env.names[target.value.value] = self.updated(old, index, value)
        elif isinstance(target, cst.StarredElement):
            self.assign(target.value, value, env)

    def _unpack(self, targets: Sequence[cst.BaseElement], value: Value, env: Env) -> None:
        sequence = resolve(value)
        items = list(sequence.items or ()) if sequence.kind == "seq" else []
        if sequence.kind == "needs_grad":
            items = [
                Value("item", args=(value,), attrs={"index": Value("const", const=i)}) for i in range(len(targets))
            ]
        rest = sequence.rest if sequence.kind == "seq" else None
        fallback = rest if rest is not None else join(elements(value)) if not items else UNKNOWN
        star = next((i for i, t in enumerate(targets) if isinstance(t, cst.StarredElement)), None)
        if star is None:
            for i, element in enumerate(targets):
                self.assign(element.value, items[i] if i < len(items) else fallback, env)
            return
        after = len(targets) - star - 1
        last = items[len(items) - after :] if after and len(items) - after >= star else []
        middle = items[star : len(items) - len(last)]
        for i, element in enumerate(targets):
            if i < star:
                self.assign(element.value, items[i] if i < len(items) else fallback, env)
            elif i == star:
                self.assign(element.value, Value("seq", items=tuple(middle), rest=rest), env)
            else:
                j = i - star - 1
                self.assign(element.value, last[j] if j < len(last) else fallback, env)

    def note(self, node: cst.CSTNode, value: Value) -> Value:
        self.seen[self.phase][node].append(value)
        return value


def leaves(block: cst.CSTNode) -> bool:
    """Whether a block ends by leaving the loop's turn or the function."""
    if isinstance(block, cst.Else):
        block = block.body
    if isinstance(block, cst.If):
        return block.orelse is not None and leaves(block.body) and leaves(block.orelse)
    body = getattr(block, "body", ())
    last = body[-1] if body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    if isinstance(last, cst.If):
        return leaves(last)
    return isinstance(last, cst.Return | cst.Continue | cst.Break | cst.Raise)


def captured(pattern: cst.CSTNode) -> Iterator[str]:
    """Names that a pattern of a `case` binds."""
    if isinstance(pattern, cst.MatchAs | cst.MatchStar) and pattern.name is not None:
        yield pattern.name.value
    for part in children(pattern):
        yield from captured(part)


def merge(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """The names after two branches."""
    merged = {}
    for name in [*one, *(n for n in other if n not in one)]:
        found = [d[name] for d in (one, other) if name in d]
        merged[name] = found[0] if len(found) == 1 or found[0] is found[1] else join(found)
    return merged


def absolute_module(node: cst.ImportFrom, module: ParsedModule) -> str:
    """The dotted name that a (perhaps relative) import names."""
    name = module.tree.code_for_node(node.module) if node.module is not None else ""
    if not node.relative:
        return name
    base = module.name.split(".")[: -len(node.relative)]
    return ".".join([*base, *([name] if name else [])])
