"""One block called in other ways than forward, backward, done: nothing of one call may reach into another.

Every scenario runs on unpatched PEFT and on the kernel, in float64, and must give the same tensors: two calls in
flight at once, a backward run twice, checkpointing, weights changed in place between two calls, a deep copy with
weights of its own, projections that get different inputs. And when outputs and inputs are dropped, nothing keeps them.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import KINDS, Sample, build
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
from fastlora_verify.oracles.float64 import short, worst_of
from fastlora_verify.oracles.instruments import leaf_like, outputs_of, random_dy, relative_errors, run_block

ID = "calls"
Found = dict[str, Tensor]
Scenario = Callable[[nn.Module, Tensor], Found]


def backward(outputs: tuple[Tensor, ...], seed: int = 1, *, retain: bool = False) -> None:
    """A backward from a random dY."""
    torch.autograd.backward(outputs, random_dy(outputs, seed), retain_graph=retain)


def gradients(model: nn.Module, **leaves: Tensor) -> Found:
    """Copies of what the leaves and the adapters have received."""
    found = {f"d{name}": leaf.grad for name, leaf in leaves.items()}
    found |= {f"d {name}": parameter.grad for name, parameter in model.named_parameters()}
    return {name: gradient.clone() for name, gradient in found.items() if gradient is not None}


def in_flight(model: nn.Module, x: Tensor) -> Found:
    """Two forwards on different inputs, of different lengths, and only then their backwards, last call first."""
    first, second = leaf_like(x, True), leaf_like(x.detach()[:1] * 0.5 + 1, True)
    outputs, later = outputs_of(model(first)), outputs_of(model(second))
    backward(later, 2)
    backward(outputs, 1)
    return gradients(model, first=first, second=second)


def twice(model: nn.Module, x: Tensor) -> Found:
    """The same graph run backward twice: the sum is twice the gradient."""
    leaf = leaf_like(x, True)
    outputs = outputs_of(model(leaf))
    backward(outputs, retain=True)
    backward(outputs)
    return gradients(model, X=leaf)


def checkpointed(reentrant: bool, model: nn.Module, x: Tensor) -> Found:
    """The forward run again during the backward."""
    leaf = leaf_like(x, True)
    backward(outputs_of(checkpoint(model, leaf, use_reentrant=reentrant)))
    return gradients(model, X=leaf)


def after_update(model: nn.Module, x: Tensor) -> Found:
    """A step, every weight and adapter changed in place as by an optimiser or a loader, and a step again."""
    run_block(model, x)
    disturb(model)
    return run_block(model, x)


def after_no_grad(model: nn.Module, x: Tensor) -> Found:
    """A call without gradients, as for validation, and a training step on the same input object."""
    with torch.no_grad():
        model(x)
    return run_block(model, x)


def deep_copy(model: nn.Module, x: Tensor) -> Found:
    """A copy with other weights, and the original after it."""
    twin = copy.deepcopy(model)
    disturb(twin)
    return {f"copy's {name}": t for name, t in run_block(twin, x).items()} | run_block(model, x)


def disturb(model: nn.Module) -> None:
    """Every parameter changed in place, the same on every arm."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(drawn.to(parameter.device, parameter.dtype), alpha=0.3)


def apart(order: tuple[int, ...], inputs: tuple[int, ...], model: nn.Module, x: Tensor) -> Found:
    """The projections of a QKV block called by themselves, in some order, on one or several inputs."""
    leaves = [leaf_like(x, True), leaf_like(x.detach() * 0.5 + 1, True)]
    attention = getattr(model, KINDS["qkv"].block)
    names = KINDS["qkv"].projections
    outputs = tuple(getattr(attention, names[i])(leaves[j]) for i, j in zip(order, inputs, strict=True))
    backward(outputs)
    found = {f"out.{names[i]}": out.detach().clone() for i, out in zip(order, outputs, strict=True)}
    return found | gradients(model, first=leaves[0], second=leaves[1])


def refilled(model: nn.Module, x: Tensor) -> Found:
    """q, then k and v on the same tensor with other values in it, as in a buffer that is used again."""
    attention = getattr(model, KINDS["qkv"].block)
    x = x.detach().clone()
    with torch.no_grad():
        found = {"out.q": attention.q_proj(x).clone()}
        x.mul_(0.5).add_(1)
        return found | {"out.k": attention.k_proj(x).clone(), "out.v": attention.v_proj(x).clone()}


SCENARIOS: tuple[tuple[str, Scenario], ...] = (
    ("two calls in flight", in_flight),
    ("backward twice", twice),
    ("checkpointed, reentrant", partial(checkpointed, True)),
    ("checkpointed, not reentrant", partial(checkpointed, False)),
    ("weights changed between calls", after_update),
    ("after a call without gradients", after_no_grad),
    ("deep copy", deep_copy),
)
QKV_SCENARIOS: tuple[tuple[str, Scenario], ...] = (
    ("k and v on another input than q", partial(apart, (0, 1, 2), (0, 1, 1))),
    ("v on another input than q and k", partial(apart, (0, 1, 2), (0, 0, 1))),
    ("v first, then k, then q", partial(apart, (2, 1, 0), (0, 0, 0))),
    ("q, k, v, and k and v again on another input", partial(apart, (0, 1, 2, 1, 2), (0, 0, 0, 1, 1))),
    ("q on two inputs, then k and v on the first", partial(apart, (0, 0, 1, 2), (0, 1, 0, 0))),
    ("x changed between q and k", refilled),
)


def check(info: KernelInfo, options: Options) -> OracleResult:
    """Every scenario, and what is kept alive after a step."""
    figures: list[Figure] = []
    scenarios = SCENARIOS + (QKV_SCENARIOS if info.kind == "qkv" else ())
    make: Make = partial(build, info, Sample(dtype="float64", device=options.device))
    for name, scenario in scenarios:
        figures += measured(name, partial(scenario_figures, info, name, scenario, make, options.device))
    figures += measured("kept alive", partial(kept_figures, info, make, options.device))
    return judged(ID, info.name, figures, f"{len(scenarios)} ways of calling agree with PEFT")


def scenario_figures(info: KernelInfo, name: str, scenario: Scenario, make: Make, device: str) -> list[Figure]:
    """The tensor of one scenario that differs most from unpatched PEFT's."""
    need_device(device)
    want = scenario(*make())
    model, x = patched(info, make)
    if not ran(info, model, x):
        raise NotRunError("the call was handed back to PEFT")
    errors = relative_errors(scenario(model, x), want)
    tensor = worst_of(errors)
    return [relative_figure(info, f"{name}: {short(tensor)}", errors[tensor], name)]


def kept_figures(info: KernelInfo, make: Make, device: str) -> list[Figure]:
    """Inputs and outputs that are still there after a step when nobody outside holds them."""
    need_device(device)
    model, x = patched(info, make)
    leaf = leaf_like(x, True)
    outputs = outputs_of(model(leaf))
    backward(outputs)
    watched = [weakref.ref(tensor) for tensor in (leaf, *outputs)]
    del leaf, outputs
    if any(reference() is not None for reference in watched):
        gc.collect()  # half a second, so only for the verdict whether a cycle or an owner holds them
    alive = sum(reference() is not None for reference in watched)
    ok = None if alive and not info.declared else alive == 0  # one call's tensors, kept until the next, are no leak
    return [Figure("inputs and outputs kept after a step", alive, 0, ok=ok, key="kept alive", drift=0)]


ORACLE = Oracle(
    id=ID,
    title="Calls that leave each other alone",
    sees="state shared between calls or with a deep copy, stale K and V, a cached weight or H, a second backward",
    blind_to="16-bit layouts; threads; compilation; growth of memory over many steps",
    check=check,
)
