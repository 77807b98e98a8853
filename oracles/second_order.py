"""A second derivative must be right or refused.

A hand-written backward is made of differentiable operations on saved tensors, so autograd will gladly
differentiate it again. But an intermediate that the forward saved (H, G, U) is a constant to it: terms
are missing, silently, unless the Function is marked as differentiable once.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.arms import Make, need_device, patched, ran
from fastlora_verify.oracles.base import (
    Figure,
    NotRunError,
    Options,
    Oracle,
    OracleResult,
    judged,
    measured,
)
from fastlora_verify.oracles.exact import relative_figure
from fastlora_verify.oracles.instruments import leaf_like, mean_of_squares, outputs_of, relative_error

ID = "second-order"
NAME = "gradient of |dX|^2 + |dA|^2 + |dB|^2"
REFUSED = "refused"


def check(info: KernelInfo, options: Options) -> OracleResult:
    """A gradient penalty, in float64."""
    figures = measured(NAME, partial(all_figures, info, options))
    return judged(ID, info.name, figures, f"a second derivative is {figures[0].value}")


def all_figures(info: KernelInfo, options: Options) -> list[Figure]:
    """The gradient of |dX|^2 + |dA|^2 + |dB|^2 with respect to x and to each adapter."""
    need_device(options.device)
    make: Make = partial(build, info, Sample(dtype="float64", device=options.device))
    want = penalty_gradients(*make())
    model, x = patched(info, make)
    if not ran(info, model, x):
        raise NotRunError("the call was handed back to PEFT")
    try:
        got = penalty_gradients(model, x)
    except RuntimeError as error:
        if "once_differentiable" in str(error) or "does not require grad" in str(error):
            return [Figure(NAME, REFUSED, ok=True)]
        raise
    worst = max(relative_error(one, other) for one, other in zip(got, want, strict=True))
    return [relative_figure(info, NAME, worst, NAME)]


def penalty_gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The penalty's gradients, zeros where there is none."""
    leaf = leaf_like(x, True)
    wrt = [leaf, *(p for p in model.parameters() if p.requires_grad)]
    first = torch.autograd.grad(mean_of_squares(outputs_of(model(leaf))), wrt, create_graph=True)
    # Not `grad(..., wrt)`: it runs only what leads to `wrt`, and the node that refuses leads nowhere.
    torch.autograd.backward(mean_of_squares(first))
    return [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in wrt]


ORACLE = Oracle(
    id=ID,
    title="Second derivatives right or refused",
    sees="a backward that autograd differentiates again with terms missing",
    blind_to="first derivatives",
    check=check,
)
