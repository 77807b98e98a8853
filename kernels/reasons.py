"""Which module runs a kernel, and why the others are left to PEFT."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from bitsandbytes.nn import Linear4bit
from torch import nn

from fastlora_verify.kernels.activation import activation_reason
from fastlora_verify.kernels.patching import (
    NO_ADAPTER,
    QKV_PROJECTIONS,
    SWIGLU_PROJECTIONS,
    has_children,
    patch_of,
)
from fastlora_verify.kernels.projection import (
    adapter_of,
    base_layer,
    mixture_reason,
    state_reason,
)
from fastlora_verify.kernels.qkv import qkv_refusal
from fastlora_verify.kernels.swiglu import swiglu_refusal

KERNEL = "kernel"
NOT_PATCHED = "not patched"


def delegation_reasons(model: nn.Module) -> dict[str, str]:
    """Module path to `"kernel"`, or to `"PEFT: "` and the reason (`"PEFT: lora_dropout=0.1"`).

    Told are every block that a group kernel could own (an attention with q_proj, k_proj and v_proj, an MLP
    with gate_proj, up_proj and down_proj) and every LoRA layer. The answer is for the state that the model is
    in now. What only a call can show (extra arguments, an input's dtype, another input for k_proj) is the
    reason of the last call, until a later one runs the kernel.
    """
    answers: dict[str, str] = {}
    for path, module in model.named_modules():
        if has_children(module, QKV_PROJECTIONS):
            tell_qkv(answers, path, module)
        elif has_children(module, SWIGLU_PROJECTIONS):
            tell_swiglu(answers, model, path, module)
        elif type(module).__module__.startswith("peft.tuners.lora") and hasattr(module, "lora_A"):
            answers.setdefault(path, linear_answer(module))
    return answers


def tell_qkv(answers: dict[str, str], path: str, attention: nn.Module) -> None:
    """Answers for an attention and, where the kernel owns them, for its projections."""
    patch = patch_of(attention.get_submodule("q_proj"))
    if patch is None or patch.kernel != "qkv":
        answers[path] = peft(qkv_refusal(attention) or NOT_PATCHED)
        return
    projections = [attention.get_submodule(name) for name in QKV_PROJECTIONS]
    reason = group_reason(projections)
    answers[path] = answer(reason or patch.last_reason)
    for name, proj in zip(QKV_PROJECTIONS, projections, strict=True):
        own = patch_of(proj)
        last = None if own is None else own.last_reason
        answers[below(path, name)] = answer(state_reason(proj) or reason or patch.last_reason or last)


def tell_swiglu(answers: dict[str, str], model: nn.Module, path: str, mlp: nn.Module) -> None:
    """Answers for an MLP and, where the kernel owns them, for its projections."""
    patch = patch_of(mlp)
    if patch is None or patch.kernel != "swiglu":
        answers[path] = peft(swiglu_refusal(model, path, mlp) or NOT_PATCHED)
        return
    projections = [mlp.get_submodule(name) for name in SWIGLU_PROJECTIONS]
    reason = activation_reason(mlp) or group_reason(projections) or patch.last_reason
    answers[path] = answer(reason)
    for name, proj in zip(SWIGLU_PROJECTIONS, projections, strict=True):
        answers[below(path, name)] = answer(state_reason(proj) or reason)


def linear_answer(module: nn.Module) -> str:
    """Answer for a LoRA layer that no group owns."""
    patch = patch_of(module)
    if patch is None:
        return peft(state_reason(module) or NOT_PATCHED)
    reason = state_reason(module, allow_dropout=patch.allow_dropout)
    if reason is None and adapter_of(module)[0] is None:
        reason = NO_ADAPTER
    return answer(reason or patch.last_reason)


def group_reason(projections: Sequence[nn.Module]) -> str | None:
    """Why a patched group hands its calls back, as far as it shows without an input."""
    for proj in projections:
        reason = state_reason(proj)
        if reason is not None:
            return reason
    adapters = [A for A, _, _ in map(adapter_of, projections) if A is not None]
    if not adapters:
        return NO_ADAPTER
    chosen = {chosen_dtype(proj) for proj in projections}
    reason = mixture_reason("compute", {dtype for dtype in chosen if dtype is not None})
    if reason is not None:
        return reason
    return mixture_reason("adapter", {A.dtype for A in adapters})


def chosen_dtype(proj: nn.Module) -> torch.dtype | None:
    """Dtype that a base layer computes in, autocast aside; `None` where its first input will decide."""
    base = base_layer(proj)
    if isinstance(base, Linear4bit):
        chosen: torch.dtype | None = base.compute_dtype
        return chosen
    dtype: torch.dtype = base.weight.dtype
    return dtype


def answer(reason: str | None) -> str:
    """`"kernel"` without a reason."""
    return KERNEL if reason is None else peft(reason)


def peft(reason: str) -> str:
    """A reason as callers read it."""
    return f"PEFT: {reason}"


def below(path: str, name: str) -> str:
    """Path of a child."""
    return f"{path}.{name}" if path else name
