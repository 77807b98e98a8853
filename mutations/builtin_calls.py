"""An abstract run of a kernel: Python's own functions, and the methods of lists and dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from fastlora_verify.mutations.torch_calls import ADDS, MULS, fold
from fastlora_verify.mutations.values import NONE, UNKNOWN, Value, elements, entries, join, known_items, resolve

if TYPE_CHECKING:
    from fastlora_verify.mutations.interpret import Env

SAME_ELEMENTS = frozenset({"tuple", "list", "iter", "sorted"})
TESTS = frozenset({"any", "all", "len", "hasattr", "isinstance", "id", "type", "str", "repr", "range", "issubclass"})
GROWS = frozenset({"append", "extend", "insert"})
TAKES = frozenset({"get", "pop", "setdefault"})


class Builtins:
    """Evaluates calls of builtins; mixed into the interpreter."""

    if TYPE_CHECKING:

        def eval(self, node: cst.BaseExpression, env: Env) -> Value: ...
        def attribute(self, holder: Value, name: str, node: cst.CSTNode | None) -> Value: ...
        def set_attribute(self, holder: Value, name: str, value: Value) -> None: ...
        def assign(self, target: cst.CSTNode, value: Value, env: Env) -> None: ...
        def did_read(self, name: str) -> None: ...
        def target_call(
            self, callee: Value, args: list[Value], kwargs: dict[str, Value], node: cst.Call
        ) -> Value | None: ...

    def builtin(self, node: cst.Call, name: str, args: list[Value], kwargs: dict[str, Value], env: Env) -> Value | None:
        """A call by a bare name; None if it means nothing special."""
        if name in {"getattr", "setattr", "hasattr"} and len(args) >= 2:
            return self._by_attribute_name(node, name, args)
        if name in {"float", "int", "bool"} and len(args) == 1:
            return Value("cast", node, tuple(args), name=name)
        if name in SAME_ELEMENTS and args:
            return _row(args[0], node)
        if name == "reversed" and args:
            items = known_items(args[0])
            return resolve(args[0]) if items is None else Value("seq", node, items=tuple(reversed(items)))
        if name in {"zip", "enumerate"} and args:
            return _zipped(args, node) if name == "zip" else _counted(args[0], node)
        if name == "map" and len(args) == 2:
            return self._mapped(node, args)
        if name == "next" and args:
            return self._taken(node.args[0].value, args[0], 0, env)
        if name == "sum" and args:
            parts = [*args[1:], *elements(args[0])]
            return fold(lambda a, b: Value("add", node, (a, b), name="sum"), parts, node)
        if name == "reduce" and len(args) >= 2:
            return self._reduced(node, args)
        if name == "dict":
            return _dict(node, args, kwargs)
        if name in TESTS:
            return _number(name, args, node) or _test(name, args, node)
        return None

    def _by_attribute_name(self, node: cst.Call, name: str, args: list[Value]) -> Value:
        key = resolve(args[1])
        known = key.const if key.kind == "const" and isinstance(key.const, str) else None
        if name == "setattr":
            if known is not None and len(args) == 3:
                self.set_attribute(args[0], known, args[2])
            return NONE
        if known is not None:
            self.did_read(known)
        if name == "hasattr":
            return _test(name, args, node)
        return Value("item", node, (args[0],)) if known is None else self.attribute(args[0], known, node)

    def _mapped(self, node: cst.Call, args: list[Value]) -> Value | None:
        """`map(function, row)`."""
        made = [self.target_call(resolve(args[0]), [element], {}, node) for element in elements(args[1])]
        results = [value for value in made if value is not None]
        if len(results) < len(made) or not made:
            return None
        if known_items(args[1]) is not None:
            return Value("seq", node, items=tuple(results))
        return Value("seq", node, items=(), rest=join(results))

    def _reduced(self, node: cst.Call, args: list[Value]) -> Value | None:
        """`functools.reduce(torch.add, terms)`."""
        function = resolve(args[0])
        parts = [*args[2:], *elements(args[1])]
        if function.kind in {"function", "lambda"}:
            return fold(lambda a, b: self.target_call(function, [a, b], {}, node) or UNKNOWN, parts, node)
        for kind, names in (("add", ADDS | {"iadd"}), ("mul", MULS | {"imul"})):
            if function.name in names:
                return fold(lambda a, b, kind=kind: Value(kind, node, (a, b), name="reduce"), parts, node)  # type: ignore[misc]
        return None

    # -- lists and dicts ----------------------------------------------------------------------------------

    def container(self, node: cst.Call, name: str, receiver: Value, args: list[Value], env: Env) -> Value | None:
        """A method of a list or a dict; None if it is something else's."""
        if name in GROWS:
            return self._grow(node, name, args, env)
        if name in TAKES and args and resolve(args[0]).kind == "const":
            self.did_read(str(resolve(args[0]).const))
        held = resolve(receiver)
        if held.kind == "dict" and entries(held):
            return _of_dict(held, name, args, node)
        if name == "pop" and known_items(held):
            assert isinstance(node.func, cst.Attribute)
            index = resolve(args[0]).const if args else -1
            return self._taken(node.func.value, receiver, index if isinstance(index, int) else -1, env)
        if name == "get" and args:
            return Value("item", node, (receiver, *args[1:]))
        return None

    def _taken(self, holder: cst.BaseExpression, value: Value, index: int, env: Env) -> Value:
        """An element taken out of a list or an iterator that has a name."""
        items = known_items(value)
        if not items or not -len(items) <= index < len(items):
            found = elements(value)
            return join(found) if found else UNKNOWN
        rest = list(items)
        taken = rest.pop(index)
        if isinstance(holder, cst.Name):
            self.assign(holder, Value("seq", resolve(value).node, items=tuple(rest)), env)
        return taken

    def _grow(self, node: cst.Call, name: str, args: list[Value], env: Env) -> Value:
        assert isinstance(node.func, cst.Attribute)
        holder = node.func.value
        current = resolve(self.eval(holder, env))
        if isinstance(holder, cst.Name) and current.kind == "seq" and args:
            self.assign(holder, _grown(current, name, args[-1]), env)
        return NONE


def _grown(current: Value, name: str, added: Value) -> Value:
    items, rest = list(current.items or ()), current.rest
    if name == "append" and rest is None:
        items.append(added)
    elif name == "extend" and rest is None and known_items(added) is not None:
        items.extend(known_items(added) or ())
    else:
        more = elements(added) if name == "extend" else (added,)
        rest = join([*([rest] if rest is not None else []), *more]) if more else rest
    return Value("seq", current.node, items=tuple(items), rest=rest)


def _row(value: Value, node: cst.CSTNode) -> Value:
    held = resolve(value)
    if held.kind == "dict" and entries(held):
        return Value("seq", node, items=elements(held))
    return held


def _dict(node: cst.CSTNode, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`dict(other)`, `dict(pairs)`, `dict(key=value)`."""
    attrs: dict[str, Value] = {}
    for given in args:
        attrs |= resolve(given).attrs if resolve(given).kind == "dict" else _pairs(given)
    attrs |= {f"[{key!r}]": value for key, value in kwargs.items()}
    return Value("dict", node, (*args, *kwargs.values()), attrs=attrs)


def _pairs(value: Value) -> dict[str, Value]:
    pairs = [known_items(pair) for pair in known_items(value) or ()]
    if any(pair is None or len(pair) != 2 or resolve(pair[0]).kind != "const" for pair in pairs):
        return {}
    return {f"[{resolve(pair[0]).const!r}]": pair[1] for pair in pairs if pair is not None}


def _of_dict(held: Value, name: str, args: list[Value], node: cst.CSTNode) -> Value | None:
    known = entries(held)
    keys = [Value("const", const=key) for key in known]
    if name == "items":
        pairs = zip(keys, known.values(), strict=True)
        return Value("seq", node, items=tuple(Value("seq", items=pair) for pair in pairs))
    if name in {"keys", "values"}:
        return Value("seq", node, items=tuple(keys if name == "keys" else known.values()))
    if name in TAKES and args:
        key = resolve(args[0])
        found = [known[key.const]] if key.kind == "const" and key.const in known else list(known.values())
        return Value("use", node, (join([*found, *args[1:]]),))
    return None


def _test(name: str, args: list[Value], node: cst.CSTNode) -> Value:
    return Value("test", node, attrs={f"arg{i}": a for i, a in enumerate(args)}, name=name)


def _number(name: str, args: list[Value], node: cst.CSTNode) -> Value | None:
    """`len` of a known row, `range` of known numbers."""
    if name == "len" and args:
        items = known_items(args[0])
        return Value("const", node, const=len(items)) if items is not None else None
    bounds = [resolve(a).const for a in args]
    if name == "range" and all(isinstance(b, int) for b in bounds) and 1 <= len(bounds) <= 3:
        numbers = range(*bounds)
        return Value("seq", node, items=tuple(Value("const", const=n) for n in numbers)) if len(numbers) < 64 else None
    return None


def _counted(value: Value, node: cst.CSTNode) -> Value:
    pairs = (Value("seq", items=(Value("const", const=i), e)) for i, e in enumerate(elements(value)))
    return Value("seq", node, items=tuple(pairs))


def _zipped(args: list[Value], node: cst.CSTNode) -> Value:
    columns = [known_items(a) for a in args]
    known = [len(c) for c in columns if c is not None]
    if not known:
        return Value("seq", node, items=(), rest=Value("seq", items=tuple(join(elements(a)) for a in args)))
    rows = []
    for i in range(min(known)):
        cells = [join(elements(a)) if c is None else c[i] for a, c in zip(args, columns, strict=True)]
        rows.append(Value("seq", items=tuple(cells)))
    return Value("seq", node, items=tuple(rows))
