"""Sums and products of a kernel, told apart by what they are made of.

A *LoRA term* is a product with an adapter matrix alone on one side; a *base term* one with the base weight alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.values import TRANSPARENT, Value, alternatives, strip


@dataclass(frozen=True)
class Operand:
    """One side of a sum or product: its code and what it is made of."""

    node: cst.BaseExpression
    value: Value


@dataclass(frozen=True)
class Binary:
    """`left + right`, `left * right`, …, however it is spelled."""

    module: ParsedModule
    node: cst.CSTNode  # the whole expression, or the augmented assignment
    kind: str  # add, mul, div, sub
    left: Operand
    right: Operand
    value: Value

    @property
    def sides(self) -> tuple[tuple[Operand, Operand], ...]:
        """(one, other), both ways round: addition and multiplication commute."""
        return (self.left, self.right), (self.right, self.left)

    def without(self, dropped: Operand) -> str:
        """The code of the expression once a side is dropped."""
        kept = self.right if dropped is self.left else self.left
        text = self.module.code(kept.node)
        return text if isinstance(self.node, cst.AugAssign) else parenthesised(text, kept.node)


def binaries(view: KernelView, phase: str, kind: str) -> Iterator[Binary]:
    """Every sum (product, quotient) evaluated in a phase, each place once, in source order.

    A call of the target's own function that returns the sum of two of its arguments is such a place too.
    """
    for node, values in list(view.seen(phase).items()):
        found = [v for v in values if v.kind == kind and v.node is node]
        operands = operand_nodes(node) if found else None
        module = view.module_of(node)
        if operands is not None:
            left, right = (Operand(operands[i], together([v.args[i] for v in found])) for i in (0, 1))
            yield Binary(module, node, kind, left, right, together(found))
        elif isinstance(node, cst.Call):
            yield from _by_function(view, phase, module, node, kind, values)


def _by_function(
    view: KernelView, phase: str, module: ParsedModule, node: cst.Call, kind: str, values: list[Value]
) -> Iterator[Binary]:
    inner = [s for v in values for o in alternatives(v) if (s := strip(o)).kind == kind and s.node is not node]
    if not inner:
        return
    sides = [_argument_for(view, phase, node, together([v.args[i] for v in inner])) for i in (0, 1)]
    if sides[0] is not None and sides[1] is not None and sides[0].node is not sides[1].node:
        yield Binary(module, node, kind, sides[0], sides[1], together(inner))


def _argument_for(view: KernelView, phase: str, node: cst.Call, operand: Value) -> Operand | None:
    """The argument that a function's operand is, through casts and reshapes."""
    inside = _roots(operand)
    for arg in node.args:
        values = view.seen(phase).get(arg.value, [])
        if not arg.star and any(_roots(v) & inside for v in values):
            return Operand(arg.value, together(values))
    return None


def _roots(value: Value) -> set[int]:
    """Identities under casts and reshapes, of the whole and of each alternative."""
    return {id(strip(value)), *(id(strip(o)) for o in alternatives(value))}


def together(values: list[Value]) -> Value:
    return values[0] if len(values) == 1 else Value("join", args=tuple(values))


def operand_nodes(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The two sides of an operator, a torch function, a method, or an augmented assignment."""
    if isinstance(node, cst.BinaryOperation):
        return node.left, node.right
    if isinstance(node, cst.AugAssign):
        return node.target, node.value
    if isinstance(node, cst.Call):
        positional = [a.value for a in node.args if a.keyword is None and not a.star]
        if isinstance(node.func, cst.Attribute) and len(positional) == 1:
            return node.func.value, positional[0]
        if len(positional) >= 2:
            return positional[0], positional[1]
    return None


def kinds(value: Value) -> frozenset[str]:
    return frozenset().union(*(option.kinds for option in alternatives(value)))


def siblings(value: Value, kind: str | None = None) -> frozenset[str]:
    """The projections that a value's parts (of one kind, or of any) belong to."""
    labels = {label for option in alternatives(value) for label in option.labels}
    return frozenset(label.sibling for label in labels if kind in {None, label.kind})


def is_pure(value: Value, kind: str, also: frozenset[str] = frozenset()) -> bool:
    """Whether a value is made of `kind` (and perhaps of `also`), and of nothing else."""
    found = kinds(value)
    return kind in found and found <= {kind} | also


QUANT = frozenset({"quant", "compute_dtype"})  # what a dequantised weight is made of besides the weight
HARMLESS = frozenset({"mask", "dropout", "scaling"})


def product(value: Value) -> Value | None:
    """The matrix product that a term is, seen through casts, reshapes, masks and scalars."""
    for option in alternatives(value):
        found = _product(option)
        if found is not None:
            return found
    return None


def _product(value: Value) -> Value | None:
    while True:
        value = strip(value)
        if value.kind == "join":
            found = [p for p in map(_product, value.args) if p is not None]
            return found[0] if found else None
        if value.kind == "matmul":
            return value
        if value.kind not in {"mul", "div", "neg", "call"} or not value.args:
            return None
        heavy = [a for a in value.args if not kinds(a) <= HARMLESS]
        if len(heavy) != 1:
            return None
        value = heavy[0]


def factor(term: Value | None, kind: str, also: frozenset[str] = frozenset()) -> Value | None:
    """The side of a matrix product that is purely `kind`."""
    if term is None:
        return None
    return next((a for a in term.args[:2] if is_pure(a, kind, also)), None)


def is_lora_term(value: Value, kind: str) -> bool:
    return factor(product(value), kind) is not None


def is_base_term(value: Value) -> bool:
    return factor(product(value), "W", QUANT) is not None


def named(view: KernelView, names: frozenset[str]) -> str:
    """Projections as part of a mutant's name; nothing where there is but one."""
    return "" if len(view.siblings) < 2 else "+".join(sorted(n for n in names if n))


def uses(value: Value) -> Iterator[Value]:
    """The expressions through which a value was read, outermost first, down through casts and concatenations."""
    stack = [value]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.kind == "use" and current.node is not None:
            yield current
        if current.kind in TRANSPARENT or current.kind in {"join", "cat", "seq"}:
            stack.extend(current.args)
            stack.extend(current.items or ())
            if current.rest is not None:
                stack.append(current.rest)


CAST_METHODS = frozenset({"to", "float", "half", "bfloat16", "double", "type", "type_as"})


def uncast(node: cst.BaseExpression) -> cst.BaseExpression:
    """The expression under `.to(…)`, `.float()` and the like."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in CAST_METHODS:
        node = node.func.value
    return node


def parenthesised(text: str, node: cst.CSTNode) -> str:
    """Text that can stand as an operand."""
    simple = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float, cst.Tuple)
    if isinstance(node, simple) or (isinstance(node, cst.BaseExpression) and node.lpar):
        return text
    return f"({text})"


def one_line(text: str, limit: int = 140) -> str:
    """Text for a gist: on one line, and not longer than a reviewer reads."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
