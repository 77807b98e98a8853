"""An abstract run of a kernel: operators, literals and comprehensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import libcst as cst

from fastlora_verify.mutations.attributes import Attributes
from fastlora_verify.mutations.tree import children, names_of
from fastlora_verify.mutations.values import NONE, UNKNOWN, Value, elements, join, known_items, resolve

if TYPE_CHECKING:
    from fastlora_verify.mutations.interpret import Env

BINARY = {
    "Add": "add", "Subtract": "sub", "Multiply": "mul", "MatrixMultiply": "matmul", "Divide": "div", "Power": "pow",
}  # fmt: skip


class Expressions(Attributes):
    """Evaluates expressions; mixed into the interpreter."""

    if TYPE_CHECKING:

        def assign(self, target: cst.CSTNode, value: Value, env: Env) -> None: ...

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
        return Value("lambda", node, env=env)

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
