"""An abstract run of a kernel: calls of the target's own functions, and those with a meaning of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from fastlora_verify.mutations.builtin_calls import Builtins
from fastlora_verify.mutations.torch_calls import torch_call
from fastlora_verify.mutations.values import NONE, UNKNOWN, Value, elements, entries, join, known_items, resolve

if TYPE_CHECKING:
    from fastlora_verify.mutations.interpret import Env, FunctionRun
    from fastlora_verify.mutations.source import ParsedModule, TargetSource

OWN = frozenset({"function", "method", "class", "lambda"})  # callees of the target's own
# Names that many classes have: a call of one says nothing about whose method it is.
COMMON_METHODS = frozenset({"forward", "get", "append", "items", "keys", "values", "apply", "copy", "update", "pop"})
SAME_LAYER_CALLS = frozenset({"get_base_layer"})


class Calls(Builtins):
    """Evaluates calls; mixed into the interpreter."""

    if TYPE_CHECKING:
        source: TargetSource
        function: str
        phase: str
        run: FunctionRun | None
        called: dict[tuple[str, cst.CSTNode], set[tuple[str, str]]]

        def note(self, node: cst.CSTNode, value: Value) -> Value: ...
        def module_env(self, module: ParsedModule) -> Env: ...
        def closure_env(self, module: ParsedModule, scope: str) -> Env: ...
        def call_function(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value: ...
        def call_lambda(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value: ...
        def apply_function(self, node: cst.Call, args: list[Value]) -> Value: ...

    def eval_Call(self, node: cst.Call, env: Env) -> Value:
        func = node.func
        receiver: Value | None = None
        if isinstance(func, cst.Attribute):
            receiver = self.eval(func.value, env)
            name = func.attr.value
            callee = self._method(receiver, name)
        else:
            name = func.value if isinstance(func, cst.Name) else ""
            callee = resolve(self.eval(func, env))
        args, kwargs = self._arguments(node, env)
        if callee is None or callee.kind not in OWN:
            special = self._special(node, name, receiver, callee, args, kwargs, env)
            if special is not None:
                return special
        called = self.target_call(callee, args, kwargs, node) if callee is not None else None
        if called is not None:
            return called
        value = torch_call(node, name, receiver, args, kwargs)
        self._left_in_place(node, value, env)
        return value

    def _method(self, receiver: Value, name: str) -> Value | None:
        """A function of a target module, a method that was set on an object, or the one method of that name."""
        value = resolve(receiver)
        if name in value.attrs:
            return resolve(value.attrs[name])
        if value.kind == "module":
            return resolve(self.attribute(value, name, None))
        if value.scope is not None and value.kind in {"object", "instance"}:
            scope = f"{value.scope[1]}.{name}"
            if isinstance(self.source.modules[value.scope[0]].scopes.get(scope), cst.FunctionDef):
                return Value("method", scope=(value.scope[0], scope), args=(receiver,))
            kept = self.class_variable(value.scope, name)
            if kept is not None:
                return resolve(kept)
        if value.kind in {"object", "unknown", "instance", "join"} and name not in COMMON_METHODS:
            found = self.source.methods.get(name, ())
            if len(found) == 1:
                return Value("method", scope=found[0], args=(receiver,))
        return None

    def class_variable(self, scope: tuple[str, str], name: str) -> Value | None:
        """What a target class assigns to a name in its body: `product = Product.apply`."""
        module = self.source.modules[scope[0]]
        cls = module.scopes.get(scope[1])
        for line in cls.body.body if isinstance(cls, cst.ClassDef) else ():
            for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                targets = small.targets if isinstance(small, cst.Assign) else ()
                if any(isinstance(t.target, cst.Name) and t.target.value == name for t in targets):
                    assert isinstance(small, cst.Assign)
                    return self.eval(small.value, self.module_env(module))
        return None

    def _arguments(self, node: cst.Call, env: Env) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        for arg in node.args:
            value = self.eval(arg.value, env)
            if arg.star == "*":
                known = known_items(value)
                args.extend(known) if known is not None else args.append(Value("star", args=(value,)))
            elif arg.star == "**":
                named = entries(resolve(value))
                kwargs.update({str(key): v for key, v in named.items()} if named else {"**": value})
            elif arg.keyword is not None:
                kwargs[arg.keyword.value] = value
            else:
                args.append(value)
        return args, kwargs

    # -- the target's own functions -----------------------------------------------------------------------

    def target_call(self, callee: Value, args: list[Value], kwargs: dict[str, Value], node: cst.Call) -> Value | None:
        if callee.kind == "join":
            found = [r for a in callee.args if (r := self.target_call(resolve(a), args, kwargs, node)) is not None]
            return join(found) if found else None
        if callee.kind in {"function", "method"} and callee.scope is not None:
            self.called[self.phase, node].add(callee.scope)
        if callee.kind == "function":
            return self.call_function(callee, args, kwargs)
        if callee.kind == "method":
            return self.call_function(Value("function", scope=callee.scope), [callee.args[0], *args], kwargs)
        if callee.kind == "lambda":
            return self.call_lambda(callee, args, kwargs)
        if callee.kind == "class":
            return self._construct(callee, args, kwargs, node)
        return None

    def _construct(self, cls: Value, args: list[Value], kwargs: dict[str, Value], node: cst.Call) -> Value:
        """An instance of a target class: by its `__init__`, or by the annotated fields that name its arguments."""
        assert isinstance(cls.node, cst.ClassDef) and cls.scope is not None
        module = self.source.modules[cls.scope[0]]
        name = cls.node.name.value
        if isinstance(module.scopes.get(f"{cls.scope[1]}.__init__"), cst.FunctionDef):
            made = Value("instance", node, name=name, scope=cls.scope)
            start = Value("function", scope=(cls.scope[0], f"{cls.scope[1]}.__init__"))
            self.call_function(start, [made, *args], kwargs)
            return Value("instance", node, attrs=made.attrs, name=name, scope=cls.scope)
        attrs: dict[str, Value] = {}
        for field, default in _fields(cls.node):
            if args and args[0].kind == "star":
                attrs[field] = join(elements(args[0].args[0]))
            elif args:
                attrs[field] = args.pop(0)
            elif field in kwargs:
                attrs[field] = kwargs[field]
            else:
                attrs[field] = self.eval(default, self.module_env(module)) if default is not None else NONE
        return Value("instance", node, attrs=attrs, name=name, scope=cls.scope)

    # -- calls with a meaning of their own ----------------------------------------------------------------

    def _special(
        self,
        node: cst.Call,
        name: str,
        receiver: Value | None,
        callee: Value | None,
        args: list[Value],
        kwargs: dict[str, Value],
        env: Env,
    ) -> Value | None:
        if callee is not None and callee.name == "apply" and callee.args and self._is_function(callee.args[0]):
            return self.apply_function(node, args)  # `fused = Function.apply`
        if receiver is None:
            return self.builtin(node, name, args, kwargs, env)
        held = resolve(receiver)
        if name == "apply" and self._is_function(receiver):
            return self.apply_function(node, args)
        if name == "save_for_backward" and held.kind == "ctx":
            return self._save(held, args, node)
        if name in SAME_LAYER_CALLS:
            return Value("object", node, path=held.path, attrs=held.attrs, scope=held.scope)
        if name == "reduce" and held.kind == "library":
            return self.builtin(node, name, args, kwargs, env)
        return self.container(node, name, receiver, args, env)

    def _is_function(self, receiver: Value) -> bool:
        value = resolve(receiver)
        if value.kind == "join":
            return any(self._is_function(a) for a in value.args)
        if value.scope is not None:
            return value.kind == "class" and f"{value.scope[0]}:{value.scope[1]}" == self.function
        return False

    def _left_in_place(self, node: cst.Call, value: Value, env: Env) -> None:
        """`t.add_(u)` leaves its result in `t`, `torch.add(t, u, out=v)` in `v`."""
        out = next((a.value for a in node.args if a.keyword is not None and a.keyword.value == "out"), None)
        target: cst.BaseExpression = node
        while out is None and isinstance(target, cst.Call) and isinstance(target.func, cst.Attribute):
            if not target.func.attr.value.endswith("_") or target.func.attr.value.startswith("_"):
                break
            target = target.func.value  # of `t.mul_(u).add_(v)` it is `t`, too
        if out is None and target is not node:
            out = target
        if isinstance(out, cst.Name):
            self.assign(out, value, env)

    # -- the autograd Function ------------------------------------------------------------------------------

    def ctx_attribute(self, ctx: Value, name: str, node: cst.CSTNode | None) -> Value:
        if name == "needs_input_grad":
            return Value("needs_grad", node, name=name)
        if name == "saved_tensors":
            return UNKNOWN
        return Value("unknown", node, name=name)

    def _save(self, ctx: Value, args: list[Value], node: cst.Call) -> Value:
        items: list[Value] = []
        rest: Value | None = None
        for arg in args:
            whole = known_items(arg.args[0]) if arg.kind == "star" and rest is None else None
            if whole is not None:
                items += whole
            elif arg.kind == "star":
                found = elements(arg.args[0])
                rest = join([*([rest] if rest is not None else []), *found])
            elif rest is None:
                items.append(arg)
            else:
                rest = join([rest, arg])
        old = ctx.attrs.get("[saved]")
        saved = Value("seq", node, items=tuple(items), rest=rest)
        ctx.attrs["[saved]"] = saved if old is None else join([old, saved])
        ctx.attrs["saved_tensors"] = ctx.attrs["[saved]"]
        if self.run is not None:
            self.run.saved.append(saved)
        return NONE


def _fields(cls: cst.ClassDef) -> Iterator[tuple[str, cst.BaseExpression | None]]:
    """The annotated fields of a NamedTuple or dataclass, with their defaults."""
    for line in cls.body.body:
        for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                yield small.target.value, small.value
