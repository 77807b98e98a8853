"""An abstract run of a kernel: statements.

Executes a function on `Value`s instead of tensors, once, in order: branches are joined, loops over known elements
are unrolled, calls of the target's own functions are entered. What each expression was made of is kept in `seen`.
It is no proof: it over-approximates, and what it can't follow becomes "unknown".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst
from fastlora_verify.mutations.expressions import Expressions
from fastlora_verify.mutations.source import ParsedModule, TargetSource
from fastlora_verify.mutations.tree import children
from fastlora_verify.mutations.values import NONE, UNKNOWN, Label, Value, elements, join, known_items, resolve

MAX_DEPTH = 10


@dataclass
class Env:
    """Names of one function's run, and where its free names are found."""

    module: ParsedModule
    parent: Env | None = None
    names: dict[str, Value] = field(default_factory=dict)
    returns: list[Value] = field(default_factory=list)

    def get(self, name: str) -> Value | None:
        env: Env | None = self
        while env is not None:
            if name in env.names:
                return env.names[name]
            env = env.parent
        return None


@dataclass
class FunctionRun:
    """What one abstract run of an autograd Function showed."""

    ctx: Value
    call: cst.Call  # `Function.apply(…)`
    args: list[Value]
    output: Value
    caller: str  # the phase that called it
    saved: list[Value] = field(default_factory=list)
    gradients: Value | None = None


class Interpreter(Expressions):
    """Runs scopes of a target; `seen[phase][node]` are the values that an expression had there."""

    def __init__(self, source: TargetSource, function: str) -> None:
        self.source = source
        self.function = function  # scope of the kernel's autograd Function
        self.phase = ""
        self.seen: dict[str, dict[cst.CSTNode, list[Value]]] = defaultdict(lambda: defaultdict(list))
        self.returned: dict[cst.CSTNode, list[Value]] = defaultdict(list)
        self.run: FunctionRun | None = None
        self.reads: dict[cst.CSTNode, set[str]] = defaultdict(set)  # of a test: keys it looks up (getattr, get, [])
        self.writes: dict[str, set[str]] = defaultdict(set)  # in a phase: attribute names and keys that are set
        self._reading: list[set[str]] = []
        self.called: dict[tuple[str, cst.CSTNode], set[tuple[str, str]]] = defaultdict(set)  # (phase, call): functions
        self.led_to_kernel: set[tuple[str, str]] = set()  # functions during whose run the kernel was called
        self.depth = 0
        self._modules: dict[str, Env] = {}
        self._closures: dict[int, Env] = {}
        self._stack: list[cst.CSTNode] = []
        self._scopes: list[tuple[str, str]] = []

    # -- environments -----------------------------------------------------------------------------------

    def module_env(self, module: ParsedModule) -> Env:
        """The module's own names: functions, classes, constants, and what it imports from the target."""
        env = self._modules.get(module.name)
        if env is None:
            env = self._modules[module.name] = Env(module)
            outer, self.phase = self.phase, "module"
            self.block(module.tree.body, env)
            self.phase = outer
        return env

    def closure_env(self, module: ParsedModule, scope: str) -> Env:
        """Where the free names of `scope` are found: the enclosing function run on unknown arguments."""
        outer = scope.rpartition(".")[0]
        while outer and isinstance(module.scopes[outer], cst.ClassDef):
            outer = outer.rpartition(".")[0]
        if not outer:
            return self.module_env(module)
        node = module.scopes[outer]
        assert isinstance(node, cst.FunctionDef)
        env = self._closures.get(id(node))
        if env is None:
            env = Env(module, self.closure_env(module, outer))
            self._closures[id(node)] = env
            for param in all_params(node.params):
                env.names[param.name.value] = Value("object", param, name=param.name.value)
            before, self.phase = self.phase, "closure"
            self.block(node.body.body, env)
            self.phase = before
        return env

    # -- calls of the target's own functions --------------------------------------------------------------

    def call_function(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        assert function.scope is not None
        module = self.source.modules[function.scope[0]]
        node = module.scopes[function.scope[1]]
        if not isinstance(node, cst.FunctionDef) or self.depth >= MAX_DEPTH or node in self._stack:
            return Value("call", args=(*args, *kwargs.values()), name=function.scope[1])
        parent = function.env if function.env is not None else self.closure_env(module, function.scope[1])
        env = Env(module, parent)
        self.bind(node.params, args, kwargs, env)
        self.depth += 1
        self._stack.append(node)
        self._scopes.append(function.scope)
        self.block(node.body.body, env)
        self._stack.pop()
        self._scopes.pop()
        self.depth -= 1
        return join(env.returns) if env.returns else NONE

    def bind(self, params: cst.Parameters, args: Sequence[Value], kwargs: dict[str, Value], env: Env) -> None:
        """Bind arguments to parameters; a starred argument of unknown length fills what is left."""
        queue = list(args)
        tail: Value | None = None
        for param in (*params.posonly_params, *params.params):
            name = param.name.value
            if queue and queue[0].kind == "star":
                tail = join(elements(queue[0].args[0]))
            if tail is not None and name not in kwargs:
                env.names[name] = tail
            elif queue:
                env.names[name] = queue.pop(0)
            else:
                env.names[name] = self._keyword(param, kwargs, env)
        if isinstance(params.star_arg, cst.Param):
            items = [q for q in queue if q.kind != "star"]
            rests = [join(elements(q.args[0])) for q in queue if q.kind == "star"]
            rest = join(rests) if rests else None
            env.names[params.star_arg.name.value] = Value("seq", items=tuple(items), rest=rest)
        for param in params.kwonly_params:
            env.names[param.name.value] = self._keyword(param, kwargs, env)
        if params.star_kwarg is not None:
            env.names[params.star_kwarg.name.value] = Value("unknown", args=tuple(kwargs.values()))

    def _keyword(self, param: cst.Param, kwargs: dict[str, Value], env: Env) -> Value:
        name = param.name.value
        if name in kwargs:
            return kwargs[name]
        return self.eval(param.default, env) if param.default is not None else UNKNOWN

    # -- the autograd Function ------------------------------------------------------------------------------

    def apply_function(self, node: cst.Call, args: Sequence[Value]) -> Value:
        """Run forward, then backward, on the arguments of `Function.apply(...)`."""
        module, name, _ = self.source.resolve(self.function)
        before, ctx = self.phase, Value("ctx", node)
        env = self.closure_env(module, f"{name}.forward")
        self.run = FunctionRun(ctx, node, list(args), NONE, self.phase)
        self.led_to_kernel.update(self._scopes)
        self.phase = "forward"
        forward = Value("function", scope=(module.name, f"{name}.forward"), env=env)
        if f"{name}.setup_context" in module.scopes:
            output = self.call_function(forward, args, {})
            setup = Value("function", scope=(module.name, f"{name}.setup_context"), env=env)
            self.call_function(setup, [ctx, Value("seq", items=tuple(args)), output], {})
        else:
            output = self.call_function(forward, [ctx, *args], {})
        self.run.output = output
        self.phase = "backward"
        backward = module.scopes.get(f"{name}.backward")
        if isinstance(backward, cst.FunctionDef):
            dy = Value("source", name="dY", own=frozenset({Label("dY")}))
            count = len(backward.params.params) - 1
            star = [Value("star", args=(Value("seq", items=(), rest=dy),))] if backward.params.star_arg else []
            function = Value("function", scope=(module.name, f"{name}.backward"), env=env)
            self.run.gradients = self.call_function(function, [ctx, *[dy] * count, *star], {})
        self.phase = before
        return output

    # -- statements ---------------------------------------------------------------------------------------

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


def all_params(params: cst.Parameters) -> list[cst.Param]:
    """Every parameter, starred ones too."""
    found = [*params.posonly_params, *params.params, *params.kwonly_params]
    for star in (params.star_arg, params.star_kwarg):
        if isinstance(star, cst.Param):
            found.append(star)
    return found


def absolute_module(node: cst.ImportFrom, module: ParsedModule) -> str:
    """The dotted name that a (perhaps relative) import names."""
    name = module.tree.code_for_node(node.module) if node.module is not None else ""
    if not node.relative:
        return name
    base = module.name.split(".")[: -len(node.relative)]
    return ".".join([*base, *([name] if name else [])])
