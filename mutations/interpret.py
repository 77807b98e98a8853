"""An abstract run of a kernel: its functions, from an entry to the last gradient.

Executes a function on `Value`s instead of tensors, once, in order: branches are joined, loops over known elements
are unrolled, calls of the target's own functions are entered. What each expression was made of is kept in `seen`.
It is no proof: it over-approximates, and what it can't follow becomes "unknown".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from fastlora_verify.mutations.source import ParsedModule, TargetSource
from fastlora_verify.mutations.statements import Statements, absolute_module
from fastlora_verify.mutations.values import NONE, UNKNOWN, Label, Value, elements, join

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


class Interpreter(Statements):
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

    def call_lambda(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        assert isinstance(function.node, cst.Lambda)
        if self.depth >= MAX_DEPTH:
            return Value("call", function.node, args=(*args, *kwargs.values()))
        env = Env(function.env.module, function.env)
        self.bind(function.node.params, args, kwargs, env)
        self.depth += 1
        value = self.eval(function.node.body, env)
        self.depth -= 1
        return value

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


def all_params(params: cst.Parameters) -> list[cst.Param]:
    """Every parameter, starred ones too."""
    found = [*params.posonly_params, *params.params, *params.kwonly_params]
    for star in (params.star_arg, params.star_kwarg):
        if isinstance(star, cst.Param):
            found.append(star)
    return found


__all__ = ["Env", "FunctionRun", "Interpreter", "absolute_module", "all_params"]
