"""The arms of a comparison: the kernel, unpatched PEFT, and float64, on equal models and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import to_float64_twin
from fastlora_verify.oracles.base import NotRunError
from fastlora_verify.oracles.instruments import leaf_like, outputs_of, run_block

HANDED_BACK = "the call was handed back to PEFT"

Make = Callable[[], tuple[nn.Module, Tensor]]
"""Builds the model and its input anew, the same at every call: each arm has memory of its own."""

CASTS = frozenset({"ToCopyBackward0"})
BETWEEN_BLOCKS = "TanhBackward0"
"""What a stack of blocks puts between them (see streaming): behind it lies another block's graph."""


@dataclass(frozen=True)
class Arms:
    """What `run_block` returns, by arm. `exact` is unpatched PEFT in float64 on the same weights."""

    got: dict[str, Tensor]
    reference: dict[str, Tensor]
    exact: dict[str, Tensor]


def need_device(device: str) -> None:
    """Raises NotRunError for a device that is not here."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise NotRunError("no CUDA device")


def patched(info: KernelInfo, make: Make) -> tuple[nn.Module, Tensor]:
    """A fresh model with the kernel on it, and its input.

    Raises AssertionError when the patcher finds nothing to patch. Of a kernel that nothing is declared of
    raises NotRunError when it hands this model's call back: what follows would be said of PEFT.
    """
    model, x = make()
    count = info.patch(model)
    assert count >= 1, f"the patcher patched {count} blocks of a model that it must take"
    if not info.declared and not ran(info, model, x):
        raise NotRunError(HANDED_BACK)
    return model, x


def three_arms(info: KernelInfo, make: Make, **how: Any) -> Arms:
    """One forward and backward in each arm; `how` goes to `run_block`.

    Raises NotRunError when the kernel handed the call back: PEFT would be compared with PEFT.
    """
    model, x = make()
    exact = run_block(to_float64_twin(model), x.detach().double(), **how)
    reference = run_block(model, x, **how)
    fast, x = patched(info, make)
    if not ran(info, fast, x):
        raise NotRunError(HANDED_BACK)
    return Arms(run_block(fast, x, **how), reference, exact)


def ran(info: KernelInfo, model: nn.Module, x: Tensor) -> bool:
    """Whether one forward of `model` goes through the kernel's node, for every output."""
    outputs = outputs_of(model(leaf_like(x, x.requires_grad)))
    return all(took(info, out) for out in outputs)


def took(info: KernelInfo, out: Tensor) -> bool:
    """Whether the kernel made `out`.

    Of a kernel that is only described it isn't known what its entry does to its node's output (reshape it, add a
    bias), so its node may lie anywhere in the block's own graph.
    """
    return node_of(info, out) is not None


def node_of(info: KernelInfo, out: Tensor) -> Any:
    """The kernel's node behind `out`, which is its `ctx`, or None."""
    if info.declared:
        return below_casts(out) if reaches(out, info.node) else None
    waiting, seen = [out.grad_fn], set()
    while waiting:
        function = waiting.pop(0)
        name = type(function).__name__
        if name == info.node:
            return function
        if function is None or function in seen or name == BETWEEN_BLOCKS:
            continue
        seen.add(function)
        waiting += [following for following, _ in function.next_functions]
    return None


def reaches(out: Tensor, node: str) -> bool:
    """Whether `out` is the kernel's own output, or a cast of it: 4-bit layers cast to their input's dtype."""
    return type(below_casts(out)).__name__ == node


def below_casts(out: Tensor) -> Any:
    """The graph node that made `out`, casts taken off; for a Python Function it is also its `ctx`.

    Only casts are taken off: anything else on top of a kernel's node is somebody's work on its output.
    """
    function: Any = out.grad_fn
    while type(function).__name__ in CASTS:
        function = function.next_functions[0][0]
    return function


def node_name(out: Tensor) -> str:
    """Name of the node that made `out`, "none" without one."""
    return type(out.grad_fn).__name__ if out.grad_fn is not None else "none"
