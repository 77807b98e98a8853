"""The single projection: one adapted linear layer as one autograd Function.

    Y  = X Wᵀ + b + s (X_d Aᵀ) Bᵀ          X_d = X ⊙ keep / (1 - p), or X without dropout
    H  = X_d Aᵀ
    dB = s dYᵀ H
    dH = s dY B
    dA = dHᵀ X_d
    dX = dY W + dH A ⊙ keep / (1 - p)

X [..., i], Y [..., o], W [o, i] dense or packed 4-bit, b [o], A [r, i], B [o, r], H [N, r] with N the product
of X's leading dimensions. W and b are frozen.

Saved for the backward: X, W as it is stored, its quant state's tensors, A, B, H and, with dropout, the
keep-mask (one byte an element); nothing of size [N, o], no dense copy of a packed weight.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fastlora_verify.kernels.dtypes import Dtypes, explicit_dtypes
from fastlora_verify.kernels.patching import (
    EXTRA_ARGUMENTS,
    NO_ADAPTER,
    Patch,
    install,
    owned_projections,
    patch_of,
    remove,
)
from fastlora_verify.kernels.projection import ADAPTER_LAYERS, layer_reason, projection_state
from fastlora_verify.kernels.quant import QuantMeta, QuantTensors, bias_as, dense_weight
from fastlora_verify.kernels.scaled_add import promoted_sum, scaled_lora_add


class FusedLoraLinear(torch.autograd.Function):
    """`Y = X Wᵀ + b + s (X_d Aᵀ) Bᵀ` with a hand-written backward; formulas in the module's docstring."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        A: Tensor,
        B: Tensor,
        scaling: float,
        dropout_p: float,
        quant: QuantTensors,
        meta: QuantMeta | None,
        dtypes: Dtypes,
    ) -> Tensor:
        """Y of `dtypes.out`; `dropout_p` 0.0 means no mask."""
        with explicit_dtypes(x.device.type):
            W = dense_weight(weight, quant, meta, dtypes.base)
            Y = F.linear(x.to(dtypes.base), W, bias_as(bias, dtypes.base)).to(dtypes.out[0])
            X = x.to(dtypes.lora)
            keep = keep_mask(X, dropout_p)
            X_d = drop(X, keep, dropout_p)
            H = F.linear(X_d, A.to(dtypes.lora))
            Y = scaled_lora_add(Y, H, B.to(dtypes.lora), scaling)
        ctx.save_for_backward(x, keep, weight, A, B, H, *quant)
        ctx.scaling = scaling
        ctx.dropout_p = dropout_p
        ctx.meta = meta
        ctx.dtypes = dtypes
        return Y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dY: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, A and B in their own dtypes; `None` where none is asked for."""
        x, keep, weight, A, B, H, *quant = ctx.saved_tensors
        needs_x, _, _, needs_A, needs_B, *_ = ctx.needs_input_grad
        s, p, dtypes = ctx.scaling, ctx.dropout_p, ctx.dtypes
        dX = dA = dB = None
        with explicit_dtypes(x.device.type):
            dY_flat = dY.reshape(-1, dY.shape[-1])
            dY_l = dY_flat.to(dtypes.lora)
            if needs_B:
                H_flat = H.reshape(-1, H.shape[-1])
                dB = ((dY_l * s).t() @ H_flat).to(B.dtype)
            if needs_A or needs_x:
                dH = (dY_l * s) @ B.to(dtypes.lora)
            if needs_A:
                X_d = drop(x.to(dtypes.lora), keep, p).reshape(-1, x.shape[-1])
                dA = (dH.t() @ X_d).to(A.dtype)
            if needs_x:
                W = dense_weight(weight, QuantTensors(*quant), ctx.meta, dtypes.base)
                dX_base = (dY_flat.to(dtypes.base) @ W).to(x.dtype).reshape(x.shape)
                dX_lora = (dH @ A.to(dtypes.lora)).reshape(x.shape)
                dX = promoted_sum(x.dtype, dX_base, drop(dX_lora, keep, p))
        return dX, None, None, dA, dB, None, None, None, None, None


def keep_mask(X: Tensor, p: float) -> Tensor | None:
    """Which elements dropout keeps, bool, of X's shape; `None` without dropout.

    Drawn by the operator that PEFT's `nn.Dropout` runs, so that both draw the same mask from the same
    generator.
    """
    if p == 0.0:
        return None
    _, keep = torch.native_dropout(X, p, True)
    return keep


def drop(X: Tensor, keep: Tensor | None, p: float) -> Tensor:
    """`X ⊙ keep / (1 - p)`, in X's dtype; X itself without a mask. Its own gradient is the same map."""
    if keep is None:
        return X
    return X * keep * (1.0 / (1.0 - p))


def linear_forward(patch: Patch, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Forward of a patched layer: the kernel, or the layer's own forward; `patch.last_reason` says why."""
    original = patch.original
    if args or kwargs:
        patch.last_reason = EXTRA_ARGUMENTS
        return original(x, *args, **kwargs)
    state = projection_state(patch.module, x, allow_dropout=patch.allow_dropout)
    if isinstance(state, str):
        patch.last_reason = state
        return original(x, *args, **kwargs)
    if state.A is None or state.B is None:
        patch.last_reason = NO_ADAPTER
        return original(x, *args, **kwargs)
    patch.last_reason = None
    out: Tensor = FusedLoraLinear.apply(  # type: ignore[no-untyped-call]
        x,
        state.weight,
        state.bias,
        state.A,
        state.B,
        state.scaling,
        state.dropout_p,
        state.quant.tensors,
        state.quant.meta,
        Dtypes(state.base_dtype, state.lora_dtype, (state.out_dtype,)),
    )
    return out


def patch_linear(model: nn.Module, *, allow_dropout: bool = False) -> int:
    """Gives every adapted layer of a supported type its own kernel; returns how many were given one.

    Layers that are patched already, or that belong to a patched QKV or SwiGLU block, are left alone.
    `allow_dropout` lets the kernel model `lora_dropout`; without it such a layer is handed back to PEFT.
    """
    owned = {id(proj) for proj in owned_projections(model)}
    count = 0
    for module in model.modules():
        if type(module) not in ADAPTER_LAYERS:
            continue
        if layer_reason(module) is not None:
            continue
        if patch_of(module) is not None:
            continue
        if id(module) in owned:
            continue
        install(Patch("linear", linear_forward, module, module, allow_dropout=allow_dropout))
        count += 1
    return count


def unpatch_linear(model: nn.Module) -> int:
    """Removes what `patch_linear` installed; returns the number of layers restored."""
    return sum(remove(module, "linear") for module in model.modules())
