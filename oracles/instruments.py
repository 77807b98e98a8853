"""What suites and oracles measure with: saved bytes, GEMMs, error ratios, parity, one step of a block.

An instrument that is wrong makes every test built on it green. So each refuses what it cannot judge
(nothing to compare, unequal keys, a NaN, two arms that share memory) instead of passing it.
Every refusal is an AssertionError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

TWICE = 2.0
"""A kernel may err against float64 by at most this many times what unpatched PEFT errs."""

FLOAT64_NOISE = 1e-12
"""Error relative to the largest exact value under which nothing is told apart.

The float64 arm rounds too: by about k * 2**-53 for k accumulated products, 1e-12 for the k of under
10,000 that occur here. The next coarser arm, fp32, rounds at 6e-8, so no real error hides below it."""

Tensors = Mapping[str, Tensor]


class SavedBytes:
    """Counts the bytes that autograd keeps for the backward of what runs inside the `with` block.

    A tensor is identified by its storage object and by how it looks into it (offset, shape, strides), and
    counted once however often it is saved. `data_ptr()` would not do: it is 0 for every tensor on the meta
    device, and equal for a storage and the one that later reuses its memory. Parameters count as well.
    """

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.bytes: list[int] = []
        self.storages: set[int] = set()  # by `storage_identity`, of tensors that outlive the block
        self._alive: dict[tuple[Any, ...], Tensor] = {}
        self._hooks: Any = None

    @property
    def total(self) -> int:
        """Bytes saved so far."""
        return sum(self.bytes)

    def _pack(self, tensor: Tensor) -> Tensor:
        key = view_identity(tensor)
        if key not in self._alive:
            # Held until the block ends: a storage that dies in between could lend its address to another.
            self._alive[key] = tensor
            self.storages.add(storage_identity(tensor))
            self.shapes.append(tuple(tensor.shape))
            self.bytes.append(tensor.numel() * tensor.element_size())
        return tensor

    def __enter__(self) -> SavedBytes:
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
        self._alive.clear()


def storage_identity(tensor: Tensor) -> int:
    """The storage object behind `tensor`; equal for views of each other, on every device, meta included."""
    return int(tensor.untyped_storage()._cdata)


def view_identity(tensor: Tensor) -> tuple[Any, ...]:
    """What makes two tensors the same bytes looked at in the same way."""
    return (storage_identity(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


GEMM_OPS = frozenset(
    {"mm", "addmm", "addmm_", "bmm", "baddbmm", "linear", "matmul", "mv", "addmv", "dot", "_addmm_activation"}
    | {"gemm_4bit", "gemv_4bit", "int8_linear_matmul", "int8_scaled_mm"}
)


class Product(NamedTuple):
    """One matrix product as it was dispatched."""

    name: str
    operands: tuple[tuple[int, ...], ...]  # shapes of its tensors, a bias included
    result: tuple[int, ...]
    dtype: torch.dtype  # of the result


class MatmulCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the matrix products that run inside the `with` block, in forward and in backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Product] = []

    @property
    def count(self) -> int:
        """Products so far."""
        return len(self.calls)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        if name in GEMM_OPS:
            operands = tuple(tuple(arg.shape) for arg in args if isinstance(arg, Tensor))
            self.calls.append(Product(name, operands, tuple(result.shape), result.dtype))
        return result


def matmul_count() -> MatmulCount:
    """A counter of matrix products, to be used in a `with` block."""
    return MatmulCount()


def largest_error(got: Tensor, want: Tensor) -> float:
    """max |got - want| in float64; NaN where either holds a NaN or where infinities meet.

    Raises AssertionError when the shapes differ: broadcasting would compare something else.
    """
    assert got.shape == want.shape, f"shapes differ: {tuple(got.shape)} and {tuple(want.shape)}"
    if got.numel() == 0:
        return 0.0
    return float((got.detach().double() - want.detach().double()).abs().max())


def relative_error(got: Tensor, want: Tensor) -> float:
    """max |got - want| / max |want|; 0 when both are zero, inf when only `want` is."""
    error = largest_error(got, want)
    size = float(want.detach().double().abs().max()) if want.numel() else 0.0
    if size == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return error / size


def relative_errors(got: Tensors, want: Tensors) -> dict[str, float]:
    """`relative_error` by name. Raises AssertionError where the two can't be compared."""
    assert_comparable(got, want)
    return {name: relative_error(got[name], want[name]) for name in want}


def error_ratio(got: Tensor, reference: Tensor, exact: Tensor) -> float:
    """How many times the error of `reference` against `exact` the error of `got` is.

    Both errors are held at or above FLOAT64_NOISE times the largest exact value, so that two arms that are
    both as good as exact give 1 and a reference without any error is not a division by zero. A NaN or an
    infinity anywhere gives NaN, which no limit passes when it is asked for as `ratio <= limit`.
    """
    ours, theirs = largest_error(got, exact), largest_error(reference, exact)
    size = float(exact.detach().double().abs().max()) if exact.numel() else 0.0
    if not all(map(math.isfinite, (ours, theirs, size))):
        return math.nan
    floor = max(FLOAT64_NOISE * size, torch.finfo(torch.float64).tiny)
    return max(ours, floor) / max(theirs, floor)


def error_ratios(got: Tensors, reference: Tensors, exact: Tensors) -> dict[str, float]:
    """`error_ratio` per name.

    Raises AssertionError when there is nothing to compare, when the three arms name different tensors,
    when shapes differ, or when two arms share a storage.
    """
    assert_comparable(got, reference, "got", "reference")
    assert_comparable(got, exact, "got", "exact")
    assert_comparable(reference, exact, "reference", "exact")
    return {name: error_ratio(got[name], reference[name], exact[name]) for name in got}


def assert_within_twice(got: Tensors, reference: Tensors, exact: Tensors, limit: float = TWICE) -> dict[str, float]:
    """The rule: |got - exact| is at most `limit` times |reference - exact|, by name. Returns the ratios."""
    ratios = error_ratios(got, reference, exact)
    over = {name: ratio for name, ratio in ratios.items() if not ratio <= limit}
    assert not over, f"over {limit:g} times the reference's error against float64: {_listed(over)}"
    return ratios


def assert_parity(
    got: Tensors, want: Tensors, *, rtol: float, atol: float, same_dtype: bool = True
) -> dict[str, float]:
    """|got - want| <= atol + rtol * max |want|, name by name. Returns the relative errors.

    The bound is on the whole tensor, not on each element: an element that is nearly zero by cancellation
    has no small relative error in any correct implementation.

    Raises AssertionError for a difference, a NaN or infinity in either arm, differing shapes or dtypes,
    no names, unequal sets of names, and arms that share memory.
    """
    assert_comparable(got, want)
    over = {}
    for name in want:
        if same_dtype:
            assert got[name].dtype == want[name].dtype, f"{name}: {got[name].dtype}, not {want[name].dtype}"
        size = float(want[name].detach().double().abs().max()) if want[name].numel() else 0.0
        error = largest_error(got[name], want[name])
        if not error <= atol + rtol * size < math.inf:
            over[name] = error
    assert not over, f"differ by more than {atol:g} + {rtol:g} times the largest value: {_listed(over)}"
    return relative_errors(got, want)


def assert_comparable(got: Tensors, want: Tensors, one: str = "got", other: str = "want") -> None:
    """Refuses two arms that have nothing to compare, that name different tensors, or that share memory."""
    assert got and want, f"nothing to compare: {one} has {len(got)} tensors, {other} has {len(want)}"
    if got.keys() != want.keys():
        missing, extra = sorted(want.keys() - got.keys()), sorted(got.keys() - want.keys())
        raise AssertionError(f"{one} and {other} name different tensors: missing {missing}, extra {extra}")
    shared = {storage_identity(t) for t in got.values()} & {storage_identity(t) for t in want.values()}
    assert not shared, f"{one} and {other} share memory: a tensor would be compared with itself"


def _listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items())


def mean_of_squares(outputs: tuple[Tensor, ...]) -> Tensor:
    """The sum over outputs of the mean of squares, in at least fp32: a scalar loss whose dY is 2 Y / n."""
    total = sum(out.to(torch.promote_types(out.dtype, torch.float32)).square().mean() for out in outputs)
    assert isinstance(total, Tensor)
    return total


def random_dy(outputs: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]:
    """A dY for each output: standard normal, drawn in float64 and then cast: every arm gets the same."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.device, out.dtype) for out in outputs
    )


def leaf_like(x: Tensor, requires_grad: bool) -> Tensor:
    """A leaf with the values and the strides of `x` and memory of its own."""
    leaf = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
    return leaf.copy_(x.detach()).requires_grad_(requires_grad)


def outputs_of(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A block's result as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def run_block(
    model: nn.Module,
    x: Tensor,
    *,
    loss: Callable[[tuple[Tensor, ...]], Tensor] = mean_of_squares,
    dy: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]] | None = None,
    input_grad: bool = True,
    dtype: torch.dtype | None = torch.float64,
) -> dict[str, Tensor]:
    """One forward and backward of `model` on a private copy of `x`; everything that comes out of it, by name.

    `out` (or `out.0`, `out.1`, ... of a block with several), `dX`, and `d <parameter>` for each trainable
    parameter that got a gradient: a kernel that forgets one leaves the name out, which every comparison
    refuses. The clones are cast to `dtype`, or kept as they came when it is None. The backward starts from
    `loss`, or from the given `dy`. No gradient is left behind on the model.
    """
    leaf = leaf_like(x, input_grad)
    model.zero_grad(set_to_none=True)
    outputs = outputs_of(model(leaf))
    if dy is None:
        loss(outputs).backward()  # type: ignore[no-untyped-call]
    else:
        torch.autograd.backward(outputs, dy(outputs))
    found = {f"out.{i}" if len(outputs) > 1 else "out": out for i, out in enumerate(outputs)}
    if leaf.grad is not None:
        found["dX"] = leaf.grad
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.grad is not None:
            found[f"d {name}"] = parameter.grad
    result = {name: value.detach().to(dtype or value.dtype, copy=True) for name, value in found.items()}
    model.zero_grad(set_to_none=True)
    return result


def lora_terms(model: nn.Module, x: Tensor) -> dict[str, float]:
    """How far each `lora_B` moves the block: max |out - out with that B zeroed| / max |out|, by parameter."""
    moved = {}
    with torch.no_grad():
        before = [out.clone() for out in outputs_of(model(x))]
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                with _zeroed(parameter):
                    after = outputs_of(model(x))
                moved[name] = max(relative_error(a, b) for a, b in zip(after, before, strict=True))
    return moved


def assert_lora_matters(model: nn.Module, x: Tensor, at_least: float = 1e-3) -> dict[str, float]:
    """Refuses a model whose adapters do nothing: with B = 0 most faults of a kernel are invisible."""
    moved = lora_terms(model, x)
    assert moved, "no lora_B in the model: nothing of a LoRA kernel would be seen"
    idle = {name: value for name, value in moved.items() if not value >= at_least}
    assert not idle, f"LoRA terms that do not move the output: {_listed(idle)}"
    return moved


@contextmanager
def _zeroed(parameter: Tensor) -> Iterator[None]:
    kept = parameter.detach().clone()
    parameter.zero_()
    try:
        yield
    finally:
        parameter.copy_(kept)
