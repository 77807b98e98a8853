"""An abstract run of a kernel: expressions, and what PEFT's attribute names say about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst
from fastlora_verify.mutations.calls import Calls
from fastlora_verify.mutations.tree import children, names_of
from fastlora_verify.mutations.values import NONE, UNKNOWN, Label, Value, elements, join, known_items, resolve

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

BINARY = {
    "Add": "add", "Subtract": "sub", "Multiply": "mul", "MatrixMultiply": "matmul", "Divide": "div", "Power": "pow",
}  # fmt: skip


class Expressions(Calls):
    """Evaluates expressions; mixed into the interpreter."""

    if TYPE_CHECKING:

        def did_read(self, name: str) -> None: ...
        def did_write(self, name: str) -> None: ...

    def eval(self, node: cst.BaseExpression, env: Env) -> Value:
        handler = getattr(self, f"eval_{type(node).__name__}", self.eval_unknown)
        return self.note(node, handler(node, env))

    def eval_unknown(self, node: cst.CSTNode, env: Env) -> Value:
        parts = [self.eval(c, env) for c in children(node) if isinstance(c, cst.BaseExpression)]
        return Value("unknown", node, tuple(parts)) if parts else UNKNOWN

    def eval_Name(self, node: cst.Name, env: Env) -> Value:
        if node.value in {"None"}:
            return NONE
        if node.value in {"True", "False"}:
            return Value("const", node, const=node.value == "True")
        found = env.get(node.value)
        return Value("use", node, (found,)) if found is not None else Value("library", node, name=node.value)

    def eval_Integer(self, node: cst.Integer, env: Env) -> Value:
        return Value("const", node, const=node.evaluated_value)

    def eval_Float(self, node: cst.Float, env: Env) -> Value:
        return Value("const", node, const=node.evaluated_value)

    def eval_SimpleString(self, node: cst.SimpleString, env: Env) -> Value:
        return Value("const", node, const=node.evaluated_value)

    def eval_UnaryOperation(self, node: cst.UnaryOperation, env: Env) -> Value:
        value = self.eval(node.expression, env)
        if isinstance(node.operator, cst.Minus):
            known = resolve(value)
            if known.kind == "const" and isinstance(known.const, int | float):
                return Value("const", node, const=-known.const)
            return Value("neg", node, (value,))
        return Value("test", node, (value,))

    def eval_BinaryOperation(self, node: cst.BinaryOperation, env: Env) -> Value:
        left, right = self.eval(node.left, env), self.eval(node.right, env)
        return self.binary(node, type(node.operator).__name__, left, right)

    def binary(self, node: cst.CSTNode, operator: str, left: Value, right: Value) -> Value:
        a, b = resolve(left), resolve(right)
        if operator == "Add" and a.kind == "seq" and b.kind == "seq":
            rests = [r for r in (a.rest, b.rest) if r is not None]
            return Value("seq", node, items=(*(a.items or ()), *(b.items or ())), rest=join(rests) if rests else None)
        if operator == "Multiply" and "seq" in {a.kind, b.kind}:
            return _repeated(node, *((a, b) if a.kind == "seq" else (b, a)))
        if a.kind == "const" and b.kind == "const" and operator in {"Add", "Subtract", "Multiply"}:
            folded = fold(operator, a.const, b.const)
            if folded is not None:
                return Value("const", node, const=folded)
        return Value(BINARY.get(operator, "op"), node, (left, right))

    def _keeps(self, test: cst.BaseExpression, env: Env) -> bool | None:
        """Whether `if x is not None` (or `if x`) lets an element pass; None where the test is another."""
        value = self.eval(test, env)
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            target = test.comparisons[0]
            against_none = isinstance(target.comparator, cst.Name) and target.comparator.value == "None"
            if not against_none or not isinstance(target.operator, cst.IsNot | cst.NotEqual):
                return None
            value = self.eval(test.left, env)
        elif not isinstance(test, cst.Name):
            return None
        return resolve(value).kind != "none"

    def eval_BooleanOperation(self, node: cst.BooleanOperation, env: Env) -> Value:
        left, right = self.eval(node.left, env), self.eval(node.right, env)
        return join([left, right])

    def eval_Comparison(self, node: cst.Comparison, env: Env) -> Value:
        parts = [self.eval(node.left, env), *(self.eval(c.comparator, env) for c in node.comparisons)]
        return Value("test", node, tuple(parts))

    def eval_IfExp(self, node: cst.IfExp, env: Env) -> Value:
        self.eval(node.test, env)
        return join([self.eval(node.body, env), self.eval(node.orelse, env)])

    def eval_NamedExpr(self, node: cst.NamedExpr, env: Env) -> Value:
        value = self.eval(node.value, env)
        self.assign(node.target, value, env)
        return value

    def eval_FormattedString(self, node: cst.FormattedString, env: Env) -> Value:
        """Known text where every part is known: `f"{name}_proj"`."""
        text: str | None = ""
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                value = resolve(self.eval(part.expression, env))
                plain = value.kind == "const" and part.format_spec is None and part.conversion is None
                text = f"{text}{value.const}" if plain and text is not None else None
            elif isinstance(part, cst.FormattedStringText) and text is not None:
                text += part.value
        return Value("const", node, const=text) if text is not None else Value("unknown", node)

    def eval_ConcatenatedString(self, node: cst.ConcatenatedString, env: Env) -> Value:
        left, right = resolve(self.eval(node.left, env)), resolve(self.eval(node.right, env))
        known = left.kind == right.kind == "const"
        return Value("const", node, const=f"{left.const}{right.const}") if known else Value("unknown", node)

    def eval_Lambda(self, node: cst.Lambda, env: Env) -> Value:
        return UNKNOWN

    def eval_Tuple(self, node: cst.Tuple | cst.List | cst.Set, env: Env) -> Value:
        items: list[Value] = []
        rest: list[Value] = []
        for element in node.elements:
            value = self.eval(element.value, env)
            if not isinstance(element, cst.StarredElement):
                (rest if rest else items).append(value)
                continue
            inner = resolve(value)
            if inner.kind == "seq" and inner.rest is None and not rest:
                items.extend(inner.items or ())
            else:
                rest.extend(elements(value))
        return Value("seq", node, items=tuple(items), rest=join(rest) if rest else None)

    eval_List = eval_Tuple
    eval_Set = eval_Tuple

    def eval_Dict(self, node: cst.Dict, env: Env) -> Value:
        attrs: dict[str, Value] = {}
        parts = []
        for element in node.elements:
            value = self.eval(element.value, env)
            parts.append(value)
            if isinstance(element, cst.DictElement):
                key = resolve(self.eval(element.key, env))
                if key.kind == "const":
                    attrs[f"[{key.const!r}]"] = value
        return Value("dict", node, tuple(parts), attrs=attrs)

    def _comprehension(self, node: Any, result: cst.BaseExpression, env: Env) -> Value:
        """Evaluated once an element where the elements are known, else once for all."""
        produced: list[Value] = []
        exact = True
        before = dict(env.names)

        def loop(clause: cst.CompFor | None) -> None:
            nonlocal exact
            if clause is None:
                produced.append(self.eval(result, env))
                return
            iterable = self.eval(clause.iter, env)
            known = resolve(iterable)
            exact = exact and known_items(known) is not None
            for element in elements(iterable):
                self.assign(clause.target, element, env)
                kept = [self._keeps(test.test, env) for test in clause.ifs]
                exact = exact and None not in kept
                if False not in kept:
                    loop(clause.inner_for_in)

        loop(node.for_in)
        self._forget(node.for_in, before, env)
        if exact:
            return Value("seq", node, items=tuple(produced))
        return Value("seq", node, items=(), rest=join(produced) if produced else UNKNOWN)

    def _forget(self, clause: cst.CompFor | None, before: dict[str, Value], env: Env) -> None:
        """Loop variables of a comprehension are its own; what it did to other names stays."""
        while clause is not None:
            for name in names_of(clause.target):
                env.names.pop(name, None)
                if name in before:
                    env.names[name] = before[name]
            clause = clause.inner_for_in

    def eval_ListComp(self, node: cst.ListComp, env: Env) -> Value:
        return self._comprehension(node, node.elt, env)

    def eval_GeneratorExp(self, node: cst.GeneratorExp, env: Env) -> Value:
        return self._comprehension(node, node.elt, env)

    def eval_SetComp(self, node: cst.SetComp, env: Env) -> Value:
        return self._comprehension(node, node.elt, env)

    def eval_DictComp(self, node: cst.DictComp, env: Env) -> Value:
        keys, value = self._comprehension(node, node.key, env), self._comprehension(node, node.value, env)
        known, held = known_items(keys), known_items(value)
        if known is None or held is None or any(resolve(k).kind != "const" for k in known):
            return Value("dict", node, (value,))
        attrs = {f"[{resolve(k).const!r}]": v for k, v in zip(known, held, strict=True)}
        return Value("dict", node, held, attrs=attrs)

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


def _repeated(node: cst.CSTNode, sequence: Value, count: Value) -> Value:
    """`[None] * 3`; as long as nobody knows where the count isn't."""
    items = known_items(sequence)
    if items is not None and count.kind == "const" and isinstance(count.const, int) and count.const < 64:
        return Value("seq", node, items=items * count.const)
    found = elements(sequence)
    return Value("seq", node, items=(), rest=join(found) if found else None)


def fold(operator: str, a: Any, b: Any) -> Any:
    if not (isinstance(a, int | float) and isinstance(b, int | float)):
        return a + b if operator == "Add" and isinstance(a, str) and isinstance(b, str) else None
    return a + b if operator == "Add" else a - b if operator == "Subtract" else a * b
