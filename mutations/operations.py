"""Sums and products of a kernel, however they are spelled, and how to say them with one operand less.

`a + b`, `a += b`, `torch.add(a, b, alpha=s)`, `a.add_(b)`, `torch.addmm(c, a, b)`, `sum((a, b))`, and a function of
the target's own that returns the sum of what it is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.source import Edit, ParsedModule
from fastlora_verify.mutations.terms import parenthesised
from fastlora_verify.mutations.torch_calls import FUSED_ADDS
from fastlora_verify.mutations.values import NONE, TRANSPARENT, UNKNOWN, Value, alternatives, resolve, strip

Listed = cst.Arg | cst.BaseElement

LISTED = frozenset({"sum", "reduce"})
OPERAND_KEYWORDS = ("input", "other", "mat1", "mat2", "batch1", "batch2")


@dataclass(frozen=True)
class Operand:
    """One side of a sum or product: its code and what it is made of."""

    node: cst.BaseExpression | None  # None: it has no expression of its own
    value: Value
    text: str  # how it is said alone
    listed: Listed | None = None  # the argument or element that can be left out of a list


@dataclass(frozen=True)
class Operation:
    """A sum or a product of two operands or more."""

    module: ParsedModule
    node: cst.CSTNode  # the whole expression, or the augmented assignment
    kind: str  # add, mul, div
    operands: tuple[Operand, ...]
    value: Value

    @property
    def sides(self) -> Iterator[tuple[Operand, Operand]]:
        """(one operand, all others together), for each."""
        for one in self.operands:
            others = [o for o in self.operands if o is not one]
            if len(others) == 1:
                yield one, others[0]
            else:
                yield one, Operand(None, Value(self.kind, args=tuple(o.value for o in others)), "")

    @property
    def code(self) -> str:
        return self.module.code(self.node)

    def without(self, dropped: Operand) -> Edit:
        """The edit that drops an operand."""
        kept = [o for o in self.operands if o is not dropped]
        if dropped.listed is not None and len(self.operands) - len(kept) == 1:
            return _left_out(self.module, dropped.listed)
        if dropped is not self.operands[0] and self._is_statement():
            return self.module.replace(self._statement_part(), "pass")
        text = kept[0].text
        if isinstance(self.node, cst.AugAssign):
            text = f"{self.module.code(self.node.target)} = {text}"
        elif in_place(self.node) and dropped is self.operands[0]:
            text = f"{dropped.text}.copy_({text})"
        return self.module.replace(self.node, text)

    def again(self, factor: Operand) -> Edit:
        """The edit that applies a factor of a product once more."""
        if isinstance(self.node, cst.AugAssign):
            return self.module.replace(self.node.value, f"{factor.text} * {factor.text}")
        if in_place(self.node):
            return self.module.replace(self.node, f"{self.code}.mul_({factor.text})")
        assert isinstance(self.node, cst.BaseExpression)
        return self.module.replace(self.node, f"{parenthesised(self.code, self.node)} * {factor.text}")

    def _is_statement(self) -> bool:
        """Whether the operation's effect on something with a name is all that it is there for."""
        if isinstance(self.node, cst.AugAssign):
            return True
        changed = self.operands[0].node
        named = isinstance(changed, cst.Name | cst.Attribute | cst.Subscript)
        return named and in_place(self.node) and isinstance(self.module.parent(self.node), cst.Expr)

    def _statement_part(self) -> cst.CSTNode:
        parent = self.module.parent(self.node)
        return parent if isinstance(parent, cst.Expr) else self.node


def in_place(node: cst.CSTNode) -> bool:
    """`a.add_(b)`."""
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value.endswith("_")


def operations(view: KernelView, phase: str, kind: str) -> Iterator[Operation]:
    """Every sum (product, quotient) evaluated in a phase, each place once, in source order."""
    for node, values in list(view.seen(phase).items()):
        module = view.module_of(node)
        found = [v for v in values if v.kind == kind and v.node is node and len(v.args) >= 2]
        operands = _spelled(view, phase, module, node, found) if found else ()
        if not operands and isinstance(node, cst.Call):
            operands = _given(view, phase, module, node, kind, values)
        if len(operands) >= 2:
            yield Operation(module, node, kind, tuple(operands), together(found or values))


def together(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else Value("join", args=tuple(values))


# -- operators and torch's own ------------------------------------------------------------------------------


def _spelled(
    view: KernelView, phase: str, module: ParsedModule, node: cst.CSTNode, found: Sequence[Value]
) -> Sequence[Operand]:
    """The operands of an operator, an augmented assignment, a torch function or a method."""
    if isinstance(node, cst.BinaryOperation | cst.AugAssign):
        nodes = (node.left, node.right) if isinstance(node, cst.BinaryOperation) else (node.target, node.value)
        parts = [n for n in nodes if isinstance(n, cst.BaseExpression)]
        return [_operand(module, n, [v.args[i] for v in found]) for i, n in enumerate(parts)]
    if not isinstance(node, cst.Call) or _argument(node, "out") is not None or any(a.star for a in node.args):
        return ()
    if found[0].name in LISTED:
        return _elements(view, phase, module, node)
    tensors = tensors_of(view, phase, node)
    if found[0].name in FUSED_ADDS:
        return _fused(module, node, tensors, found)
    if len(tensors) < 2:
        return ()
    one, other = (_operand(module, n, [v.args[i] for v in found]) for i, n in enumerate(tensors[:2]))
    return [one, _times(module, other, _argument(node, "alpha"))]


def _operand(module: ParsedModule, node: cst.BaseExpression, values: Sequence[Value]) -> Operand:
    return Operand(node, together(values), parenthesised(module.code(node), node))


def _times(module: ParsedModule, operand: Operand, factor: cst.BaseExpression | None) -> Operand:
    """The operand as it is said alone where the operation itself multiplies it."""
    if factor is None:
        return operand
    return replace(operand, text=f"({operand.text} * {parenthesised(module.code(factor), factor)})")


def _argument(node: cst.Call, keyword: str) -> cst.BaseExpression | None:
    return next((a.value for a in node.args if a.keyword is not None and a.keyword.value == keyword), None)


def tensors_of(view: KernelView, phase: str, node: cst.Call) -> list[cst.BaseExpression]:
    """The receiver of a method, the positional arguments, and those that have the keywords of operands."""
    found = [a.value for a in node.args if a.keyword is None]
    if isinstance(node.func, cst.Attribute):
        values = view.seen(phase).get(node.func.value, [])
        if any(resolve(v).kind != "library" for v in values):
            found.insert(0, node.func.value)
    return [*found, *(a for k in OPERAND_KEYWORDS if (a := _argument(node, k)) is not None)]


def _fused(
    module: ParsedModule, node: cst.Call, tensors: Sequence[cst.BaseExpression], found: Sequence[Value]
) -> Sequence[Operand]:
    """`torch.addmm(total, one, other, beta=b, alpha=a)`."""
    if len(tensors) < 3:
        return ()
    one, other = (parenthesised(module.code(n), n) for n in tensors[1:3])
    product = f"({one} @ {other})" + (".sum(0)" if found[0].name.startswith("addbmm") else "")
    total = _operand(module, tensors[0], [v.args[0] for v in found])
    term = Operand(None, together([v.args[1] for v in found]), product)
    return [_times(module, total, _argument(node, "beta")), _times(module, term, _argument(node, "alpha"))]


def _elements(view: KernelView, phase: str, module: ParsedModule, node: cst.Call) -> Sequence[Operand]:
    """`sum((a, b))`, `reduce(torch.add, [a, b])`: what stands in the list."""
    listed = node.args[0 if getattr(node.func, "value", "") == "sum" else 1].value
    if not isinstance(listed, cst.Tuple | cst.List) or any(isinstance(e, cst.StarredElement) for e in listed.elements):
        return ()
    seen = view.seen(phase)
    return [replace(_operand(module, e.value, seen.get(e.value, [UNKNOWN])), listed=e) for e in listed.elements]


# -- the target's own functions -----------------------------------------------------------------------------


def _given(
    view: KernelView, phase: str, module: ParsedModule, node: cst.Call, kind: str, values: Sequence[Value]
) -> Sequence[Operand]:
    """The arguments of which a function of the target's own returns the sum, and of nothing else."""
    made = [o for v in values for o in alternatives(v)]
    if not any(_top(o).kind == kind and _top(o).node is not node for o in made):
        return ()
    arguments = [a for a in node.args if not a.star]
    roots = [_roots(view.seen(phase).get(a.value, [])) for a in arguments]
    used: set[int] = set()
    if not all(_made_of(option, kind, roots, used) for option in made):
        return ()
    starred = _starred(view, phase, node)
    return [
        replace(
            _operand(module, a.value, view.seen(phase)[a.value]),
            listed=a if starred is not None and i >= starred and a.keyword is None else None,
        )
        for i, a in enumerate(arguments)
        if i in used
    ]


def _top(value: Value) -> Value:
    """What is under the casts and reshapes of a result."""
    while value.kind in TRANSPARENT and value.args:
        value = value.args[0]
    return value


def _roots(values: Sequence[Value]) -> set[int]:
    """Identities of an argument under casts and reshapes, as a whole and of each alternative."""
    whole = {id(strip(v)) for v in values} | {id(strip(o)) for v in values for o in alternatives(v)}
    return whole - {id(NONE), id(UNKNOWN)}


def _made_of(value: Value, kind: str, roots: Sequence[set[int]], used: set[int]) -> bool:
    """Whether a value is a sum of arguments only; those that it needs go to `used`."""
    value = _top(value)
    at = next((i for i, r in enumerate(roots) if id(value) in r or id(strip(value)) in r), None)
    if at is not None:
        used.add(at)
        return True
    if value.kind == "join":
        return all(_made_of(a, kind, roots, used) for a in value.args)
    if value.kind == kind:
        return all(_made_of(a, kind, roots, used) for a in value.args[:2])
    return value.kind == "none"


def _starred(view: KernelView, phase: str, node: cst.Call) -> int | None:
    """The position from which a function takes any number of arguments."""
    for value in view.seen(phase).get(node.func, []):
        for option in alternatives(value):
            if option.kind == "function" and option.scope is not None:
                definition = view.source.modules[option.scope[0]].scopes[option.scope[1]]
                if isinstance(definition, cst.FunctionDef) and isinstance(definition.params.star_arg, cst.Param):
                    return len(definition.params.posonly_params) + len(definition.params.params)
    return None


def _left_out(module: ParsedModule, listed: Listed) -> Edit:
    """An argument or element taken out of its list, with the comma that parts it from the next (or the last)."""
    row: Sequence[Listed] = _row(module, listed)
    index = next(i for i, other in enumerate(row) if other is listed)
    start, _ = module.span(listed)
    tuple_ = module.parent(listed)
    if isinstance(tuple_, cst.Tuple) and len(row) == 2:  # one that is left needs its comma
        return module.replace(tuple_, f"({module.code(row[1 - index].value)},)")
    if index + 1 < len(row):
        return Edit(start, module.span(row[index + 1])[0], "")
    if index:
        start = module.span(row[index - 1].value)[1]
    return Edit(start, module.span(listed.value)[1], "")


def _row(module: ParsedModule, listed: Listed) -> Sequence[Listed]:
    parent = module.parent(listed)
    if isinstance(parent, cst.Call):
        return parent.args
    assert isinstance(parent, cst.Tuple | cst.List)
    return parent.elements
