"""An abstract run of a kernel: what torch's functions and methods make of their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import libcst as cst

from fastlora_verify.mutations.values import Label, Value, elements, known_items, resolve

MATMULS = frozenset({"matmul", "mm", "bmm", "linear", "einsum", "inner", "tensordot"})
FUSED_ADDS = frozenset({"addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addbmm_"})
ADDS = frozenset({"add", "add_"})
MULS = frozenset({"mul", "mul_", "multiply", "multiply_"})
DIVS = frozenset({"div", "div_", "divide", "divide_", "true_divide", "true_divide_"})
CASTS = frozenset({"to", "float", "half", "bfloat16", "double", "type", "type_as"})
MOVES = frozenset({
    "t", "transpose", "transpose_", "permute", "reshape", "view", "flatten", "unflatten", "contiguous", "expand",
    "expand_as", "squeeze", "unsqueeze", "narrow", "detach", "clone", "requires_grad_", "movedim", "view_as",
    "adjoint", "swapaxes", "split", "chunk", "tensor_split", "unbind", "split_with_sizes", "sum_to_size", "item",
    "tolist", "copy_", "t_", "squeeze_", "unsqueeze_",
})  # fmt: skip
SPLITS = frozenset({"split", "split_with_sizes", "tensor_split"})
MASKS = frozenset({"bernoulli", "bernoulli_", "rand", "rand_like"})
DROPOUTS = frozenset({"dropout", "dropout_", "feature_dropout", "native_dropout"})
TENSOR_FACTS = frozenset({
    "numel", "dim", "size", "is_floating_point", "element_size", "data_ptr", "is_contiguous", "promote_types",
    "result_type", "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_enabled", "stride", "nelement",
})  # fmt: skip
# Tensors that take only dtype and device from what they are made from.
FRESH = frozenset(
    {"new_empty", "new_zeros", "new_ones", "empty_like", "zeros_like", "ones_like", "empty", "zeros", "ones"}
)
# Tensors made of a number or of data: the position of that argument in the function and in the method.
FILLED = {"tensor": (0, 0), "as_tensor": (0, 0), "scalar_tensor": (0, 0), "full": (1, 1), "full_like": (1, 1),
          "new_tensor": (0, 1), "new_full": (1, 2)}  # fmt: skip
CATS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})

BINARIES = {
    **dict.fromkeys(MATMULS, "matmul"),
    **dict.fromkeys(ADDS, "add"),
    **dict.fromkeys(MULS, "mul"),
    **dict.fromkeys(DIVS, "div"),
    **dict.fromkeys(("sub", "sub_", "subtract", "subtract_"), "sub"),
}


def torch_call(
    node: cst.Call, name: str, receiver: Value | None, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """The value of a call that isn't one of the target's own functions."""
    is_method = receiver is not None and resolve(receiver).kind != "library"
    operands = [*([receiver] if is_method and receiver is not None else []), *args]
    named = {key: value for key, value in kwargs.items() if key != "out"}
    everything = (*operands, *named.values())
    if name in TENSOR_FACTS:
        return Value("meta", node, name=name, attrs={f"arg{i}": a for i, a in enumerate(everything)})
    if name in FRESH:
        return Value("fresh", node, name=name)
    if name in FILLED:
        return _filled(node, name, operands, named, is_method)
    if name in MASKS | DROPOUTS:
        mask = Value("source", node, name=name, own=frozenset({Label("mask")}))
        if name in MASKS:
            return mask
        dropped = Value("call", node, (*everything, mask), name=name)
        return dropped if name != "native_dropout" else Value("seq", node, items=(dropped, mask))
    if name in FUSED_ADDS and (fused := _fused_add(node, name, operands, named)) is not None:
        return fused
    if name in BINARIES and len(numbers := _numbers(everything)) >= 2:
        return Value(BINARIES[name], node, numbers, name=name, attrs=named)
    if name == "multi_dot" and operands:
        return fold(lambda a, b: Value("matmul", node, (a, b), name=name), elements(operands[0]), node)
    if name in CASTS and operands:
        attrs = {f"arg{i}": a for i, a in enumerate(operands[1:])}
        return Value("cast", node, (operands[0],), name=name, attrs=attrs)
    if name in SPLITS and len(operands) >= 2 and (cuts := known_items(operands[1])):
        pieces = len(cuts) + (name == "tensor_split")
        return Value("seq", node, items=tuple(Value("move", node, (operands[0],), name=name) for _ in range(pieces)))
    if name in MOVES and operands:
        moved = operands[-1] if name == "copy_" else operands[0]
        return Value("move", node, (moved,), name=name)
    if name in CATS and operands:
        return Value("cat", node, (operands[0],), name=name, attrs=named)
    if not everything and not is_method:
        return Value("call", node, name=name)
    return Value("call", node, everything, name=name, attrs=named)


def _numbers(operands: Sequence[Value]) -> tuple[Value, ...]:
    """Operands without the equation of an `einsum`."""
    return tuple(o for o in operands if not (resolve(o).kind == "const" and isinstance(resolve(o).const, str)))


def _fused_add(node: cst.Call, name: str, operands: list[Value], named: dict[str, Value]) -> Value | None:
    """`torch.addmm(C, A, B, beta=b, alpha=a)` is b C + a A B."""
    by_name = [named[key] for key in ("input", "mat1", "mat2", "batch1", "batch2") if key in named]
    if len(operands) + len(by_name) < 3:
        return None
    total, one, other = [*operands, *by_name][:3]
    alpha = [named["alpha"]] if "alpha" in named else []
    product = Value("matmul", node, (one, other, *alpha), name=name)
    return Value("add", node, (total, product), name=name, attrs=named)


def _filled(node: cst.Call, name: str, operands: list[Value], named: dict[str, Value], is_method: bool) -> Value:
    position = FILLED[name][is_method]
    given = [named[key] for key in ("data", "fill_value", "s") if key in named]
    held = [*given, *operands[position : position + 1]]
    return Value("move", node, (held[0],), name=name) if held else Value("fresh", node, name=name)


def fold(make: Callable[[Value, Value], Value], parts: Sequence[Value], node: cst.CSTNode) -> Value:
    """`reduce` over what is known of a sequence."""
    if not parts:
        return Value("unknown", node)
    return reduce(make, parts)
