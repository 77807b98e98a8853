"""Writes every sum and product of numbers the other way round: `a + b`, `torch.mul(a, b)`."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

# Sums and products of what isn't a number don't commute, or say something else.
ROWS = m.OneOf(
    m.List(), m.Tuple(), m.ListComp(), m.SimpleString(), m.FormattedString(), m.ConcatenatedString(),
    m.Call(func=m.Name("list") | m.Name("tuple") | m.Name("str") | m.Name("sorted")),
)  # fmt: skip
COMMUTATIVE = m.BinaryOperation(operator=m.Add() | m.Multiply())
FUNCTION = m.Call(
    func=m.Attribute(value=m.Name("torch"), attr=m.Name("add") | m.Name("mul")),
    args=[m.Arg(keyword=None, star=""), m.Arg(keyword=None, star="")],
)


class Swapper(cst.CSTTransformer):
    def __init__(self) -> None:
        self.count = 0

    def leave_BinaryOperation(  # noqa: N802
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BinaryOperation:
        if not m.matches(original_node, COMMUTATIVE) or _has_rows(original_node):
            return updated_node
        self.count += 1
        return updated_node.with_changes(left=_operand(updated_node.right), right=_operand(updated_node.left))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        if not m.matches(original_node, FUNCTION):
            return updated_node
        self.count += 1
        one, other = updated_node.args
        return updated_node.with_changes(
            args=[one.with_changes(value=other.value), other.with_changes(value=one.value)]
        )


def _has_rows(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.BinaryOperation) and m.matches(node, COMMUTATIVE):
        return _has_rows(node.left) or _has_rows(node.right)
    return m.matches(node, ROWS)


def _operand(node: cst.BaseExpression) -> cst.BaseExpression:
    simple = (
        isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float) or node.lpar
    )
    return node if simple else node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def swap(text: str) -> tuple[str, int]:
    """The module with its operands swapped, and how many pairs there were."""
    swapper = Swapper()
    return cst.parse_module(text).visit(swapper).code, swapper.count
