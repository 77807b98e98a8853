"""Q, K and V of one input as one autograd Function.

Forward, for P in q, k, v (widths and ranks may differ; grouped-query attention has narrow k and v):

    [Hq Hk Hv] = X [Aq; Ak; Av]ᵀ      one GEMM
    P = X Wpᵀ + bp + sp Hp Bpᵀ

Backward:

    dBp = sp dPᵀ Hp
    dHp = sp dP Bp
    [dAq; dAk; dAv] = [dHq dHk dHv]ᵀ X      one GEMM
    dX = dQ Wq + dK Wk + dV Wv + [dHq dHk dHv] [Aq; Ak; Av]      accumulated in one tensor

X [..., i]; P [..., o_p]; Wp [o_p, i] dense or packed 4-bit, bp [o_p]; Ap [r_p, i], Bp [o_p, r_p]; Hp [N, r_p]
with N the product of X's leading dimensions. Any projection may have no adapter (A, B `None`). Weights and
biases are frozen. An output that isn't used has no gradient (`None`), and then neither have its adapter's A
and B, as in PEFT.

The call of q_proj computes all three. K and V wait for the next call of k_proj and of v_proj, and are handed
over only for the identical input object; every other call of k_proj and v_proj (cross-attention) goes to
PEFT.

Saved for the backward: X once, H, the weights as they are stored with their quant states' tensors, and the
adapters.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fastlora_verify.kernels.dtypes import Dtypes, explicit_dtypes
from fastlora_verify.kernels.handover import Handover
from fastlora_verify.kernels.patching import (
    EXTRA_ARGUMENTS,
    NO_ADAPTER,
    QKV_PROJECTIONS,
    Patch,
    has_children,
    install,
    kernel_of,
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

INFERENCE_TENSOR = "inference tensor as input"
OTHER_INPUT = "not the input of the last q_proj call"


class FusedLoraQKV(torch.autograd.Function):
    """`(Q, K, V)` of one X with adapters and a hand-written backward; formulas in the module's docstring."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        q_weight: Tensor,
        q_bias: Tensor | None,
        q_A: Tensor | None,
        q_B: Tensor | None,
        q_scaling: float,
        q_quant: QuantTensors,
        q_meta: QuantMeta | None,
        k_weight: Tensor,
        k_bias: Tensor | None,
        k_A: Tensor | None,
        k_B: Tensor | None,
        k_scaling: float,
        k_quant: QuantTensors,
        k_meta: QuantMeta | None,
        v_weight: Tensor,
        v_bias: Tensor | None,
        v_A: Tensor | None,
        v_B: Tensor | None,
        v_scaling: float,
        v_quant: QuantTensors,
        v_meta: QuantMeta | None,
        dtypes: Dtypes,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V of `dtypes.out`."""
        base, lora = dtypes.base, dtypes.lora
        with explicit_dtypes(x.device.type):
            x_b = x.to(base)
            A_qkv = together((q_A, k_A, v_A), dim=0)
            H_qkv = F.linear(x.to(lora), A_qkv.to(lora))
            H_q, H_k, H_v = apart(H_qkv, (q_A, k_A, v_A), dim=-1)

            W_q = dense_weight(q_weight, q_quant, q_meta, base)
            Q = F.linear(x_b, W_q, bias_as(q_bias, base)).to(dtypes.out[0])
            if q_B is not None:
                Q = scaled_lora_add(Q, H_q, q_B.to(lora), q_scaling)

            W_k = dense_weight(k_weight, k_quant, k_meta, base)
            K = F.linear(x_b, W_k, bias_as(k_bias, base)).to(dtypes.out[1])
            if k_B is not None:
                K = scaled_lora_add(K, H_k, k_B.to(lora), k_scaling)

            W_v = dense_weight(v_weight, v_quant, v_meta, base)
            V = F.linear(x_b, W_v, bias_as(v_bias, base)).to(dtypes.out[2])
            if v_B is not None:
                V = scaled_lora_add(V, H_v, v_B.to(lora), v_scaling)

        ctx.save_for_backward(
            x, H_qkv,
            q_weight, q_A, q_B,
            k_weight, k_A, k_B,
            v_weight, v_A, v_B,
            *q_quant, *k_quant, *v_quant,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.scalings = (q_scaling, k_scaling, v_scaling)
        ctx.metas = (q_meta, k_meta, v_meta)
        ctx.dtypes = dtypes
        return Q, K, V

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dQ: Tensor | None, dK: Tensor | None, dV: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of x and of every A and B in their own dtypes; `None` where none is asked for or due."""
        if dQ is None and dK is None and dV is None:
            return (None,) * len(ctx.needs_input_grad)
        (
            x, H_qkv,
            q_weight, q_A, q_B,
            k_weight, k_A, k_B,
            v_weight, v_A, v_B,
            *quant,
        ) = ctx.saved_tensors  # fmt: skip
        q_quant = QuantTensors(*quant[:QUANT_SLOTS])
        k_quant = QuantTensors(*quant[QUANT_SLOTS : 2 * QUANT_SLOTS])
        v_quant = QuantTensors(*quant[2 * QUANT_SLOTS :])
        q_scaling, k_scaling, v_scaling = ctx.scalings
        q_meta, k_meta, v_meta = ctx.metas
        base, lora = ctx.dtypes.base, ctx.dtypes.lora
        needs = ctx.needs_input_grad
        needs_x = needs[0]
        needs_q_A, needs_q_B = needs[3], needs[4]
        needs_k_A, needs_k_B = needs[10], needs[11]
        needs_v_A, needs_v_B = needs[17], needs[18]
        needs_H = needs_x or needs_q_A or needs_k_A or needs_v_A

        dX = dA_q = dB_q = dA_k = dB_k = dA_v = dB_v = None
        dX_q = dX_k = dX_v = dX_lora = dH_q = dH_k = dH_v = None
        with explicit_dtypes(x.device.type):
            X, dQ, dK, dV = rows(x), rows(dQ), rows(dK), rows(dV)
            H_q, H_k, H_v = apart(rows(H_qkv), (q_A, k_A, v_A), dim=1)

            if dQ is not None:
                dQ_l = dQ.to(lora)
                if needs_q_B:
                    dB_q = ((dQ_l * q_scaling).t() @ H_q).to(q_B.dtype)
                if q_B is not None and needs_H:
                    dH_q = (dQ_l * q_scaling) @ q_B.to(lora)
                if needs_x:
                    W_q = dense_weight(q_weight, q_quant, q_meta, base)
                    dX_q = (dQ.to(base) @ W_q).to(x.dtype)

            if dK is not None:
                dK_l = dK.to(lora)
                if needs_k_B:
                    dB_k = ((dK_l * k_scaling).t() @ H_k).to(k_B.dtype)
                if k_B is not None and needs_H:
                    dH_k = (dK_l * k_scaling) @ k_B.to(lora)
                if needs_x:
                    W_k = dense_weight(k_weight, k_quant, k_meta, base)
                    dX_k = (dK.to(base) @ W_k).to(x.dtype)

            if dV is not None:
                dV_l = dV.to(lora)
                if needs_v_B:
                    dB_v = ((dV_l * v_scaling).t() @ H_v).to(v_B.dtype)
                if v_B is not None and needs_H:
                    dH_v = (dV_l * v_scaling) @ v_B.to(lora)
                if needs_x:
                    W_v = dense_weight(v_weight, v_quant, v_meta, base)
                    dX_v = (dV.to(base) @ W_v).to(x.dtype)

            A_q, A_k, A_v = due(q_A, dH_q), due(k_A, dH_k), due(v_A, dH_v)
            dH_qkv = together((dH_q, dH_k, dH_v), dim=1)
            if dH_qkv is not None and (needs_q_A or needs_k_A or needs_v_A):
                dA_qkv = dH_qkv.t() @ X.to(lora)
                dA_q, dA_k, dA_v = apart(dA_qkv, (A_q, A_k, A_v), dim=0)
                dA_q = dA_q.to(q_A.dtype) if needs_q_A and dA_q is not None else None
                dA_k = dA_k.to(k_A.dtype) if needs_k_A and dA_k is not None else None
                dA_v = dA_v.to(v_A.dtype) if needs_v_A and dA_v is not None else None

            if dH_qkv is not None and needs_x:
                A_qkv = together((A_q, A_k, A_v), dim=0)
                dX_lora = dH_qkv @ A_qkv.to(lora)
            if needs_x:
                dX = promoted_sum(x.dtype, dX_q, dX_k, dX_v, dX_lora).reshape(x.shape)

        return (
            dX,
            None, None, dA_q, dB_q, None, None, None,
            None, None, dA_k, dB_k, None, None, None,
            None, None, dA_v, dB_v, None, None, None,
            None,
        )  # fmt: skip


def due(A: Tensor | None, dH: Tensor | None) -> Tensor | None:
    """A if its projection's output got a gradient."""
    return None if dH is None else A


def query_forward(patch: Patch, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Forward of a patched q_proj: computes Q, K and V, returns Q, keeps K and V for the next two calls."""
    original = patch.original
    attention = patch.owner
    handover: Handover = patch.shared
    handover.drop()
    if args or kwargs:
        patch.last_reason = EXTRA_ARGUMENTS
        return original(x, *args, **kwargs)
    if x.is_inference():  # counts no versions: a change in place could not be told
        patch.last_reason = INFERENCE_TENSOR
        return original(x, *args, **kwargs)
    q = projection_state(attention.q_proj, x)
    if isinstance(q, str):
        patch.last_reason = q
        return original(x, *args, **kwargs)
    k = projection_state(attention.k_proj, x)
    if isinstance(k, str):
        patch.last_reason = k
        return original(x, *args, **kwargs)
    v = projection_state(attention.v_proj, x)
    if isinstance(v, str):
        patch.last_reason = v
        return original(x, *args, **kwargs)
    reason = siblings_reason((q, k, v))
    if reason is not None:
        patch.last_reason = reason
        return original(x, *args, **kwargs)
    patch.last_reason = None
    Q, K, V = FusedLoraQKV.apply(  # type: ignore[no-untyped-call]
        x,
        q.weight,
        q.bias,
        q.A,
        q.B,
        q.scaling,
        q.quant.tensors,
        q.quant.meta,
        k.weight,
        k.bias,
        k.A,
        k.B,
        k.scaling,
        k.quant.tensors,
        k.quant.meta,
        v.weight,
        v.bias,
        v.A,
        v.B,
        v.scaling,
        v.quant.tensors,
        v.quant.meta,
        Dtypes(q.base_dtype, lora_dtype((q, k, v)), (q.out_dtype, k.out_dtype, v.out_dtype)),
    )
    handover.put("k_proj", K, x, k)
    handover.put("v_proj", V, x, v)
    out: Tensor = Q
    return out


def key_forward(patch: Patch, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Forward of a patched k_proj: the K that was computed with Q for this very input, else PEFT's."""
    original = patch.original
    handover: Handover = patch.shared
    if args or kwargs:
        handover.drop("k_proj")
        patch.last_reason = EXTRA_ARGUMENTS
        return original(x, *args, **kwargs)
    state = projection_state(patch.module, x)
    if isinstance(state, str):
        handover.drop("k_proj")
        patch.last_reason = state
        return original(x, *args, **kwargs)
    K = handover.take("k_proj", x, state)
    if K is None:
        patch.last_reason = OTHER_INPUT
        return original(x, *args, **kwargs)
    patch.last_reason = None
    return K


def value_forward(patch: Patch, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Forward of a patched v_proj: the V that was computed with Q for this very input, else PEFT's."""
    original = patch.original
    handover: Handover = patch.shared
    if args or kwargs:
        handover.drop("v_proj")
        patch.last_reason = EXTRA_ARGUMENTS
        return original(x, *args, **kwargs)
    state = projection_state(patch.module, x)
    if isinstance(state, str):
        handover.drop("v_proj")
        patch.last_reason = state
        return original(x, *args, **kwargs)
    V = handover.take("v_proj", x, state)
    if V is None:
        patch.last_reason = OTHER_INPUT
        return original(x, *args, **kwargs)
    patch.last_reason = None
    return V


def qkv_refusal(attention: nn.Module) -> str | None:
    """Why an attention isn't patched: what it is, not the state that it is in."""
    projections = [getattr(attention, name) for name in QKV_PROJECTIONS]
    for proj in projections:
        reason = layer_reason(proj)
        if reason is not None:
            return reason
    if not any(type(proj) in ADAPTER_LAYERS for proj in projections):
        return NO_ADAPTER
    if len({proj.in_features for proj in projections}) != 1:
        return "unequal input widths"
    return None


def patch_qkv(model: nn.Module) -> int:
    """Gives every attention with an adapter (children q_proj, k_proj, v_proj) the kernel; returns how many.

    Attentions that are patched already are left alone. The projections are taken from the single kernel.
    """
    count = 0
    for module in list(model.modules()):
        if not has_children(module, QKV_PROJECTIONS):
            continue
        if qkv_refusal(module) is not None:
            continue
        if kernel_of(module.get_submodule("q_proj")) == "qkv":
            continue
        handover = Handover()
        for name, entry in zip(QKV_PROJECTIONS, (query_forward, key_forward, value_forward), strict=True):
            proj = getattr(module, name)
            remove(proj, "linear")
            install(Patch("qkv", entry, proj, module, handover))
        count += 1
    return count


def unpatch_qkv(model: nn.Module) -> int:
    """Removes what `patch_qkv` installed; returns the number of attentions restored."""
    count = 0
    for module in list(model.modules()):
        if not has_children(module, QKV_PROJECTIONS):
            continue
        restored = [remove(getattr(module, name), "qkv") for name in QKV_PROJECTIONS]
        count += any(restored)
    return count
