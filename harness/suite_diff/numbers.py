"""Expressions that are numbers, and those that are made like bounds: of numbers, by arithmetic and choice."""

from __future__ import annotations

import ast

Number = int | float

EITHER = "either"  # a call of it stands for a name that is assigned several values

LARGEST = 300  # nodes of an expression that may stand in for a name

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)

_CHOICES = {"max", "min", "float", "int", "abs"}

_PREDICATES = (ast.Compare, ast.BoolOp)


def number(node: ast.expr) -> Number | None:
    """The value of an expression that is a number, or made of numbers alone."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = number(node.operand)
        return None if value is None else -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "int"):
        return _converted(node)
    if isinstance(node, ast.BinOp):
        left, right = number(node.left), number(node.right)
        return None if left is None or right is None else _computed(left, node.op, right)
    return None


def _converted(node: ast.Call) -> Number | None:
    if len(node.args) != 1 or node.keywords:
        return None
    inner = node.args[0]
    text = isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    value = inner.value if text else number(inner)  # type: ignore[attr-defined]
    try:
        return None if value is None else float(value)
    except (ValueError, OverflowError):
        return None


def _computed(left: Number, op: ast.operator, right: Number) -> Number | None:
    try:
        if isinstance(op, ast.Add):
            return left + right
        if isinstance(op, ast.Sub):
            return left - right
        if isinstance(op, ast.Mult):
            return left * right
        if isinstance(op, ast.Div):
            return left / right
        if isinstance(op, ast.FloorDiv):
            return left // right
        if isinstance(op, ast.Pow) and abs(right) <= 1024:
            value = float(left) ** right
            return value if isinstance(value, float) else None
    except (ArithmeticError, ValueError):
        pass
    return None


def is_bound(node: ast.expr) -> bool:
    """Whether a resolved expression is bound-like."""
    if number(node) is not None:
        return True
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, _ARITHMETIC) and (is_bound(node.left) or is_bound(node.right))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and is_bound(node.operand)
    if isinstance(node, ast.IfExp):
        return is_bound(node.body) and is_bound(node.orelse)
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(is_bound(value) for value in node.values)
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(is_bound(value) for value in node.elts)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Dict | ast.Tuple | ast.List) and is_bound(node.value)
    if isinstance(node, ast.Call):
        return _is_bound_call(node)
    return False


def _is_bound_call(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr == "get" and isinstance(node.func.value, ast.Dict) and is_bound(node.func.value)
    if isinstance(node.func, ast.Name) and node.func.id == EITHER:
        return all(is_bound(value) for value in node.args)
    return isinstance(node.func, ast.Name) and node.func.id in _CHOICES and any(map(is_bound, node.args))


def is_predicate(node: ast.expr) -> bool:
    """Whether an expression is a judgement of its own."""
    return isinstance(node, _PREDICATES) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def is_small(node: ast.expr) -> bool:
    return sum(1 for _ in ast.walk(node)) <= LARGEST
