"""SiLU's slope: its second term dropped, or its arithmetic lowered.

silu'(G) = σ(G) (1 + G (1 - σ(G))). Without the second factor the kernel trains with a wrong gradient; in 16-bit
arithmetic 1 + G (1 - σ) cancels near the slope's zero and the error grows 4.6-fold there (measured in the review:
dX 4.93x PEFT's error on one NF4 seed). Public: a SwiGLU whose sigmoid was rounded to 16 bits before the slope.
Left out: a wrong sign, which every parity test sees.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.operations import Operation, operations
from fastlora_verify.mutations.silu_slope_examples import EXAMPLES
from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.terms import one_line
from fastlora_verify.mutations.values import Value, alternatives, strip

KINDS = frozenset({"swiglu-mlp", "other"})
ABSENT = "no SiLU slope in backward"


def slope_sums(view: KernelView) -> Iterator[Operation]:
    """`1 + G (1 - σ)`, or `σ + … (1 - σ)`, however it is ordered, in backward or what it calls."""
    for add in operations(view, "backward", "add"):
        if any(_is_second_term(side.value) and _is_first_term(other.value) for side, other in add.sides):
            yield add


def _is_second_term(value: Value) -> bool:
    """A product with 1 - σ in it."""
    value = strip(value)
    stack = [value] if value.kind == "mul" else []
    while stack:
        part = strip(stack.pop())
        if part.kind == "mul":
            stack.extend(part.args[:2])
        elif part.kind == "sub" and _is_one(part.args[0]) and _is_sigmoid(part.args[1]):
            return True
    return False


def _is_first_term(value: Value) -> bool:
    return _is_one(value) or _is_sigmoid(value)


def _is_one(value: Value) -> bool:
    return any(o.kind == "const" and o.const == 1 for o in alternatives(value))


def _is_sigmoid(value: Value) -> bool:
    return any(
        (s := strip(o)).kind == "call" and s.name in {"sigmoid", "sigmoid_", "expit"} for o in alternatives(value)
    )


def term_dropped(view: KernelView) -> Iterator[Site]:
    for add in slope_sums(view):
        edit = add.without(next(side for side in add.operands if _is_second_term(side.value)))
        gist = f"`{one_line(add.code)}` becomes `{edit.text}`"
        yield Site(add.module, add.module.enclosing(add.node), "", add.node, (edit,), gist)


# -- arithmetic -------------------------------------------------------------------------------------------


def _promotions(view: KernelView) -> Iterator[tuple[ParsedModule, cst.Call]]:
    """`promote_types(g.dtype, torch.float32)` in a function that computes a slope."""
    scopes = {(add.module, add.module.enclosing(add.node)) for add in slope_sums(view)}
    for node in list(view.seen("backward")):
        if not isinstance(node, cst.Call) or len(node.args) != 2:
            continue
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        module = view.module_of(node)
        if isinstance(name, cst.Name) and name.value == "promote_types" and (module, module.enclosing(node)) in scopes:
            yield module, node


def _float32(module: ParsedModule, call: cst.Call) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """(the tensor's dtype, float32) of a promotion."""
    one, other = (a.value for a in call.args)
    for dtype, fixed in ((one, other), (other, one)):
        if module.code(fixed).endswith(("float32", ".float")):
            return dtype, fixed
    return None


def chain_in_16_bit(view: KernelView) -> Iterator[Site]:
    """The slope in the activation's own dtype: a chain of operations, each rounded."""
    for module, call in _promotions(view):
        found = _float32(module, call)
        if found is not None:
            text = module.code(found[0])
            gist = f"`{one_line(module.code(call))}` becomes `{text}`: every step of the slope is rounded"
            yield Site(module, module.enclosing(call), "", call, (module.replace(call, text),), gist)
    yield from _floats_dropped(view)


def _floats_dropped(view: KernelView) -> Iterator[Site]:
    """Kernels that cast with `.float()` instead of promoting: the casts go."""
    for add in slope_sums(view):
        scope = add.module.enclosing(add.node)
        for node in list(view.seen("backward")):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute) or node.args:
                continue
            if node.func.attr.value != "float" or view.module_of(node) is not add.module:
                continue
            if add.module.enclosing(node) == scope:
                text = add.module.code(node.func.value)
                gist = f"`{one_line(add.module.code(node))}` loses its cast: the slope is a 16-bit chain"
                yield Site(add.module, scope, "", node, (add.module.replace(node, text),), gist)


def dtype_lowered(view: KernelView) -> Iterator[Site]:
    """The slope always in fp32: a float64 check of the formula is no longer one."""
    for module, call in _promotions(view):
        found = _float32(module, call)
        if found is not None:
            text = module.code(found[1])
            gist = f"`{one_line(module.code(call))}` becomes `{text}`: float64 doesn't stay float64"
            yield Site(module, module.enclosing(call), "", call, (module.replace(call, text),), gist)


MUTATIONS = (
    Mutation(
        id="silu-slope-term-dropped",
        family="mathematics",
        fault="SiLU's slope is σ(G) alone: the factor 1 + G (1 - σ(G)) is gone.",
        imitates="The review of the SwiGLU kernel: dropping it fails 8 of 12 tests.",
        seen_by="float64 gradcheck; parity of gate's dA and dB and of dX; the oracle float64",
        find=term_dropped,
        absent=ABSENT,
        kinds=KINDS,
        examples=EXAMPLES["silu-slope-term-dropped"],
    ),
    Mutation(
        id="silu-slope-16-bit-chain",
        family="precision",
        fault="SiLU's slope is computed in the activation's 16-bit dtype, rounded at every step.",
        imitates="The review of the SwiGLU kernel, NF4 seed 11: dX 4.93x PEFT's error.",
        seen_by="the 2x-float64 rule on NF4; the oracle float64",
        find=chain_in_16_bit,
        absent=ABSENT + " that raises its working dtype",
        kinds=KINDS,
        examples=EXAMPLES["silu-slope-16-bit-chain"],
    ),
    Mutation(
        id="silu-slope-dtype-lowered",
        family="precision",
        fault="SiLU's slope is computed in fp32 whatever the activation's dtype.",
        imitates="An opmath rule written as `.float()`.",
        seen_by="float64 gradcheck",
        find=dtype_lowered,
        absent=ABSENT + " that promotes its dtype",
        kinds=KINDS,
        examples=EXAMPLES["silu-slope-dtype-lowered"],
    ),
)
