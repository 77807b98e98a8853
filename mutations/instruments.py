"""The instruments that judge: a byte counter, a parity helper, a threshold.

A check that cannot fail is worse than none. In the review a byte counter keyed on `data_ptr` counted every meta
tensor as one, and the assertion passed only because of it. Public: a gate that compared a tensor with itself. These
change oracles and test helpers, where a target has them; a test of the instrument must die.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.instrument_view import InstrumentView
from fastlora_verify.mutations.terms import one_line

IDENTITY = m.Attribute(attr=m.Name("_cdata"))
DISTANCE = m.Call(func=m.Attribute(value=m.BinaryOperation(operator=m.Subtract()), attr=m.Name("abs")))
EQUALITY = m.Call(func=m.Attribute(attr=m.Name("equal") | m.Name("allclose") | m.Name("assert_close")))


def keyed_on_data_ptr(view: InstrumentView) -> Iterator[Site]:
    for module, node in view.nodes():
        if m.matches(node, IDENTITY):
            assert isinstance(node, cst.Attribute)
            text = f"{module.code(node.value)}.data_ptr()"
            gist = f"`{one_line(module.code(node))}` becomes `{text}`: 0 for every meta tensor"
            yield Site(module, module.enclosing(node), "", node, (module.replace(node, text),), gist)


def compares_with_itself(view: InstrumentView) -> Iterator[Site]:
    for module, node in view.nodes():
        sides = _sides(node)
        if sides is not None:
            one, other = sides
            gist = f"`{one_line(module.code(node))}` compares `{one_line(module.code(one), 40)}` with itself"
            edit = module.replace(other, module.code(one))
            yield Site(module, module.enclosing(node), "", node, (edit,), gist)


def _sides(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    if m.matches(node, DISTANCE):
        assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
        difference = node.func.value
        assert isinstance(difference, cst.BinaryOperation)
        return difference.left, difference.right
    if m.matches(node, EQUALITY):
        assert isinstance(node, cst.Call)
        positional = [a.value for a in node.args if a.keyword is None and not a.star]
        return (positional[0], positional[1]) if len(positional) >= 2 else None
    return None


def threshold_raised(view: InstrumentView) -> Iterator[Site]:
    """Module-level numbers that a rule is judged by, ten times as large."""
    for module, node in view.nodes():
        is_number = isinstance(node, cst.Assign | cst.AnnAssign) and isinstance(node.value, cst.Float)
        if not is_number or module.enclosing(node):
            continue
        assert isinstance(node, cst.Assign | cst.AnnAssign) and isinstance(node.value, cst.Float)
        text = repr(node.value.evaluated_value * 10)
        target = node.target if isinstance(node, cst.AnnAssign) else node.targets[0].target
        name = module.code(target)
        gist = f"`{name} = {module.code(node.value)}` becomes {text}"
        yield Site(module, "", name, node.value, (module.replace(node.value, text),), gist)


def _examples(where: str, before: str, after: str, left_alone: str) -> tuple[Example, ...]:
    return (
        Example(where, before, after, kernel="instrument"),
        Example(where, left_alone, None, kernel="instrument"),
    )


def _mutation(ident, fault, imitates, find, absent, examples) -> Mutation:  # type: ignore[no-untyped-def]
    seen_by = "a test of the instrument"
    return Mutation(ident, "instruments", fault, imitates, seen_by, find, absent, examples=examples)


MUTATIONS = (
    _mutation("bytes-keyed-on-data-ptr", "The byte counter tells storages apart by an address that meta tensors lack.",
              "The review of the SwiGLU kernel: peft's X counted twice; the saving overstated by 14 %.",
              keyed_on_data_ptr, "the target names no instrument that counts storages",
              _examples("identity", "key = tensor.untyped_storage()._cdata",
                        "key = tensor.untyped_storage().data_ptr()", "key = id(tensor.untyped_storage())")),
    _mutation("compares-with-itself", "The parity helper compares a tensor with itself.",
              "Public: a check whose result was computed and not asserted; arms that shared a buffer.",
              compares_with_itself, "the target names no instrument that compares",
              (*_examples("difference", "gap = (one - two).abs()", "gap = (one - one).abs()", "gap = one.sub(two)"),
               *_examples("equality", "return torch.equal(one, two)", "return torch.equal(one, one)",
                          "return one is two"))),
    _mutation("threshold-raised", "A rule's threshold is ten times what it was.",
              "Tolerances raised until the test passed.", threshold_raised,
              "the target names no instrument with a threshold",
              _examples("limits", "MARGIN = 2.0", "MARGIN = 20.0", "NAMES = (1.5, 2.5)")),
)  # fmt: skip
