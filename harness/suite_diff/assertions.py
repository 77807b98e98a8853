"""Assertions in one form, whoever's way of writing them it was: pytest's, unittest's, NumPy's, torch's.

| written | form |
| --- | --- |
| `assert a >= 2, "why"` | `2 <= a` |
| `assert a and b`, `a < b < c` | two assertions |
| `self.assertLess(a, b)` | `a < b` |
| `self.assertAlmostEqual(a, b, 3)` | `assertAlmostEqual(a, b, places=3)` |
| `torch.testing.assert_close(a, b, 1e-3, 0)` | `assert_close(a, b, rtol=1e-3, atol=0)` |
| `with self.assertRaisesRegex(E, "x")` | `raises(E, match="x")` |
| `if c: pytest.fail()` | `not c` |

Signatures and defaults are those that pytest, unittest, NumPy and torch document.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Closeness:
    """A comparison within a tolerance: its parameters after the two operands, and the documented defaults.

    A default None depends on what is compared, so that a value that stands there can't be set against it.
    """

    parameters: tuple[str, ...]
    defaults: Mapping[str, float | bool | None]


_NUMPY = {"rtol": 1e-7, "atol": 0.0, "equal_nan": True, "strict": False}
_LIKE = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}
_TORCH = {
    "rtol": None,  # by dtype
    "atol": None,
    "equal_nan": False,
    "check_device": True,
    "check_dtype": True,
    "check_layout": True,
    "check_stride": False,
}
CLOSENESS: Mapping[str, Closeness] = {
    "allclose": Closeness(("rtol", "atol", "equal_nan"), _LIKE),
    "assert_allclose": Closeness(("rtol", "atol", "equal_nan", "err_msg", "verbose"), _NUMPY),
    "assert_close": Closeness((), _TORCH),
    "assert_almost_equal": Closeness(("decimal", "err_msg", "verbose"), {"decimal": 7}),
    "assert_array_almost_equal": Closeness(("decimal", "err_msg", "verbose"), {"decimal": 6}),
    "assert_approx_equal": Closeness(("significant", "err_msg", "verbose"), {"significant": 7}),
    "assert_array_max_ulp": Closeness(("maxulp",), {"maxulp": 1}),
    "assert_array_almost_equal_nulp": Closeness(("nulp",), {"nulp": 1}),
    "assertAlmostEqual": Closeness(("places", "msg", "delta"), {}),
    "assertNotAlmostEqual": Closeness(("places", "msg", "delta"), {}),
    "approx": Closeness(("rel", "abs", "nan_ok"), {"nan_ok": False}),
    "isclose": Closeness(("rtol", "atol", "equal_nan"), _LIKE),
    "gradcheck": Closeness(("eps", "atol", "rtol"), {"eps": 1e-6, "atol": 1e-5, "rtol": 1e-3, "nondet_tol": 0.0}),
    "gradgradcheck": Closeness(
        ("grad_outputs", "eps", "atol", "rtol"), {"atol": 1e-5, "rtol": 1e-3, "nondet_tol": 0.0}
    ),
}
_MATH_ISCLOSE = {"rel_tol": 1e-9, "abs_tol": 0.0}

# Keywords of tolerances: 1 where more accepts more, -1 where less does.
TOLERANCES: Mapping[str, int] = {
    **dict.fromkeys(("rtol", "atol", "rel", "abs", "delta", "rel_tol", "abs_tol", "tol", "tolerance"), 1),
    **dict.fromkeys(("threshold", "max_diff", "max_err", "max_error", "max_ratio", "maxulp", "max_ulp"), 1),
    **dict.fromkeys(("nulp", "nondet_tol", "slack", "margin", "equal_nan", "nan_ok"), 1),
    **dict.fromkeys(("places", "decimal", "significant", "strict", "exact"), -1),
    **dict.fromkeys(("check_device", "check_dtype", "check_layout", "check_stride", "check_exact"), -1),
}
_TEXTS = {"msg", "err_msg", "verbose", "message", "reason"}

_COMPARED: Mapping[str, type[ast.cmpop]] = {
    "assertEqual": ast.Eq,
    "assertEquals": ast.Eq,
    "assertNotEqual": ast.NotEq,
    "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
    "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE,
    "assertIs": ast.Is,
    "assertIsNot": ast.IsNot,
    "assertIn": ast.In,
    "assertNotIn": ast.NotIn,
    **dict.fromkeys(("assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual"), ast.Eq),
}
_RAISING = {
    "raises": "raises",
    "assertRaises": "raises",
    "assertRaisesRegex": "raises",
    "warns": "warns",
    "assertWarns": "warns",
    "assertWarnsRegex": "warns",
    "deprecated_call": "deprecated_call",
    "assertLogs": "assertLogs",
    "assertNoLogs": "assertNoLogs",
}
_MODULES = ("torch.testing", "np.testing", "numpy.testing", "pd.testing", "pandas.testing", "testing")
_NAMED = re.compile(r"_*(assert|check|verify|expect)(_\w+|[A-Z]\w*)?")


def callee(node: ast.Call) -> str:
    """The last name of what is called: `assert_close` of `torch.testing.assert_close(…)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def is_raising(node: ast.expr) -> bool:
    """Whether a `with` item expects an exception, a warning or a log line."""
    return isinstance(node, ast.Call) and callee(node) in _RAISING


def is_assertion(node: ast.Call) -> bool:
    """Whether a call that the tree doesn't define is an assertion by its name."""
    name = callee(node)
    if name in ("gradcheck", "gradgradcheck", *_RAISING):
        return True
    return bool(_NAMED.fullmatch(name)) and name not in ("check_output", "check_call", "check")


def is_failing(node: ast.stmt) -> bool:
    """Whether a statement fails the test outright."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        return ast.unparse(node.exc).startswith("AssertionError")
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("pytest.fail", "self.fail", "fail")
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value


def forms(node: ast.expr) -> Iterator[ast.expr]:
    """The assertions that a resolved expression makes, each in its form: true where the test goes on."""
    node = _Form().visit(node)
    yield from _conjuncts(node)


def _conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _conjuncts(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and isinstance(node.operand, ast.BoolOp):
        if isinstance(node.operand.op, ast.Or):  # not (a or b) is not a and not b
            for value in node.operand.values:
                yield from _conjuncts(negated(value))
        else:
            yield node
    else:
        yield node


def negated(node: ast.expr) -> ast.expr:
    """`not node`, without a double negation."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


class _Form(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        links = [_link(operands[i], op, operands[i + 1]) for i, op in enumerate(node.ops)]
        return links[0] if len(links) == 1 else ast.copy_location(ast.BoolOp(ast.And(), list(links)), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = callee(node)
        unittest = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("self", "cls")
        if unittest:
            said = _unittest(name, node)
            if said is not None:
                return said
        if name in _RAISING:
            return _raising(name, node)
        if ast.unparse(node.func) in ("math.isclose", "cmath.isclose"):
            return _call("isclose", node.args, _with_defaults(_keywords(node), _MATH_ISCLOSE), node)
        if name in CLOSENESS:
            return _closeness(name, node)
        if name.startswith("assert"):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in _TEXTS]
            if unittest or ast.unparse(node.func).removesuffix(f".{name}") in _MODULES:
                node.func = ast.copy_location(ast.Name(name, ast.Load()), node.func)
        return node


def _link(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
    """One comparison, the lesser operand first."""
    if isinstance(op, ast.Gt):
        left, op, right = right, ast.Lt(), left
    elif isinstance(op, ast.GtE):
        left, op, right = right, ast.LtE(), left
    return ast.copy_location(ast.Compare(left, [op], [right]), left)


def _unittest(name: str, node: ast.Call) -> ast.expr | None:
    if name in _COMPARED and len(node.args) >= 2:
        return _link(node.args[0], _COMPARED[name](), node.args[1])
    if name in ("assertTrue", "assertFalse") and node.args:
        return node.args[0] if name == "assertTrue" else negated(node.args[0])
    if name in ("assertIsNone", "assertIsNotNone") and node.args:
        return _link(node.args[0], ast.Is() if name == "assertIsNone" else ast.IsNot(), ast.Constant(None))
    if name in ("assertIsInstance", "assertNotIsInstance") and len(node.args) >= 2:
        call = _call("isinstance", node.args[:2], {}, node)
        return call if name == "assertIsInstance" else negated(call)
    return None


def _raising(name: str, node: ast.Call) -> ast.Call:
    keywords = {key: value for key, value in _keywords(node).items() if key not in _TEXTS}
    arguments = list(node.args[:1]) or [v for k, v in keywords.items() if k in ("expected_exception", "exception")]
    matching = keywords.get("match") or keywords.get("expected_regex")
    if name.endswith("Regex") and len(node.args) > 1:
        matching = node.args[1]
    return _call(_RAISING[name], arguments, {"match": matching} if matching is not None else {}, node)


def _closeness(name: str, node: ast.Call) -> ast.expr:
    known, keywords = CLOSENESS[name], _keywords(node)
    operands = 1 if name == "approx" or (isinstance(node.func, ast.Attribute) and _is_method(node)) else 2
    for parameter, value in zip(known.parameters, node.args[operands:], strict=False):
        keywords[parameter] = value
    defaults = {**known.defaults, **_implied(name, keywords)}
    arguments = list(node.args[:operands])
    if operands == 1 and name != "approx":
        assert isinstance(node.func, ast.Attribute)
        arguments = [node.func.value, *arguments]
    plain = name.removeprefix("assertNot")
    call = _call("assert" + plain if plain != name else name, arguments, _with_defaults(keywords, defaults), node)
    return call if plain == name else negated(call)


def _is_method(node: ast.Call) -> bool:
    """`a.allclose(b)`, not `torch.allclose(a, b)`."""
    assert isinstance(node.func, ast.Attribute)
    return node.func.attr in ("allclose", "isclose") and ast.unparse(node.func.value) not in (
        *("torch", "np", "numpy", "jnp", "math", "tf", "jax.numpy", "cp"),
    )


def _implied(name: str, keywords: Mapping[str, ast.expr]) -> dict[str, float]:
    """Defaults that hang on what else is given."""
    if name in ("assertAlmostEqual", "assertNotAlmostEqual"):
        return {} if "delta" in keywords else {"places": 7}
    if name == "approx":
        return {"rel": 0.0 if "abs" in keywords else 1e-6, "abs": 1e-12}
    return {}


def _with_defaults(
    keywords: Mapping[str, ast.expr], defaults: Mapping[str, float | bool | None]
) -> dict[str, ast.expr]:
    kept = {key: value for key, value in keywords.items() if key not in _TEXTS}
    filled = {key: ast.Constant(value) for key, value in defaults.items() if key not in kept and value is not None}
    return {**kept, **filled}


def _keywords(node: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg or "**": keyword.value for keyword in node.keywords}


def _call(name: str, arguments: list[ast.expr], keywords: Mapping[str, ast.expr], like: ast.expr) -> ast.Call:
    words = [ast.keyword(None if key == "**" else key, value) for key, value in sorted(keywords.items())]
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, words), like)
