"""K and V computed with Q, kept until the next two projection calls take them.

A value is taken at most once, by the same input object, unmodified since, for a projection in the same state
and in the same grad mode. Whatever the answer, taking drops the value, so nothing outlives the calls it was
computed for. The input is held by a weak reference only.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fastlora_verify.kernels.projection import ProjectionState


@dataclass(frozen=True)
class Pending:
    """One computed output and what it was computed from."""

    value: Tensor
    x: weakref.ref[Tensor]
    x_version: int
    state: tuple[Any, ...]  # fingerprint of the projection's state


@dataclass(eq=False)
class Handover:
    """Outputs on their way from the call of q_proj to those of k_proj and v_proj, by projection name."""

    pending: dict[str, Pending] = field(default_factory=dict)

    def put(self, name: str, value: Tensor, x: Tensor, state: ProjectionState) -> None:
        """Keeps an output for the next call of the projection."""
        self.pending[name] = Pending(value, weakref.ref(x), x._version, fingerprint(state))

    def take(self, name: str, x: Tensor, state: ProjectionState) -> Tensor | None:
        """The output for this very input, or `None`; either way it is dropped."""
        pending = self.pending.pop(name, None)
        if pending is None:
            return None
        if pending.x() is not x:
            return None
        if pending.x_version != x._version:
            return None
        if pending.state != fingerprint(state):
            return None
        return pending.value

    def drop(self, *names: str) -> None:
        """Forgets outputs, those of `names` or all."""
        for name in names or tuple(self.pending):
            self.pending.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        """A copy (or a pickle) starts empty: outputs belong to calls of the original."""
        return {"pending": {}}


def fingerprint(state: ProjectionState) -> tuple[Any, ...]:
    """What an output depends on beside x: tensors by identity and version, scalars, the grad mode."""
    tensors = (state.weight, state.bias, state.A, state.B)
    versions = tuple((id(tensor), version(tensor)) for tensor in tensors if tensor is not None)
    dtypes = (state.base_dtype, state.lora_dtype, state.out_dtype)
    return (*versions, state.scaling, *dtypes, torch.is_grad_enabled())


def version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; inference tensors don't count their changes."""
    return -1 if tensor.is_inference() else tensor._version
