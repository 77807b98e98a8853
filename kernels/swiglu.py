"""The SwiGLU MLP: gate, up and down with their adapters as one autograd Function.

Forward:

    G = X Wgᵀ + bg + sg Hg Bgᵀ      [Hg Hu] = X [Ag; Au]ᵀ      one GEMM
    U = X Wuᵀ + bu + su Hu Buᵀ
    M = silu(G) ⊙ U
    Y = M Wdᵀ + bd + sd Hd Bdᵀ      Hd = M Adᵀ

Backward, σ = sigmoid(G):

    dBd = sd dYᵀ Hd      dHd = sd dY Bd      dAd = dHdᵀ M
    dM  = dY Wd + dHd Ad
    dU  = dM ⊙ silu(G)
    dG  = dM ⊙ U ⊙ σ (1 + G (1 - σ))
    dBg = sg dGᵀ Hg      dHg = sg dG Bg      [dAg; dAu] = [dHg dHu]ᵀ X      one GEMM
    dBu = su dUᵀ Hu      dHu = su dU Bu
    dX  = dG Wg + dU Wu + [dHg dHu] [Ag; Au]

X, Y [..., h]; G, U, M [..., f]; Wg, Wu [f, h], Wd [h, f], dense or packed 4-bit; A [r, in], B [out, r], ranks
may differ; Hg, Hu, Hd [N, r] with N the product of X's leading dimensions. Any of the three may have no
adapter (A, B `None`). Weights and biases are frozen.

Saved for the backward: X, G, U, Hg, Hu, the weights as they are stored with their quant states' tensors, and
the adapters. M and Hd are computed again. Two tensors of size [N, f] less than autograd saves for the plain
block.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fastlora_verify.kernels.activation import activation_reason, config_reason
from fastlora_verify.kernels.dtypes import Dtypes, explicit_dtypes
from fastlora_verify.kernels.patching import (
    EXTRA_ARGUMENTS,
    NO_ADAPTER,
    SWIGLU_PROJECTIONS,
    Patch,
    has_children,
    install,
    patch_of,
    remove,
)
from fastlora_verify.kernels.projection import (
    ADAPTER_LAYERS,
    layer_reason,
    lora_dtype,
    projection_state,
    siblings_reason,
)
from fastlora_verify.kernels.quant import QUANT_SLOTS, QuantMeta, QuantTensors, bias_as, dense_weight
from fastlora_verify.kernels.scaled_add import promoted_sum, scaled_lora_add
from fastlora_verify.kernels.shared_gemm import apart, rows, together


class FusedLoraSwiGLU(torch.autograd.Function):
    """`Y = down(silu(gate(X)) ⊙ up(X))` with a hand-written backward; formulas in the module's docstring."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor | None,
        gate_A: Tensor | None,
        gate_B: Tensor | None,
        gate_scaling: float,
        gate_quant: QuantTensors,
        gate_meta: QuantMeta | None,
        up_weight: Tensor,
        up_bias: Tensor | None,
        up_A: Tensor | None,
        up_B: Tensor | None,
        up_scaling: float,
        up_quant: QuantTensors,
        up_meta: QuantMeta | None,
        down_weight: Tensor,
        down_bias: Tensor | None,
        down_A: Tensor | None,
        down_B: Tensor | None,
        down_scaling: float,
        down_quant: QuantTensors,
        down_meta: QuantMeta | None,
        dtypes: Dtypes,
    ) -> Tensor:
        """Y of `dtypes.out[2]`; G of `dtypes.out[0]`, U of `dtypes.out[1]`."""
        base, lora = dtypes.base, dtypes.lora
        with explicit_dtypes(x.device.type):
            x_b = x.to(base)
            x_l = x.to(lora)
            A_gu = together((gate_A, up_A), dim=0)
            H_gu = None if A_gu is None else F.linear(x_l, A_gu.to(lora))
            H_g, H_u = apart(H_gu, (gate_A, up_A), dim=-1)

            W_g = dense_weight(gate_weight, gate_quant, gate_meta, base)
            G = F.linear(x_b, W_g, bias_as(gate_bias, base)).to(dtypes.out[0])
            if H_g is not None and gate_B is not None:
                G = scaled_lora_add(G, H_g, gate_B.to(lora), gate_scaling)

            W_u = dense_weight(up_weight, up_quant, up_meta, base)
            U = F.linear(x_b, W_u, bias_as(up_bias, base)).to(dtypes.out[1])
            if H_u is not None and up_B is not None:
                U = scaled_lora_add(U, H_u, up_B.to(lora), up_scaling)

            M = F.silu(G) * U

            W_d = dense_weight(down_weight, down_quant, down_meta, base)
            Y = F.linear(M.to(base), W_d, bias_as(down_bias, base)).to(dtypes.out[2])
            if down_A is not None and down_B is not None:
                H_d = F.linear(M.to(lora), down_A.to(lora))
                Y = scaled_lora_add(Y, H_d, down_B.to(lora), down_scaling)

        ctx.save_for_backward(
            x, G, U, H_gu,
            gate_weight, gate_A, gate_B,
            up_weight, up_A, up_B,
            down_weight, down_A, down_B,
            *gate_quant, *up_quant, *down_quant,
        )  # fmt: skip
        ctx.scalings = (gate_scaling, up_scaling, down_scaling)
        ctx.metas = (gate_meta, up_meta, down_meta)
        ctx.dtypes = dtypes
        return Y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dY: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and of every A and B in their own dtypes; `None` where none is asked for."""
        (
            x, G, U, H_gu,
            gate_weight, gate_A, gate_B,
            up_weight, up_A, up_B,
            down_weight, down_A, down_B,
            *quant,
        ) = ctx.saved_tensors  # fmt: skip
        gate_quant = QuantTensors(*quant[:QUANT_SLOTS])
        up_quant = QuantTensors(*quant[QUANT_SLOTS : 2 * QUANT_SLOTS])
        down_quant = QuantTensors(*quant[2 * QUANT_SLOTS :])
        gate_scaling, up_scaling, down_scaling = ctx.scalings
        gate_meta, up_meta, down_meta = ctx.metas
        base, lora = ctx.dtypes.base, ctx.dtypes.lora
        needs = ctx.needs_input_grad
        needs_x = needs[0]
        needs_gate_A, needs_gate_B = needs[3], needs[4]
        needs_up_A, needs_up_B = needs[10], needs[11]
        needs_down_A, needs_down_B = needs[17], needs[18]
        needs_H = needs_x or needs_gate_A or needs_up_A
        needs_M = needs_H or needs_gate_B or needs_up_B

        dH_d: Any = None
        dX = dA_g = dB_g = dA_u = dB_u = dA_d = dB_d = None
        with explicit_dtypes(x.device.type):
            X, G, U, dY = rows(x), rows(G), rows(U), rows(dY)
            H_g, H_u = apart(rows(H_gu), (gate_A, up_A), dim=1)
            silu_G = F.silu(G)
            M = silu_G * U
            M_l = M.to(lora)
            dY_l = dY.to(lora)

            if needs_down_B:
                H_d = F.linear(M_l, down_A.to(lora))
                dB_d = ((dY_l * down_scaling).t() @ H_d).to(down_B.dtype)
            if down_A is not None and (needs_down_A or needs_M):
                dH_d = (dY_l * down_scaling) @ down_B.to(lora)
            if needs_down_A:
                dA_d = (dH_d.t() @ M_l).to(down_A.dtype)

            if needs_M:
                W_d = dense_weight(down_weight, down_quant, down_meta, base)
                dM = (dY.to(base) @ W_d).to(M.dtype)
                if dH_d is not None:  # rounded where autograd rounds: dU, dG and what follows equal PEFT's
                    dM = dM + (dH_d @ down_A.to(lora)).to(M.dtype)

                dU = (dM * silu_G).to(U.dtype)
                opmath = torch.promote_types(G.dtype, torch.float32)
                G_hi = G.to(opmath)
                sigma = torch.sigmoid(G_hi)
                dG = ((dM * U).to(opmath) * sigma * (1 + G_hi * (1 - sigma))).to(G.dtype)
                dG_l = dG.to(lora)
                dU_l = dU.to(lora)

            if needs_gate_B:
                dB_g = ((dG_l * gate_scaling).t() @ H_g).to(gate_B.dtype)
            if needs_up_B:
                dB_u = ((dU_l * up_scaling).t() @ H_u).to(up_B.dtype)

            if needs_H:
                dH_g = None if gate_B is None else (dG_l * gate_scaling) @ gate_B.to(lora)
                dH_u = None if up_B is None else (dU_l * up_scaling) @ up_B.to(lora)
                dH_gu = together((dH_g, dH_u), dim=1)
            if needs_gate_A or needs_up_A:
                dA_gu = dH_gu.t() @ X.to(lora)
                dA_g, dA_u = apart(dA_gu, (gate_A, up_A), dim=0)
                dA_g = dA_g.to(gate_A.dtype) if needs_gate_A else None
                dA_u = dA_u.to(up_A.dtype) if needs_up_A else None

            if needs_x:
                W_g = dense_weight(gate_weight, gate_quant, gate_meta, base)
                dX_g = (dG.to(base) @ W_g).to(x.dtype)
                W_u = dense_weight(up_weight, up_quant, up_meta, base)
                dX_u = (dU.to(base) @ W_u).to(x.dtype)
                A_gu = together((gate_A, up_A), dim=0)
                dX_lora = None if A_gu is None else dH_gu @ A_gu.to(lora)
                dX = promoted_sum(x.dtype, dX_lora, dX_u, dX_g).reshape(x.shape)

        return (
            dX,
            None, None, dA_g, dB_g, None, None, None,
            None, None, dA_u, dB_u, None, None, None,
            None, None, dA_d, dB_d, None, None, None,
            None,
        )  # fmt: skip


def swiglu_forward(patch: Patch, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Forward of a patched MLP: the kernel, or the MLP's own forward with `patch.last_reason` saying why."""
    original = patch.original
    mlp = patch.module
    if args or kwargs:
        patch.last_reason = EXTRA_ARGUMENTS
        return original(x, *args, **kwargs)
    reason = activation_reason(mlp)
    if reason is not None:
        patch.last_reason = reason
        return original(x, *args, **kwargs)
    gate = projection_state(mlp.gate_proj, x)
    if isinstance(gate, str):
        patch.last_reason = gate
        return original(x, *args, **kwargs)
    up = projection_state(mlp.up_proj, x)
    if isinstance(up, str):
        patch.last_reason = up
        return original(x, *args, **kwargs)
    M_dtype = torch.promote_types(gate.out_dtype, up.out_dtype)
    down = projection_state(mlp.down_proj, x, dtype=M_dtype)
    if isinstance(down, str):
        patch.last_reason = down
        return original(x, *args, **kwargs)
    reason = siblings_reason((gate, up, down))
    if reason is not None:
        patch.last_reason = reason
        return original(x, *args, **kwargs)
    patch.last_reason = None
    out: Tensor = FusedLoraSwiGLU.apply(  # type: ignore[no-untyped-call]
        x,
        gate.weight,
        gate.bias,
        gate.A,
        gate.B,
        gate.scaling,
        gate.quant.tensors,
        gate.quant.meta,
        up.weight,
        up.bias,
        up.A,
        up.B,
        up.scaling,
        up.quant.tensors,
        up.quant.meta,
        down.weight,
        down.bias,
        down.A,
        down.B,
        down.scaling,
        down.quant.tensors,
        down.quant.meta,
        Dtypes(gate.base_dtype, lora_dtype((gate, up, down)), (gate.out_dtype, up.out_dtype, down.out_dtype)),
    )
    return out


def swiglu_refusal(model: nn.Module, path: str, mlp: nn.Module) -> str | None:
    """Why the block at `path` of `model` isn't patched: what it is, not the state that it is in."""
    if any("expert" in step for step in path.split(".")):  # experts see routed rows; out of scope
        return "MoE expert"
    reason = activation_reason(mlp)
    if reason is not None:
        return reason
    reason = config_reason(model, path)
    if reason is not None:
        return reason
    others = sorted({name for name, _ in mlp.named_children()} - {*SWIGLU_PROJECTIONS, "act_fn"})
    if others:  # a norm or a dropout in between: the kernel would leave it out
        return f"other layers in the block: {', '.join(others)}"
    projections = [getattr(mlp, name) for name in SWIGLU_PROJECTIONS]
    for proj in projections:
        reason = layer_reason(proj)
        if reason is not None:
            return reason
    if not any(type(proj) in ADAPTER_LAYERS for proj in projections):
        return NO_ADAPTER
    return None


def patch_swiglu(model: nn.Module) -> int:
    """Gives every adapted SwiGLU MLP (children gate_proj, up_proj, down_proj) the kernel; returns how many.

    Blocks that are patched already are left alone. The block's projections are taken from the single kernel.
    """
    count = 0
    for path, module in list(model.named_modules()):
        if not has_children(module, SWIGLU_PROJECTIONS):
            continue
        if patch_of(module) is not None:
            continue
        if swiglu_refusal(model, path, module) is not None:
            continue
        for name in SWIGLU_PROJECTIONS:
            remove(getattr(module, name), "linear")
        install(Patch("swiglu", swiglu_forward, module, module))
        count += 1
    return count


def unpatch_swiglu(model: nn.Module) -> int:
    """Removes what `patch_swiglu` installed; returns the number of blocks restored."""
    return sum(remove(module, "swiglu") for module in model.modules())
