"""bitsandbytes' 4-bit weights: the quant state taken apart for `save_for_backward`, and put together again.

Every tensor of the state goes through `save_for_backward` beside the packed weight, so that saved-tensor
hooks and version checks see whatever the backward reads; only numbers, names and dtypes may stay on `ctx`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from bitsandbytes.functional import QuantState, dequantize_4bit
from torch import Tensor, nn


class QuantTensors(NamedTuple):
    """Tensors of a quant state; all `None` for a dense weight, the last three for a flat state."""

    absmax: Tensor | None = None  # [blocks], float32, or uint8 codes when nested
    code: Tensor | None = None  # [16]
    offset: Tensor | None = None  # scalar, added to the nested absmax
    nested_absmax: Tensor | None = None  # [blocks / 256], float32
    nested_code: Tensor | None = None  # [256]


@dataclass(frozen=True)
class QuantMeta:
    """What a quant state holds beside tensors."""

    shape: tuple[int, ...]  # of the dense weight, [out, in]
    blocksize: int
    quant_type: str
    nested_blocksize: int | None  # None: flat
    nested_dtype: torch.dtype | None


class Quant(NamedTuple):
    """A 4-bit state in two halves; `meta` is `None` for a dense weight."""

    tensors: QuantTensors
    meta: QuantMeta | None


DENSE = Quant(QuantTensors(), None)
QUANT_SLOTS = len(QuantTensors._fields)


def quant_state_of(base: nn.Module) -> QuantState | None:
    """The 4-bit state of a layer's weight, or `None` for a weight that isn't packed.

    A weight streamed in for one call is a bare view that carries no state; the module keeps its own
    reference.
    """
    state = getattr(base.weight, "quant_state", None)
    if state is None:
        state = getattr(base, "quant_state", None)
    return state


def take_apart(state: QuantState | None) -> Quant:
    """Tensors and plain data of a state. Every call reads them anew: buffers may have been refilled."""
    if state is None:
        return DENSE
    nested = state.state2
    if nested is None:
        meta = QuantMeta(tuple(state.shape), state.blocksize, state.quant_type, None, None)
        return Quant(QuantTensors(state.absmax, state.code), meta)
    tensors = QuantTensors(state.absmax, state.code, state.offset, nested.absmax, nested.code)
    meta = QuantMeta(tuple(state.shape), state.blocksize, state.quant_type, nested.blocksize, nested.dtype)
    return Quant(tensors, meta)


def put_together(tensors: QuantTensors, meta: QuantMeta, dtype: torch.dtype) -> QuantState:
    """The state that `take_apart` took apart, dequantising to `dtype` (fp32, bf16 or fp16)."""
    nested = None
    if meta.nested_blocksize is not None:
        nested = QuantState(
            absmax=tensors.nested_absmax,
            code=tensors.nested_code,
            blocksize=meta.nested_blocksize,
            dtype=meta.nested_dtype,
        )
    return QuantState(
        absmax=tensors.absmax,
        code=tensors.code,
        shape=torch.Size(meta.shape),
        blocksize=meta.blocksize,
        quant_type=meta.quant_type,
        dtype=dtype,
        offset=tensors.offset,
        state2=nested,
    )


def dense_weight(weight: Tensor, tensors: QuantTensors, meta: QuantMeta | None, dtype: torch.dtype) -> Tensor:
    """The weight as a matrix [out, in] of `dtype`: itself if it is dense, else dequantised.

    A packed weight is dequantised straight into `dtype`, as `bitsandbytes::gemm_4bit` does in its forward.
    The result lives for one product and is never saved.
    """
    if meta is None:
        return weight.to(dtype)
    state = put_together(tensors, meta, dtype)
    packed = weight.reshape(-1, 1)  # dequantize_4bit transposes what comes as one row
    dense: Tensor = dequantize_4bit(packed, state)
    return dense


def bias_as(bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The bias in the dtype of the GEMM that adds it."""
    return None if bias is None else bias.to(dtype)
