"""One PEFT projection read for a kernel, or the reason why PEFT must run it.

Every kernel asks here, so that there is one list of guards. A reason is a short text; `None` means "no
objection". Guards come in two groups: `layer_reason` looks at what a layer is (a patcher refuses the layer),
the others at the state that it is in (the call is handed back).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from bitsandbytes.nn import Linear4bit
from peft.tuners import lora
from peft.tuners.lora.bnb import Linear4bit as LoraLinear4bit
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from fastlora_verify.kernels.dtypes import cast_dtype
from fastlora_verify.kernels.patching import NO_ADAPTER
from fastlora_verify.kernels.quant import Quant, quant_state_of, take_apart

ADAPTER_LAYERS = (lora.Linear, LoraLinear4bit)
BASE_FORWARDS = (nn.Linear.forward, Linear4bit.forward)


@dataclass(frozen=True)
class ProjectionState:
    """What a kernel computes with, read at call time and dropped after the call.

    A [r, in], B [out, r] and scaling are those of the one active adapter; A and B are `None` without one.
    """

    weight: Tensor  # [out, in] floating, or packed 4-bit codes
    bias: Tensor | None  # [out]
    quant: Quant
    A: Tensor | None
    B: Tensor | None
    scaling: float
    dropout_p: float  # 0.0: no mask
    base_dtype: torch.dtype  # of the base GEMM
    lora_dtype: torch.dtype  # of the LoRA GEMMs
    out_dtype: torch.dtype  # of the output, equal to unpatched PEFT's


def layer_reason(proj: nn.Module) -> str | None:
    """Why a layer can't be computed by a kernel, whatever its state: its type, or the type of its weight.

    Allowed by name are PEFT's two vanilla layers; below them, and for projections without an adapter, any
    layer that runs `nn.Linear.forward` or `bnb.nn.Linear4bit.forward` itself. A Conv1D, an 8-bit layer, a
    ModulesToSaveWrapper or another tuner's layer computes something else.
    """
    if isinstance(proj, BaseTunerLayer) and type(proj) not in ADAPTER_LAYERS:
        return f"unsupported adapter layer {qualified_name(proj)}"
    base = base_layer(proj)
    if type(base).forward not in BASE_FORWARDS:
        return f"unsupported layer {qualified_name(base)}"
    # Nothing says what integers without a 4-bit state mean: as a dense matrix they give garbage, silently.
    if quant_state_of(base) is None and not base.weight.is_floating_point():
        return f"{base.weight.dtype} weight without a 4-bit state"
    return None


def adapter_reason(proj: nn.Module, *, allow_dropout: bool = False) -> str | None:
    """Why the adapter's state needs PEFT; `None` for a projection without an adapter."""
    if not isinstance(proj, BaseTunerLayer):
        return None
    if proj.disable_adapters:
        return "adapters disabled"
    if proj.merged:
        return "adapters merged"
    if len(proj.active_adapters) != 1:
        return f"{len(proj.active_adapters)} active adapters"
    name = proj.active_adapters[0]
    if name not in proj.lora_A:
        return None
    if name in proj.lora_variant:
        return f"lora_variant={type(proj.lora_variant[name]).__name__}"
    if proj.lora_B[name].bias is not None:
        return "lora_bias=True"
    if proj.fan_in_fan_out:
        return "fan_in_fan_out=True"
    return dropout_reason(proj.lora_dropout[name], allow_dropout=allow_dropout)


def dropout_reason(dropout: nn.Module, *, allow_dropout: bool) -> str | None:
    """Why a dropout layer needs PEFT. Only a caller that models dropout may allow it."""
    if isinstance(dropout, nn.Identity):
        return None
    if not isinstance(dropout, nn.Dropout):
        return f"unsupported dropout {qualified_name(dropout)}"
    if not allow_dropout:
        return f"lora_dropout={dropout.p}"
    if dropout.p >= 1:  # every element dropped: 1 / (1 - p) does not exist
        return f"lora_dropout={dropout.p}"
    return None


def base_reason(proj: nn.Module) -> str | None:
    """Why the base layer's state needs PEFT: kernels give no gradient to it, and read one packed layout."""
    base = base_layer(proj)
    if any(parameter.requires_grad for parameter in base.parameters()):
        return "trainable base parameter"
    if getattr(quant_state_of(base), "packing_format_for_cpu", False):
        return "4-bit weight repacked for CPU inference"
    return None


def state_reason(proj: nn.Module, *, allow_dropout: bool = False) -> str | None:
    """Why a projection needs PEFT whatever its input: the first objection of the three kinds."""
    reason = layer_reason(proj)
    if reason is not None:
        return reason
    reason = adapter_reason(proj, allow_dropout=allow_dropout)
    if reason is not None:
        return reason
    return base_reason(proj)


def dtype_reason(proj: nn.Module, dtype: torch.dtype, device_type: str) -> str | None:
    """Why PEFT must see an input of `dtype`: its layers raise where dtypes don't meet."""
    base = base_layer(proj)
    dense = quant_state_of(base) is None
    if dense and cast_dtype(dtype, device_type) != cast_dtype(base.weight.dtype, device_type):
        return f"input is {dtype}, weight is {base.weight.dtype}"
    A, B, _ = adapter_of(proj)
    if A is None or B is None:
        return None
    if cast_dtype(A.dtype, device_type) != cast_dtype(B.dtype, device_type):
        return f"lora_A is {A.dtype}, lora_B is {B.dtype}"
    if dtype != A.dtype and not proj.cast_input_dtype_enabled:
        return "input dtype casting disabled"
    return None


def projection_state(
    proj: nn.Module, x: Tensor, *, dtype: torch.dtype | None = None, allow_dropout: bool = False
) -> ProjectionState | str:
    """Everything that a kernel needs of a projection for this call, or why PEFT must run.

    `dtype` is the dtype of the projection's input where that isn't `x` itself (down's input is computed from
    x).
    """
    dtype = x.dtype if dtype is None else dtype
    device_type = x.device.type
    reason = state_reason(proj, allow_dropout=allow_dropout)
    if reason is not None:
        return reason
    reason = dtype_reason(proj, dtype, device_type)
    if reason is not None:
        return reason
    base = base_layer(proj)
    A, B, scaling = adapter_of(proj)
    base_dtype = compute_dtype(base, x, dtype)
    adapter_dtype = base_dtype if A is None else cast_dtype(A.dtype, device_type)
    return ProjectionState(
        weight=base.weight,
        bias=base.bias,
        quant=take_apart(quant_state_of(base)),
        A=A,
        B=B,
        scaling=scaling,
        dropout_p=active_dropout(proj),
        base_dtype=base_dtype,
        lora_dtype=adapter_dtype,
        out_dtype=output_dtype(proj, dtype, base_dtype, adapter_dtype),
    )


def base_layer(proj: nn.Module) -> Any:
    """The layer below PEFT's, or the layer itself. One level only: nested tuner layers are refused."""
    return proj.base_layer if isinstance(proj, BaseTunerLayer) else proj


def adapter_of(proj: nn.Module) -> tuple[Tensor | None, Tensor | None, float]:
    """A, B and scaling of the active adapter; `(None, None, 1.0)` for a projection that it doesn't adapt."""
    if not isinstance(proj, BaseTunerLayer):
        return None, None, 1.0
    name = proj.active_adapters[0]
    if name not in proj.lora_A:
        return None, None, 1.0
    return proj.lora_A[name].weight, proj.lora_B[name].weight, proj.scaling[name]


def active_dropout(proj: nn.Module) -> float:
    """Probability with which the active adapter's dropout drops now: 0.0 in eval mode or without one."""
    if not isinstance(proj, BaseTunerLayer):
        return 0.0
    name = proj.active_adapters[0]
    if name not in proj.lora_A:
        return 0.0
    dropout = proj.lora_dropout[name]
    if isinstance(dropout, nn.Dropout) and dropout.training:
        return dropout.p
    return 0.0


def compute_dtype(base: nn.Module, x: Tensor, dtype: torch.dtype) -> torch.dtype:
    """Dtype of the base GEMM.

    A dense layer computes in its input's dtype (or autocast's); a `Linear4bit` in its `compute_dtype`, which
    its first call settles from the input when nobody chose one. That first call may be ours, so it is settled
    here too.
    """
    if not isinstance(base, Linear4bit):
        return cast_dtype(dtype, x.device.type)
    if not base.compute_type_is_set:
        base.set_compute_type(torch.empty_like(x, dtype=dtype))
        base.compute_type_is_set = True
    chosen: torch.dtype | None = base.compute_dtype
    return dtype if chosen is None else chosen


def output_dtype(
    proj: nn.Module, dtype: torch.dtype, base_dtype: torch.dtype, adapter_dtype: torch.dtype
) -> torch.dtype:
    """Dtype of unpatched PEFT's output.

    Dense: the base GEMM's, autocast's included. 4-bit: `Linear4bit` casts back to its input's dtype; PEFT's
    4-bit layer then casts the LoRA term to it unless `torch.is_autocast_enabled()`, which without an argument
    speaks of CUDA alone, and adds; so under CUDA autocast the two promote.
    """
    if not isinstance(base_layer(proj), Linear4bit):
        return base_dtype
    if isinstance(proj, LoraLinear4bit) and torch.is_autocast_enabled():
        return torch.promote_types(dtype, adapter_dtype)
    return dtype


def siblings_reason(states: Sequence[ProjectionState]) -> str | None:
    """Why siblings can't share GEMMs: none of them has an adapter, or their dtypes differ."""
    adapted = [state for state in states if state.A is not None]
    if not adapted:
        return NO_ADAPTER
    reason = mixture_reason("compute", {state.base_dtype for state in states})
    if reason is not None:
        return reason
    return mixture_reason("adapter", {state.lora_dtype for state in adapted})


def mixture_reason(what: str, dtypes: set[torch.dtype]) -> str | None:
    """Why siblings of these dtypes can't be computed together: there is more than one."""
    if len(dtypes) > 1:
        names = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)
        return f"siblings with different {what} dtypes: {', '.join(names)}"
    return None


def lora_dtype(states: Sequence[ProjectionState]) -> torch.dtype:
    """The dtype that the adapted siblings' LoRA GEMMs share; there is one, `siblings_reason` saw to it."""
    return next(state.lora_dtype for state in states if state.A is not None)


def qualified_name(module: nn.Module) -> str:
    """Class of a module with the library it comes from: `bitsandbytes.Linear8bitLt`."""
    library = type(module).__module__.split(".", 1)[0]
    return f"{library}.{type(module).__name__}"
