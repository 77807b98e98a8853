"""What a term of a kernel is: told by what it is made of.

A *LoRA term* is a product with an adapter matrix alone on one side; a *base term* one with the base weight alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.torch_calls import CASTS
from fastlora_verify.mutations.values import TRANSPARENT, Value, alternatives, strip


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
    """The matrix product that a term is, seen through casts, reshapes, masks and scalars; of several, the first."""
    return next((p for p in products(value) if p is not None), None)


def products(value: Value) -> list[Value | None]:
    """The matrix product that each alternative of a term is, None for one that is none."""
    return [found for option in alternatives(value) for found in _products(option)]


def _products(value: Value) -> list[Value | None]:
    while True:
        value = strip(value)
        if value.kind == "join":
            return [found for arg in value.args for found in _products(arg)]
        if value.kind == "matmul":
            return [value]
        if value.kind not in {"mul", "div", "neg", "call"} or not value.args:
            return [None]
        heavy = [a for a in value.args if not kinds(a) <= HARMLESS]
        if len(heavy) != 1:
            return [None]
        value = heavy[0]


def factor(term: Value | None, kind: str, also: frozenset[str] = frozenset()) -> Value | None:
    """The side of a matrix product that is purely `kind`."""
    if term is None:
        return None
    return next((a for a in term.args[:2] if is_pure(a, kind, also)), None)


def is_lora_term(value: Value, kind: str) -> bool:
    """Whether a value is a product with an adapter's matrix, in every case (a sum may hold one in its first turn)."""
    return all(factor(p, kind) is not None for p in products(value))


def is_base_term(value: Value) -> bool:
    return all(factor(p, "W", QUANT) is not None for p in products(value))


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


def uncast(node: cst.BaseExpression) -> cst.BaseExpression:
    """The expression under `.to(…)`, `.float()` and the like."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in CASTS:
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
