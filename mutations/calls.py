"""An abstract run of a kernel: calls, torch's own and the target's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst
from fastlora_verify.mutations.values import NONE, UNKNOWN, Label, Value, elements, join, resolve

if TYPE_CHECKING:
    from fastlora_verify.mutations.interpret import Env, FunctionRun
    from fastlora_verify.mutations.source import ParsedModule, TargetSource

MATMULS = frozenset({"matmul", "mm", "bmm", "linear", "einsum", "matmul_lora"})
FUSED_ADDS = frozenset({"addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm"})
ADDS = frozenset({"add", "add_"})
MULS = frozenset({"mul", "mul_", "multiply"})
DIVS = frozenset({"div", "div_", "divide", "true_divide"})
CASTS = frozenset({"to", "float", "half", "bfloat16", "double", "type", "type_as"})
MOVES = frozenset({
    "t", "transpose", "transpose_", "permute", "reshape", "view", "flatten", "unflatten", "contiguous", "expand",
    "expand_as", "squeeze", "unsqueeze", "narrow", "detach", "clone", "requires_grad_", "movedim", "view_as",
    "adjoint", "swapaxes", "split", "chunk", "tensor_split", "unbind", "split_with_sizes", "sum_to_size",
})  # fmt: skip
MASKS = frozenset({"bernoulli", "bernoulli_", "rand", "rand_like", "dropout", "native_dropout", "feature_dropout"})
TENSOR_FACTS = frozenset({
    "numel", "dim", "size", "is_floating_point", "element_size", "data_ptr", "is_contiguous", "promote_types",
    "result_type", "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_enabled", "stride", "nelement",
})  # fmt: skip
# Tensors that take only dtype and device from what they are made from.
FRESH = frozenset({
    "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "empty_like", "zeros_like", "ones_like",
    "empty", "zeros", "ones", "full", "tensor",
})  # fmt: skip
# Names that many classes have: a call of one says nothing about whose method it is.
COMMON_METHODS = frozenset({"forward", "get", "append", "items", "keys", "values", "apply", "copy", "update", "pop"})
SAME_LAYER_CALLS = frozenset({"get_base_layer"})


class Calls:
    """Evaluates calls; mixed into the interpreter."""

    if TYPE_CHECKING:
        source: TargetSource
        function: str
        phase: str
        run: FunctionRun | None

        def eval(self, node: cst.BaseExpression, env: Env) -> Value: ...
        def attribute(self, holder: Value, name: str, node: cst.CSTNode | None) -> Value: ...
        def set_attribute(self, holder: Value, name: str, value: Value) -> None: ...
        def assign(self, target: cst.CSTNode, value: Value, env: Env) -> None: ...
        def did_read(self, name: str) -> None: ...
        def note(self, node: cst.CSTNode, value: Value) -> Value: ...
        def module_env(self, module: ParsedModule) -> Env: ...
        def closure_env(self, module: ParsedModule, scope: str) -> Env: ...
        def apply_function(self, node: cst.Call, args: list[Value]) -> Value: ...
        def call_function(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> Value: ...

    def eval_Call(self, node: cst.Call, env: Env) -> Value:
        func = node.func
        receiver: Value | None = None
        if isinstance(func, cst.Attribute):
            receiver = self.eval(func.value, env)
            name = func.attr.value
            callee = self._method(receiver, name)
        elif isinstance(func, cst.Name):
            name = func.value
            callee = resolve(self.eval(func, env))
        else:
            name, callee = "", resolve(self.eval(func, env))
        args, kwargs = self._arguments(node, env)
        special = self._special(node, name, receiver, args, env)
        if special is not None:
            return special
        if callee is not None:
            called = self._target_call(callee, args, kwargs, node)
            if called is not None:
                return called
        value = self._torch(node, name, receiver, args, kwargs)
        if receiver is not None and name.endswith("_") and not name.startswith("_"):
            self._in_place(func, value, env)
        return value

    def _method(self, receiver: Value, name: str) -> Value | None:
        """A function of another target module (`module.function(…)`) or a method that was set on an object."""
        value = resolve(receiver)
        if name in value.attrs:
            return resolve(value.attrs[name])
        if value.kind in {"object", "unknown", "instance", "join"} and name not in COMMON_METHODS:
            found = self.source.methods.get(name, ())
            if len(found) == 1:
                return Value("method", scope=found[0], args=(receiver,))
        return None

    def _arguments(self, node: cst.Call, env: Env) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        for arg in node.args:
            value = self.eval(arg.value, env)
            if arg.star == "*":
                inner = resolve(value)
                known = inner.kind == "seq" and inner.rest is None
                args.extend(inner.items or ()) if known else args.append(Value("star", args=(value,)))
            elif arg.star == "**":
                kwargs["**"] = value
            elif arg.keyword is not None:
                kwargs[arg.keyword.value] = value
            else:
                args.append(value)
        return args, kwargs

    # -- the target's own functions -----------------------------------------------------------------------

    def _target_call(self, callee: Value, args: list[Value], kwargs: dict[str, Value], node: cst.Call) -> Value | None:
        if callee.kind == "join":
            found = [r for a in callee.args if (r := self._target_call(resolve(a), args, kwargs, node)) is not None]
            return join(found) if found else None
        if callee.kind == "function":
            return self.call_function(callee, args, kwargs)
        if callee.kind == "method":
            return self.call_function(Value("function", scope=callee.scope), [callee.args[0], *args], kwargs)
        if callee.kind == "class":
            return self._construct(callee, args, kwargs, node)
        return None

    def _construct(self, cls: Value, args: list[Value], kwargs: dict[str, Value], node: cst.Call) -> Value:
        """An instance of a target class whose annotated fields name its arguments (NamedTuple, dataclass)."""
        assert isinstance(cls.node, cst.ClassDef)
        fields = [
            small.target.value
            for line in cls.node.body.body
            if isinstance(line, cst.SimpleStatementLine)
            for small in line.body
            if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name)
        ]
        attrs: dict[str, Value] = {}
        for field in fields:
            if args and args[0].kind == "star":
                attrs[field] = join(elements(args[0].args[0]))
            elif args:
                attrs[field] = args.pop(0)
            else:
                attrs[field] = kwargs.get(field, NONE)
        return Value("instance", node, attrs=attrs, name=cls.node.name.value)

    # -- calls with a meaning of their own ----------------------------------------------------------------

    def _special(self, node: cst.Call, name: str, receiver: Value | None, args: list[Value], env: Env) -> Value | None:
        if receiver is not None:
            if name == "apply" and self._is_function(receiver):
                return self.apply_function(node, args)
            if name == "save_for_backward" and resolve(receiver).kind == "ctx":
                return self._save(resolve(receiver), args, node)
            if name in SAME_LAYER_CALLS:
                held = resolve(receiver)
                return Value("object", node, path=held.path, attrs=held.attrs)
            if name in {"append", "extend", "insert"}:
                return self._grow(node, name, args, env)
            if name in {"get", "pop", "setdefault"} and args and resolve(args[0]).kind == "const":
                self.did_read(str(resolve(args[0]).const))
            if name == "get" and args:
                return Value("item", node, (receiver, *args[1:]))
            return None
        return self._builtin(node, name, args)

    def _builtin(self, node: cst.Call, name: str, args: list[Value]) -> Value | None:
        if name == "getattr" and len(args) >= 2:
            key = resolve(args[1])
            if key.kind == "const" and isinstance(key.const, str):
                self.did_read(key.const)
                return self.attribute(args[0], key.const, node)
            return Value("item", node, (args[0],))
        if name == "setattr" and len(args) == 3:
            key = resolve(args[1])
            if key.kind == "const" and isinstance(key.const, str):
                self.set_attribute(args[0], key.const, args[2])
            return NONE
        if name in {"float", "int", "bool"} and len(args) == 1:
            return Value("cast", node, tuple(args), name=name)
        if name in {"tuple", "list", "iter", "reversed", "sorted"} and len(args) >= 1:
            return resolve(args[0]) if name != "reversed" else _reversed(args[0], node)
        if name == "zip":
            return _zipped(args, node)
        if name == "enumerate" and args:
            pairs = [Value("seq", items=(Value("const", const=i), e)) for i, e in enumerate(elements(args[0]))]
            return Value("seq", node, items=tuple(pairs))
        if name == "hasattr" and len(args) == 2 and resolve(args[1]).kind == "const":
            self.did_read(str(resolve(args[1]).const))
        if name in {
            "any",
            "all",
            "len",
            "hasattr",
            "isinstance",
            "id",
            "type",
            "str",
            "repr",
            "range",
            "issubclass",
        }:
            return Value("test", node, attrs={f"arg{i}": a for i, a in enumerate(args)}, name=name)
        return None

    def _is_function(self, receiver: Value) -> bool:
        value = resolve(receiver)
        if value.kind == "join":
            return any(self._is_function(a) for a in value.args)
        if value.scope is not None:
            return value.kind == "class" and f"{value.scope[0]}:{value.scope[1]}" == self.function
        return False

    def _grow(self, node: cst.Call, name: str, args: list[Value], env: Env) -> Value:
        assert isinstance(node.func, cst.Attribute)
        holder = node.func.value
        current = resolve(self.eval(holder, env))
        if isinstance(holder, cst.Name) and current.kind == "seq" and args:
            items, rest = list(current.items or ()), current.rest
            added = args[-1]
            if name == "append" and rest is None:
                items.append(added)
            else:
                more = elements(added) if name == "extend" else (added,)
                inner = resolve(added)
                if name == "extend" and rest is None and inner.kind == "seq" and inner.rest is None:
                    items.extend(more)
                elif more:
                    rest = join([*([rest] if rest is not None else []), *more])
            self.assign(holder, Value("seq", current.node, items=tuple(items), rest=rest), env)
        return NONE

    def _in_place(self, func: cst.BaseExpression, value: Value, env: Env) -> None:
        """`t.add_(u)` leaves its result in `t`."""
        assert isinstance(func, cst.Attribute)
        if isinstance(func.value, cst.Name):
            self.assign(func.value, value, env)

    # -- torch ---------------------------------------------------------------------------------------------

    def _torch(
        self, node: cst.Call, name: str, receiver: Value | None, args: list[Value], kwargs: dict[str, Value]
    ) -> Value:
        is_method = receiver is not None and resolve(receiver).kind != "unknown"
        operands = ([receiver] if is_method and receiver is not None else []) + args
        everything = (*operands, *kwargs.values())
        named = dict(kwargs)
        if name in TENSOR_FACTS:
            return Value("meta", node, name=name, attrs={f"arg{i}": a for i, a in enumerate(everything)})
        if name in FRESH:
            return Value("fresh", node, name=name)
        if name in MASKS:
            return Value("source", node, name=name, own=frozenset({Label("mask")}))
        for kind, names in (
            ("matmul", MATMULS), ("fused_add", FUSED_ADDS), ("add", ADDS), ("mul", MULS), ("div", DIVS),
        ):  # fmt: skip
            if name in names:
                return Value(kind, node, everything, name=name, attrs=named)
        if name in CASTS and operands:
            return Value(
                "cast",
                node,
                (operands[0],),
                name=name,
                attrs={f"arg{i}": a for i, a in enumerate(operands[1:])},
            )
        if name in MOVES and operands:
            return Value("move", node, (operands[0],), name=name)
        if name in {"cat", "concat", "concatenate", "stack", "hstack", "vstack"} and operands:
            return Value("cat", node, (operands[0],), name=name, attrs=named)
        if not everything and not is_method:
            return Value("call", node, name=name)
        return Value("call", node, everything, name=name, attrs=named)

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
            if arg.kind == "star":
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


def _reversed(value: Value, node: cst.CSTNode) -> Value:
    inner = resolve(value)
    if inner.kind == "seq" and inner.rest is None:
        return Value("seq", node, items=tuple(reversed(inner.items or ())))
    return inner


def _zipped(args: list[Value], node: cst.CSTNode) -> Value:
    columns = [resolve(a) for a in args]
    known = [len(c.items or ()) for c in columns if c.kind == "seq" and c.rest is None]
    if not known:
        return Value("seq", node, items=(), rest=Value("seq", items=tuple(join(elements(c)) for c in columns)))
    rows = []
    for i in range(min(known)):
        rows.append(Value("seq", items=tuple(_nth(c, i) for c in columns)))
    return Value("seq", node, items=tuple(rows))


def _nth(column: Value, i: int) -> Value:
    items: Any = column.items or ()
    if column.kind == "seq" and i < len(items):
        found: Value = items[i]
        return found
    return join(elements(column))
