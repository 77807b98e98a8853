"""An abstract run of a kernel: attributes and subscripts, and what PEFT's attribute names say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from fastlora_verify.mutations.calls import Calls
from fastlora_verify.mutations.values import UNKNOWN, Label, Value, elements, join, known_items, resolve

if TYPE_CHECKING:
    from fastlora_verify.mutations.interpret import Env

# Attribute names of PEFT, bitsandbytes and torch: the only spelling that the analysis leans on.
LAYER_ATTRIBUTES = {
    "lora_A": "A",
    "lora_B": "B",
    "scaling": "scaling",
    "lora_alpha": "scaling",
    "lora_dropout": "dropout",
    "weight": "W",
    "bias": "bias",
    "quant_state": "quant",
    "compute_dtype": "compute_dtype",
}
METADATA = frozenset({"dtype", "shape", "device", "ndim", "requires_grad", "is_cuda", "itemsize", "layout"})
SAME_LAYER = frozenset({"base_layer"})
MOVES = frozenset({"T", "mT", "H", "data"})


class Attributes(Calls):
    """Evaluates attributes and subscripts; mixed into the interpreter."""

    if TYPE_CHECKING:

        def did_write(self, name: str) -> None: ...

    # -- attributes ---------------------------------------------------------------------------------------

    def eval_Attribute(self, node: cst.Attribute, env: Env) -> Value:
        return self.attribute(self.eval(node.value, env), node.attr.value, node)

    def attribute(self, holder: Value, name: str, node: cst.CSTNode | None) -> Value:
        """Read `holder.name`: a field that was set, a word of PEFT's, a child module, or a tensor's property."""
        options = list(one_or_all(holder))
        if len(options) > 1:
            return join([self.attribute(o, name, node) for o in options])
        value = options[0]
        if value.kind == "none":
            return UNKNOWN
        if value.kind == "library":  # torch.nn.functional
            return Value("library", node, name=name)
        if name in value.attrs:
            return Value("use", node, (value.attrs[name],))
        if value.kind == "module":
            found = self.module_env(self.source.modules[value.name]).get(name)
            return Value("use", node, (found,)) if found is not None else UNKNOWN
        if value.kind == "instance" and value.scope is not None:
            method = self._property(value, name)
            if method is not None:
                return self.call_function(method, [holder], {})
        if value.kind == "ctx":
            return self.ctx_attribute(value, name, node)
        if value.kind in {"object", "self"}:
            return self._layer_attribute(value, name, node)
        if name in METADATA:
            return Value("meta", node, name=name, attrs={"of": holder})
        if name in MOVES:
            return Value("move", node, (holder,), name=name)
        return self._tensor_attribute(value, holder, name, node)

    def _property(self, value: Value, name: str) -> Value | None:
        assert value.scope is not None
        scope = f"{value.scope[1]}.{name}"
        node = self.source.modules[value.scope[0]].scopes.get(scope)
        if not isinstance(node, cst.FunctionDef):
            return None
        words = {getattr(getattr(d.decorator, "attr", d.decorator), "value", "") for d in node.decorators}
        return Value("function", scope=(value.scope[0], scope)) if words & {"property", "cached_property"} else None

    def _layer_attribute(self, value: Value, name: str, node: cst.CSTNode | None) -> Value:
        if name in SAME_LAYER:
            return Value("object", node, path=value.path, attrs=value.attrs, scope=value.scope)
        kind = LAYER_ATTRIBUTES.get(name)
        if kind is not None:
            sibling = value.path.rpartition(".")[2]
            return Value("source", node, name=name, own=frozenset({Label(kind, sibling)}), path="layer")
        path = f"{value.path}.{name}" if value.path else name
        return Value("object", node, path=path, name=name)

    def _tensor_attribute(self, value: Value, holder: Value, name: str, node: cst.CSTNode | None) -> Value:
        kinds = value.kinds
        if name == "quant_state" and kinds & {"W"}:
            siblings = value.siblings
            return Value("source", node, name=name, own=frozenset(Label("quant", s) for s in siblings))
        if name == "bias" and "B" in kinds:
            return Value("source", node, name=name, own=frozenset({Label("lora_bias", s) for s in value.siblings}))
        if kinds and kinds <= {"dropout"} and name != "p":
            return Value("flag", node, name=name, attrs={"of": holder})
        return Value("field", node, (holder,), name=name)

    def set_attribute(self, holder: Value, name: str, value: Value) -> None:
        self.did_write(name)
        for option in one_or_all(holder):
            if option.kind == "ctx":
                old = option.attrs.get(name)
                option.attrs[name] = value if old is None else join([old, value])
            elif option.kind in {"object", "instance"}:
                option.attrs.setdefault(name, value)

    # -- subscripts ---------------------------------------------------------------------------------------

    def index_of(self, node: cst.Subscript, env: Env) -> Value | tuple[Any, Any]:
        """The index as a value, or constant slice bounds (None where open, "?" where unknown)."""
        if len(node.slice) != 1:
            for element in node.slice:
                self._slice_parts(element.slice, env)
            return UNKNOWN
        part = node.slice[0].slice
        return self._slice_parts(part, env)

    def _slice_parts(self, part: cst.BaseSlice, env: Env) -> Value | tuple[Any, Any]:
        if isinstance(part, cst.Index):
            return self.eval(part.value, env)
        assert isinstance(part, cst.Slice)
        bounds: list[Any] = []
        for bound in (part.lower, part.upper):
            if bound is None:
                bounds.append(None)
                continue
            value = resolve(self.eval(bound, env))
            bounds.append(value.const if value.kind == "const" and isinstance(value.const, int) else "?")
        return bounds[0], bounds[1]

    def eval_Subscript(self, node: cst.Subscript, env: Env) -> Value:
        holder = self.eval(node.value, env)
        index = self.index_of(node, env)
        return join([self._subscript(o, holder, index, node) for o in one_or_all(holder)])

    def _subscript(self, value: Value, holder: Value, index: Value | tuple[Any, Any], node: cst.Subscript) -> Value:
        if isinstance(index, Value):
            key = resolve(index)
            if key.kind == "const" and isinstance(key.const, str):
                self.did_read(key.const)
            if key.kind == "const" and f"[{key.const!r}]" in value.attrs:
                return Value("use", node, (value.attrs[f"[{key.const!r}]"],))
            if value.kind == "seq":
                return Value("use", node, (pick(value, key),))
            if value.kind in {"object", "self", "source", "unknown", "dict", "needs_grad"}:
                attrs = {"index": index} if value.kind == "needs_grad" else {}
                return Value("item", node, (holder,), attrs=attrs)
            return Value("move", node, (holder,), name="index")
        if value.kind == "seq":
            return cut(value, index, node)
        return Value("move", node, (holder,), name="slice")

    def updated(self, old: Value, index: Value | tuple[Any, Any], value: Value) -> Value:
        """A sequence or dict after `old[index] = value`; an unknown index may have met any element."""
        current = resolve(old)
        key = resolve(index) if isinstance(index, Value) else UNKNOWN
        if current.kind == "dict":
            attrs = dict(current.attrs)
            if key.kind == "const":
                attrs[f"[{key.const!r}]"] = value
            return Value("dict", current.node, (*current.args, value), attrs=attrs)
        if current.kind != "seq":  # a tensor, written in part
            return value if current.kind == "fresh" else join([old, value])
        items = list(current.items or ())
        if key.kind == "const" and isinstance(key.const, int) and -len(items) <= key.const < len(items):
            items[key.const] = value
            return Value("seq", current.node, items=tuple(items), rest=current.rest)
        placed = known_items(value)
        if not isinstance(index, Value) and "?" not in index and placed is not None and current.rest is None:
            items[slice(*index)] = placed
            return Value("seq", current.node, items=tuple(items))
        items = [join([i, value]) for i in items]
        rest = join([current.rest, value]) if current.rest is not None else current.rest
        if not items and rest is None:
            rest = value
        return Value("seq", current.node, items=tuple(items), rest=rest)


def one_or_all(value: Value) -> list[Value]:
    """The values that a read of `value` may meet."""
    value = resolve(value)
    if value.kind == "join":
        return [o for arg in value.args for o in one_or_all(arg)]
    return [value]


def pick(sequence: Value, key: Value) -> Value:
    items = sequence.items or ()
    if key.kind == "const" and isinstance(key.const, int) and -len(items) <= key.const < len(items):
        return items[key.const]
    if key.kind == "const" and sequence.rest is not None:
        return sequence.rest
    return join(elements(sequence)) if elements(sequence) else UNKNOWN


def cut(sequence: Value, bounds: tuple[Any, Any], node: cst.CSTNode) -> Value:
    lower, upper = bounds
    items = sequence.items or ()
    if "?" in bounds or any(isinstance(b, int) and (b < 0 or b > len(items)) for b in bounds):
        found = elements(sequence)
        return Value("seq", node, items=(), rest=join(found) if found else None)
    rest = sequence.rest if upper is None else None
    return Value("seq", node, items=tuple(items[lower:upper]), rest=rest)
