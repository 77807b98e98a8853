"""Dropout: modelled exactly by a kernel that opts in, handed back to PEFT by every other.

How a kernel draws its mask is its own affair. The oracle reads the mask off the output instead: with A and B the
identity, `out - base` is `s X keep / (1 - p)`, each element zero or known. The random state set back, the same mask
falls again on other adapters, and output and gradients must be those of the formula with that mask.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import KINDS, Sample, build
from fastlora_verify.oracles.arms import need_device, patched, ran
from fastlora_verify.oracles.base import Figure, NotRunError, Options, Oracle, OracleResult, judged, measured
from fastlora_verify.oracles.exact import LIMIT
from fastlora_verify.oracles.float64 import short, worst_of
from fastlora_verify.oracles.instruments import random_dy, relative_errors, run_block

ID = "dropout"
P = 0.3
WIDTH = 12
ROWS = 40
SIGMAS = 5.0


def check(info: KernelInfo, options: Options) -> OracleResult:
    """A patcher without `allow_dropout` must hand dropout back; with it, off and on are both asked for."""
    figures = measured("dropout handed back", partial(handed_back_figures, info, options.device))
    opts_in = "allow_dropout" in inspect.signature(info.patch).parameters
    if opts_in:
        patch: Any = info.patch
        opted_in = replace(info, patch=partial(patch, allow_dropout=True))
        figures += measured("dropout modelled", partial(modelled_figures, opted_in, options.device))
    return judged(ID, info.name, figures, "dropout modelled" if opts_in else "dropout left to PEFT")


def handed_back_figures(info: KernelInfo, device: str) -> list[Figure]:
    """In training PEFT runs, in eval mode the answer is PEFT's either way."""
    need_device(device)
    make = partial(build, info, Sample(dtype="float64", dropout=P, device=device))
    unpatched, x = make()
    model, _ = make()
    info.patch(model)
    taken = ran(info, model, x)
    if taken and not info.declared:  # it models dropout without being asked to, with a mask of its own
        return modelled_figures(info, device)
    errors = relative_errors(seeded(model, x), seeded(unpatched, x))
    worst = max(errors.values())
    return [
        Figure("dropout: calls taken without opting in", int(taken), 0, ok=not taken),
        Figure("dropout: handed back, against PEFT", worst, LIMIT, "relative", worst <= LIMIT),
    ]


def modelled_figures(info: KernelInfo, device: str) -> list[Figure]:
    """The mask itself, and the formula under it."""
    need_device(device)
    if info.kind != "linear":
        raise NotRunError("dropout is modelled; only the mask of a single projection can be read off its output")
    sample = Sample(dtype="float64", dropout=P, device=device, shape=(ROWS,), bias=False)
    sample = replace(sample, widths=(WIDTH, WIDTH), ranks=(WIDTH,))
    model, x = patched(info, partial(build, info, sample))
    taken = ran(info, model, x)
    keep, strangers = read_mask(model, x)
    again, _ = read_mask(model, x, seed=8)
    expected = ROWS * WIDTH * (1 - P)
    spread = SIGMAS * (ROWS * WIDTH * P * (1 - P)) ** 0.5
    kept = int(keep.sum())
    fresh, _ = build(info, sample)
    model.load_state_dict(fresh.state_dict())
    errors = relative_errors(seeded(model, x), formula(fresh, x, keep))
    tensor = worst_of(errors)
    return [
        Figure("dropout: calls taken after opting in", int(taken), 1, ok=taken),
        Figure("dropout: elements neither 0 nor s x / (1 - p)", strangers, 0, ok=strangers == 0),
        Figure("dropout: elements kept", kept, f"{expected:.0f} ± {spread:.0f}", ok=abs(kept - expected) <= spread),
        Figure("dropout: masks of two calls differ", str(differ := not torch.equal(keep, again)), "True", ok=differ),
        Figure(f"dropout: {short(tensor)}", errors[tensor], LIMIT, "relative", errors[tensor] <= LIMIT),
    ]


def seeded(model: nn.Module, x: Tensor, seed: int = 7) -> dict[str, Tensor]:
    """A step that draws its mask from `seed`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return run_block(model, x, dy=partial(random_dy, seed=1))


def layer_of(model: nn.Module) -> Any:
    """The one adapted projection of a linear model."""
    layer = getattr(model, KINDS["linear"].block)
    assert isinstance(layer, LoraLayer)
    return layer


def adapters(model: nn.Module) -> tuple[Tensor, Tensor, float]:
    """A, B and the scaling of a linear model."""
    layer = layer_of(model)
    return layer.lora_A["default"].weight, layer.lora_B["default"].weight, layer.scaling["default"]


def read_mask(model: nn.Module, x: Tensor, seed: int = 7) -> tuple[Tensor, int]:
    """The mask of one call as booleans of x's shape, and how many elements are neither dropped nor kept right."""
    A, B, s = adapters(model)
    with torch.no_grad():
        A.copy_(torch.eye(WIDTH))
        B.copy_(torch.eye(WIDTH))
    term = seeded(model, x, seed)["out"] - x.detach() @ layer_of(model).base_layer.weight.T
    kept = s * x.detach() / (1 - P)
    keep = term.abs() > kept.abs() / 2
    strangers = (term - kept * keep).abs() > LIMIT * kept.abs().max()
    return keep, int(strangers.sum())


def formula(model: nn.Module, x: Tensor, keep: Tensor) -> dict[str, Tensor]:
    """`Y = X Wᵀ + s (X keep / (1 - p)) Aᵀ Bᵀ` and its gradients, under the given mask."""
    A, B, s = adapters(model)
    W: Tensor = layer_of(model).base_layer.weight
    X = x.detach()
    dropped = X * keep / (1 - P)
    Y = X @ W.T + s * dropped @ A.T @ B.T
    (dY,) = random_dy((Y,), 1)
    dH = s * dY @ B
    names = {id(parameter): f"d {name}" for name, parameter in model.named_parameters()}
    found = {
        "out": Y,
        "dX": dY @ W + dH @ A * keep / (1 - P),
        names[id(A)]: dH.T @ dropped,
        names[id(B)]: s * dY.T @ (dropped @ A.T),
    }
    return {name: tensor.detach() for name, tensor in found.items()}


ORACLE = Oracle(
    id=ID,
    title="Dropout modelled or handed back",
    sees="a mask not applied, or its 1/(1-p), in output, dX, dA or dB; dropout ignored; an opt-in that leaks",
    blind_to="16-bit layouts; correlation of masks between projections",
    check=check,
)
