"""A kernel as data: what oracles and suites need to know of one, without naming it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class KernelInfo:
    """One kernel: how to put it on a model and how to tell that it ran.

    `kind` picks the sample builder of `fastlora_verify.kernels.samples` ("linear", "qkv", "swiglu-mlp");
    `node` is `type(out.grad_fn).__name__` of the kernel's output; `patch(model)` and `unpatch(model)` return
    the number of blocks changed; `projections` are the child names, in the order of the kernel's arguments.

    `declared` False: the kernel is known from a target's description alone, which says nothing of what it
    supports. Then where it hands calls back, what it keeps and how often it multiplies is told, not judged; what
    it computes where it runs is judged as everybody's.
    """

    name: str
    kind: str
    node: str
    patch: Callable[[nn.Module], int]
    unpatch: Callable[[nn.Module], int]
    projections: tuple[str, ...]
    declared: bool = True
