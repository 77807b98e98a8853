"""The bytes that a kernel keeps for its backward, against a sum that is worked out beforehand.

With N rows, weights W [out, in], adapters A [r, in] and B [out, r], hidden activations H = X Aᵀ [N, r] per
projection, e bytes per element, and every storage counted once:

    PEFT, linear:   e (|W| + |A| + |B| + |X| + |H|)
    PEFT, qkv:      the same summed over the three projections, X once
    PEFT, swiglu:   that, and 4 N f e: the gate's output, its SiLU, up's output, their product
    kernel, linear: at most PEFT's
    kernel, qkv:    at most PEFT's
    kernel, swiglu: at most PEFT's less (2 N f + N r) e: SiLU, product and down's H are computed again
    a kernel that nothing is declared of: at most PEFT's

PEFT's own count must equal its sum exactly: that is the check of the counter. The meta device holds no data,
so the real size of a model costs nothing; there only the storage object tells tensors apart. For the MLP of
Llama-3.1-8B (N = 2048, h = 4096, f = 14336, r = 64, bf16) the sums are 611,844,096 and 494,141,440.

On a 4-bit base the packed codes and the quant state's tensors count instead of W; a dense copy of a weight
would show as four times its codes. Whatever the backward reads must be saved through autograd, where
saved-tensor hooks and version checks see it: so each base weight's storage has to be among what was
saved, and `ctx` may hold no tensor besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from fastlora_verify.kernels.four_bit import Linear4bit
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import KINDS, Sample, build
from fastlora_verify.oracles.arms import Make, need_device, node_of, patched, ran
from fastlora_verify.oracles.base import (
    Figure,
    NotRunError,
    Options,
    Oracle,
    OracleResult,
    judged,
    measured,
    one_line,
    told,
)
from fastlora_verify.oracles.instruments import SavedBytes, outputs_of, storage_identity

ID = "saved-bytes"
SWIGLU = "swiglu-mlp"
ELEMENT = {"bf16": (2, 2), "mixed": (2, 4)}
"""Bytes per element of base and input, and of the adapters."""


@dataclass(frozen=True)
class Shape:
    """Sizes of one measurement: `widths` by kind, as in `Sample.widths`; one rank for every projection."""

    name: str
    rows: int
    widths: dict[str, tuple[int, ...]]
    rank: int


LLAMA_8B = Shape(
    "Llama-3.1-8B",
    2048,
    {"linear": (4096, 4096), "qkv": (4096, 4096, 1024, 1024), SWIGLU: (4096, 14336)},
    64,
)
SMALL = Shape(
    "N 1024, h 1024, r 16",
    1024,
    {"linear": (1024, 4096), "qkv": (1024, 2048, 512, 512), SWIGLU: (1024, 4096)},
    16,
)
TINY = Shape("tiny", 40, {name: kind.widths for name, kind in KINDS.items()}, 4)


@dataclass(frozen=True)
class Elements:
    """How many elements each part of the sums has."""

    weights: int
    adapters: int
    x: int
    hidden: int  # H of one projection
    wide: int  # N f of a SwiGLU block, else 0
    projections: int

    def peft(self, size: int) -> int:
        """Bytes that autograd keeps for unpatched PEFT, all tensors of `size` bytes an element."""
        activations = self.x + self.projections * self.hidden + 4 * self.wide
        return size * (self.weights + self.adapters + activations)

    def kernel(self, stored: int, base: int, lora: int) -> int:
        """Bytes that a kernel may keep: weights as `stored`, X, G, U of `base`, adapters and H of `lora`."""
        kept = self.projections - 1 if self.wide else self.projections
        return stored + base * (self.x + 2 * self.wide) + lora * (self.adapters + kept * self.hidden)

    def as_peft(self, stored: int, base: int, lora: int) -> int:
        """Bytes of what PEFT keeps, without the copies that casts leave."""
        activations = base * (self.x + 4 * self.wide) + lora * self.projections * self.hidden
        return stored + activations + lora * self.adapters


def elements(info: KernelInfo, shape: Shape) -> Elements:
    """The parts of the sums for a kernel's kind at a shape."""
    widths = shape.widths[info.kind]
    edges = [(widths[i], widths[o]) for i, o in KINDS[info.kind].edges]
    return Elements(
        weights=sum(i * o for i, o in edges),
        adapters=sum(shape.rank * (i + o) for i, o in edges),
        x=shape.rows * widths[0],
        hidden=shape.rows * shape.rank,
        wide=shape.rows * widths[1] if info.kind == SWIGLU else 0,
        projections=len(edges),
    )


def check(info: KernelInfo, options: Options) -> OracleResult:
    """Two shapes on the meta device; a small block, dense and on a 4-bit base, on `options.device`."""
    figures: list[Figure] = []
    for shape, device in ((LLAMA_8B, "meta"), (SMALL, "meta"), (TINY, options.device)):
        for dtype in ELEMENT:
            figures += measured(f"{shape.name}, {dtype}", partial(dense_figures, info, shape, dtype, device))
    for base in ("nf4", "nf4-nested"):
        figures += measured(f"{TINY.name}, {base}", partial(four_bit_figures, info, base, options.device))
    kernel = [told(figure) for figure in figures if figure.name == f"{LLAMA_8B.name}, bf16: kernel"]
    return judged(ID, info.name, figures, "".join(kernel))


def sample_at(info: KernelInfo, shape: Shape, dtype: str, base: str, device: str) -> Sample:
    """The sample of one measurement: all projections adapted, no bias."""
    return Sample(
        dtype=dtype,
        base=base,
        shape=(1, shape.rows),
        widths=shape.widths[info.kind],
        ranks=(shape.rank,) * len(info.projections),
        bias=False,
        device=device,
    )


def full_size(info: KernelInfo, sample: Sample) -> tuple[nn.Module, Tensor]:
    """The sample with an x that is not drawn: at full size that would take longer than all the rest."""
    model, x = build(info, replace(sample, shape=(1, 1)))
    return model, x.new_zeros(*sample.shape, x.shape[-1]).requires_grad_()


def dense_figures(info: KernelInfo, shape: Shape, dtype: str, device: str) -> list[Figure]:
    """PEFT and kernel on a dense base. PEFT in `mixed` keeps its casts too: reported, not judged."""
    name, parts, (base, lora) = f"{shape.name}, {dtype}", elements(info, shape), ELEMENT[dtype]
    need_device(device)
    make: Make = partial(full_size, info, sample_at(info, shape, dtype, "dense", device))
    model, x = make()
    peft = saved_by(model, x).total
    figures = [Figure(f"{name}: PEFT", peft, unit="B")]
    if base == lora:
        figures = [Figure(f"{name}: PEFT", peft, parts.peft(base), "B", peft == parts.peft(base))]
    try:
        limit = parts.kernel(base * parts.weights, base, lora) if info.declared else peft
        kernel = kernel_figures(info, make, name, limit)
    except Exception as error:
        if isinstance(error, NotRunError) or device != "meta":
            raise
        kernel = [Figure(f"{name}: kernel", f"not run: on the meta device it raises {one_line(error)}")]
    saving = [Figure(f"{name}: saving", peft - f.value, unit="B") for f in kernel if isinstance(f.value, int)]
    return figures + kernel + saving[:1]


def four_bit_figures(info: KernelInfo, base: str, device: str) -> list[Figure]:
    """The kernel on a 4-bit base, in bf16. PEFT keeps its codes where no saved-tensor hook sees them."""
    need_device(device)
    make: Make = partial(build, info, sample_at(info, TINY, "bf16", base, device))
    stored = sum(stored_bytes(layer) for layer in four_bit_layers(make()[0]))
    parts = elements(info, TINY)
    limit = (parts.kernel if info.declared else parts.as_peft)(stored, 2, 2)
    return kernel_figures(info, make, f"{TINY.name}, {base}", limit)


def kernel_figures(info: KernelInfo, make: Make, name: str, limit: int) -> list[Figure]:
    """What the kernel saves against its limit, and how many base weights are among it."""
    model, x = patched(info, make)
    if not ran(info, model, x):
        raise NotRunError("the call was handed back to PEFT")
    saved = saved_by(model, x)
    weights = [p for n, p in model.named_parameters() if n.endswith(".weight") and "lora_" not in n]
    found = sum(storage_identity(weight) in saved.storages for weight in weights)
    hidden = sorted({field for out in outputs_of(model(x)) for field in tensors_on(node_of(info, out))})
    where = [
        Figure(f"{name}: tensors on ctx", ", ".join(hidden) or "none", "none", ok=not hidden, drift=0),
        Figure(f"{name}: base weights saved through autograd", found, len(weights), ok=found == len(weights), drift=0),
    ]
    total = Figure(f"{name}: kernel", saved.total, limit, "B", 0 < saved.total <= limit, drift=0)
    return [total, *(where if info.declared else [replace(figure, ok=None) for figure in where])]


def tensors_on(ctx: Any) -> list[str]:
    """Attributes of a Python Function's ctx that hold or reach a tensor: memory that no hook sees or counts."""
    return [name for name, value in getattr(ctx, "__dict__", {}).items() if holds_tensor(value)]


def holds_tensor(value: Any, depth: int = 4) -> bool:
    """Whether a value is a tensor or a module, or has one among its items, attributes or captured names."""
    if isinstance(value, Tensor | nn.Module):
        return True
    if depth == 0 or isinstance(value, type | str | bytes):
        return False
    return any(holds_tensor(part, depth - 1) for part in parts_of(value))


def parts_of(value: Any) -> list[Any]:
    """What a value holds."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    captured = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    bound = [getattr(value, "__self__", None)]
    return [*getattr(value, "__dict__", {}).values(), *captured, *bound]


def saved_by(model: nn.Module, x: Tensor) -> SavedBytes:
    """What one forward saves."""
    with SavedBytes() as saved:
        model(x)
    return saved


def four_bit_layers(model: nn.Module) -> Iterator[Linear4bit]:
    """The quantised layers of a model."""
    yield from (module for module in model.modules() if isinstance(module, Linear4bit))


def stored_bytes(layer: Linear4bit) -> int:
    """Bytes of a layer's codes and of its quant state's tensors."""
    state = layer.weight.quant_state
    tensors = [layer.weight.data, state.absmax, state.code]
    if state.state2 is not None:
        tensors += [state.offset, state.state2.absmax, state.state2.code]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


ORACLE = Oracle(
    id=ID,
    title="Bytes kept for the backward",
    sees="one more tensor kept, a dense copy of a packed weight, a weight that autograd does not know of",
    blind_to="what the kernel computes; small tensors kept on ctx; memory that lives only inside the call",
    check=check,
)
