"""Which dtype an operation runs in: autocast's rules, stated once and applied by hand.

A kernel casts explicitly and switches autocast off while it computes. So the dtypes of its products are the ones that
it states, in the forward as in the backward, whichever region `backward()` is called in; and what it saves are the
parameters themselves instead of autocast's copies.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Dtypes:
    """Dtypes of one fused call; plain data, may stay on `ctx`."""

    base: torch.dtype  # of the base GEMMs
    lora: torch.dtype  # of the LoRA GEMMs
    out: tuple[torch.dtype, ...]  # of the projections' outputs, in the order of the kernel's arguments


def cast_dtype(dtype: torch.dtype, device_type: str) -> torch.dtype:
    """Dtype that a tensor of `dtype` has inside a matrix product: autocast's if it is on, its own otherwise.

    Autocast leaves float64 and non-floating tensors alone.
    """
    if not torch.amp.is_autocast_available(device_type):
        return dtype
    if not torch.is_autocast_enabled(device_type):
        return dtype
    if dtype == torch.float64 or not dtype.is_floating_point:
        return dtype
    return torch.get_autocast_dtype(device_type)


def explicit_dtypes(device_type: str) -> AbstractContextManager[object]:
    """Context in which autocast changes nothing."""
    if not torch.amp.is_autocast_available(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)
