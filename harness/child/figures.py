"""Numbers in assertions: what was measured, against which limit, and how near it came.

Read from pytest's explanation of a comparison ("0.00273 <= ((2.0 * 0.00131) + 1e-08)"), from the messages of
torch's and NumPy's comparisons, and from a ratio in a test's own message ("2.07x").
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 2000  # characters of an explanation that is worth reading
_LITTLE = 0.01  # what is added to a multiple may be this part of it; more, and it is no multiple any longer

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TENSOR = re.compile(rf"\b(?:tensor|(?:np\.)?float(?:16|32|64))\(\s*({_NUMBER})\s*(?:,(?:[^()]|\([^()]*\))*)?\)")
_RATIO = re.compile(r"(?<![\w.])(\d+\.\d+ ?|\d+)[x×](?!\w)")
_TORCH = re.compile(rf"[Aa]bsolute difference: ({_NUMBER}).*?\(up to ({_NUMBER}) allowed\)")
_NUMPY = re.compile(rf"Max absolute difference(?: among violations)?: ({_NUMBER})")
_APPROX = re.compile(rf"({_NUMBER}) == ({_NUMBER}) ± ({_NUMBER})")


@dataclass(frozen=True)
class Figure:
    """A measured value and its limit. `close` is 1 at the limit and less within it; None where that says nothing."""

    value: float
    limit: float | None = None
    unit: str = ""  # "x": a multiple of the quantity that the limit is a multiple of
    least: bool = False  # the limit is the least that is allowed
    close: float | None = None
    exact: bool = False  # only integers were compared


def of_failure(message: str) -> Figure | None:
    """The figure in an exception's text: a multiple if there is one, else the comparison that failed."""
    compared = [f for line in message.splitlines() if line.startswith("assert ") for f in of_comparison(line)]
    multiple = next((figure for figure in compared if figure.unit), None)
    return multiple or _ratio(message) or next(iter(compared), None) or _difference(message)


def of_comparison(explanation: str) -> list[Figure]:
    """The figures of what pytest explains in one line; none where it isn't numbers that are compared."""
    text = _TENSOR.sub(r"\1", explanation.partition("\n")[0].removeprefix("assert ").strip())
    approx = _APPROX.search(text)
    if approx:
        measured, expected, allowed = map(float, approx.groups())
        return _checked(abs(measured - expected), allowed, "", False, abs(measured - expected), allowed, False)
    if len(text) > LONGEST or not re.search(r"[<>]", text):
        return []
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [figure for left, op, right in _comparisons(tree) for figure in _compared(left, op, right)]


def _comparisons(node: ast.expr) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _comparisons(value)
    elif isinstance(node, ast.Compare):
        yield from zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> list[Figure]:
    low, high = (left, right) if isinstance(op, ast.Lt | ast.LtE) else (right, left)
    less, more = _number(low), _number(high)
    if less is None or more is None or not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return []
    exact = _is_whole(left) and _is_whole(right)
    for node, whole, value, least in ((high, more, less, False), (low, less, more, True)):
        scaled = _scaled(node)
        if scaled is not None and math.isclose(math.prod(scaled), whole, rel_tol=_LITTLE):
            factor, base = scaled
            return _checked(value / base, factor, "x", least, less, more, exact)
    if low is left:
        return _checked(less, more, "", False, less, more, exact)
    return _checked(more, less, "", True, less, more, exact)


def _checked(value: float, limit: float, unit: str, least: bool, less: float, more: float, exact: bool) -> list[Figure]:
    """`less` should be at most `more`; the quotient tells how near it is, where both have the same sign."""
    if not (math.isfinite(value) and math.isfinite(limit)):
        return []
    close = less / more if more > 0 and less >= 0 else None
    return [Figure(value, limit, unit, least, close, exact)]


def _scaled(node: ast.expr) -> tuple[float, float] | None:
    """A limit of the form `factor * base` or `factor * base + a little`: the factor as written, and the base."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _scaled(node.left) or _scaled(node.right)
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return None
    first, second = _number(node.left), _number(node.right)
    if first is None or second is None:
        return None
    pairs = sorted([(first, second), (second, first)], key=lambda pair: _digits(pair[0]))
    return next((pair for pair in pairs if _is_factor(*pair)), None)


def _is_factor(factor: float, base: float) -> bool:
    """A number that somebody wrote, times one that was measured."""
    return 1 <= factor <= 1000 and _digits(factor) <= 3 and base > 0 and not base.is_integer()


def _digits(value: float) -> int:
    """Significant decimal digits."""
    return len(f"{value!r}".partition("e")[0].replace(".", "").replace("-", "").strip("0"))


def _number(node: ast.expr) -> float | None:
    """The value of a constant expression."""
    if isinstance(node, ast.Constant):
        plain = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return _finite(node.value) if plain else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _number(node.operand)
        return None if inner is None else (-inner if isinstance(node.op, ast.USub) else inner)
    if isinstance(node, ast.BinOp):
        return _applied(node.op, _number(node.left), _number(node.right))
    return None


def _applied(op: ast.operator, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    if isinstance(op, ast.Add):
        return left + right
    if isinstance(op, ast.Sub):
        return left - right
    if isinstance(op, ast.Mult):
        return left * right
    return left / right if isinstance(op, ast.Div) and right else None


def _finite(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return None


def _is_whole(node: ast.expr) -> bool:
    return all(isinstance(part.value, int) for part in ast.walk(node) if isinstance(part, ast.Constant))


def _ratio(message: str) -> Figure | None:
    """A multiple in a message of the test's own words."""
    told = [line for line in message.splitlines() if not line.startswith(("assert ", " +", "E "))]
    found = _RATIO.search("\n".join(told[:5]))
    return Figure(float(found.group(1)), unit="x") if found else None


def _difference(message: str) -> Figure | None:
    torch = _TORCH.search(message)
    if torch:
        value, limit = float(torch.group(1)), float(torch.group(2))
        return next(iter(_checked(value, limit, "", False, value, limit, False)), None)
    numpy = _NUMPY.search(message)
    return Figure(float(numpy.group(1))) if numpy else None
