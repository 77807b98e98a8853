"""Literal rows that a loop or a parametrisation runs over, and their columns of numbers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fastlora_verify.harness.suite_diff.frame import Frame, class_constant
from fastlora_verify.harness.suite_diff.numbers import is_bound, number

_LONGEST = 200  # numbers of a range that are told one by one
ROW = "row"  # subscript of a table: the value belongs to the rows of a loop or parametrisation


def target_names(target: ast.expr) -> list[str]:
    """The names of a flat target, "" for what is none."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return [part.id if isinstance(part, ast.Name) else "" for part in parts]


def rows(node: ast.expr, frame: Frame, width: int) -> list[list[ast.expr]]:
    """The literal rows that a loop or a parametrisation runs over, as written; none where they aren't literal."""
    values = literal(node, frame)
    if values is None:
        return []
    if width == 1:
        return [[_plain(value)] for value in values]
    found = []
    for value in values:
        value = _plain(value)
        if not isinstance(value, ast.Tuple | ast.List) or len(value.elts) != width:
            return []
        found.append(list(value.elts))
    return found


def literal(node: ast.expr, frame: Frame) -> list[ast.expr] | None:
    """The elements of a list or tuple that stands there, or is what a name stands for; of `table.items()` the pairs."""
    if isinstance(node, ast.Tuple | ast.List):
        return None if any(isinstance(value, ast.Starred) for value in node.elts) else list(node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items":
        table = _literal_value(node.func.value, frame)
        if isinstance(table, ast.Dict) and all(table.keys):
            return [
                ast.Tuple([key, value], ast.Load()) for key, value in zip(table.keys, table.values, strict=True) if key
            ]
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        bounds = [number(argument) for argument in node.args]
        whole = [bound for bound in bounds if isinstance(bound, int)]
        if 1 <= len(whole) <= 3 and len(whole) == len(bounds) and 0 not in whole[2:] and len(range(*whole)) <= _LONGEST:
            return [ast.Constant(value) for value in range(*whole)]
        return None
    value = _literal_value(node, frame)
    return literal(value, frame) if isinstance(value, ast.Tuple | ast.List) else None


def _literal_value(node: ast.expr, frame: Frame) -> ast.expr | None:
    if isinstance(node, ast.Name) and node.id in frame.names:
        return frame.names[node.id]
    if isinstance(node, ast.Name) and node.id not in frame.hidden:
        found = frame.sources.constant(frame.module, node.id)
        return found[1] if found is not None else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and frame.owner is not None:
        return class_constant(frame.sources, frame.owner, node.attr) if node.value.id in ("self", "cls") else None
    return node if isinstance(node, ast.Dict) else None


def _plain(value: ast.expr) -> ast.expr:
    """What `pytest.param(…)` holds."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "param":
        return value.args[0] if len(value.args) == 1 else ast.Tuple(value.args, ast.Load())
    return value


def columns(names: Sequence[str], table: Sequence[Sequence[ast.expr]]) -> dict[str, ast.expr]:
    """Each name whose column is of numbers, as a table of the rows. A row is called after its other cells."""
    found: dict[str, ast.expr] = {}
    if len(names) < 2 or not table:
        return found
    for position, name in enumerate(names):
        values = [row[position] for row in table]
        if not name or not all(is_bound(value) for value in values):
            continue
        labels = [_label(row, position, numbers=False) for row in table]
        if len(set(labels)) < len(labels) or not all(labels):
            labels = [_label(row, position, numbers=True) for row in table]
        if len(set(labels)) == len(labels):
            keys: list[ast.expr | None] = [ast.Constant(label) for label in labels]
            found[name] = ast.Subscript(ast.Dict(keys, values), ast.Name(ROW), ast.Load())
    return found


def _label(row: Sequence[ast.expr], position: int, *, numbers: bool) -> str:
    cells = [cell for at, cell in enumerate(row) if at != position and (numbers or not is_bound(cell))]
    return ", ".join(ast.unparse(cell) for cell in cells)
