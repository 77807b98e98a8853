"""Weights that come and go: swapped in for a call, overwritten after it.

A streamed model keeps few buffers on the device. A layer's weights are copied into one of them for its
forward, the buffer goes to another layer, and the backward, under checkpointing, loads them again. So a
kernel reads its weights at call time, and its backward reads what autograd saved: whatever it keeps
elsewhere (on ctx, on the module, from the time it was patched) is by then somebody else's.

The first rows overwrite one tensor at a time between forward and backward: the backward refuses, as
autograd's version check does, or is right. The others run four layers through two reused buffers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.arms import HANDED_BACK, Make, need_device, patched, took
from fastlora_verify.oracles.base import Figure, NotRunError, Options, Oracle, OracleResult, judged, measured
from fastlora_verify.oracles.exact import LIMIT, SINGLE_LIMIT
from fastlora_verify.oracles.float64 import short, worst_of
from fastlora_verify.oracles.instruments import (
    leaf_like,
    outputs_of,
    random_dy,
    relative_errors,
    run_block,
)
from fastlora_verify.oracles.node_taken import is_base_weight
from fastlora_verify.oracles.unchanged import read_only

ID = "streaming"
LAYERS = 4
BUFFERS = 2
FLOAT64 = {"dtype": "float64"}
NF4 = {"dtype": "bf16", "base": "nf4-nested", "bias": False}


def check(info: KernelInfo, options: Options) -> OracleResult:
    """Overwritten tensors and reused buffers, on a dense and on a 4-bit base."""
    figures: list[Figure] = []
    for words, fields in (("float64 dense", FLOAT64), ("bf16 nf4-nested", NF4)):
        sample = Sample(device=options.device, **fields)
        name = f"{words}, overwritten before the backward"
        figures += measured(name, partial(overwritten_figures, info, name, sample))
        name = f"{words}, {LAYERS} layers through {BUFFERS} buffers"
        figures += measured(name, partial(pool_figures, info, name, sample))
    return judged(ID, info.name, figures, f"{LAYERS} layers through {BUFFERS} buffers as if resident")


def overwritten_figures(info: KernelInfo, name: str, sample: Sample) -> list[Figure]:
    """Which tensors the backward reads behind autograd's back."""
    need_device(sample.device)
    make: Make = partial(build, info, sample)
    model, x = patched(info, make)
    right = gradients_after(model, x, None)
    silent = []
    for victim, _ in list(read_only(model, x)):
        got = gradients_after(model, x, victim)
        if got is not None and not all(map(torch.equal, got, right or [])):
            silent.append(victim)
    return [Figure(name, ", ".join(silent) or "refused, or right", ok=not silent, drift=0)]


def gradients_after(model: nn.Module, x: Tensor, victim: str | None) -> list[Tensor] | None:
    """dX and the adapters' gradients, the victim overwritten in between; None where the backward refuses."""
    leaf = leaf_like(x, True)
    model.zero_grad(set_to_none=True)
    outputs = outputs_of(model(leaf))
    dy = random_dy(outputs, 1)
    tensors = dict(read_only(model, leaf))
    kept = tensors[victim].detach().clone() if victim else None
    try:
        if victim:
            overwrite(tensors[victim])
        torch.autograd.backward(outputs, dy)
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return None
        raise
    finally:
        if victim and kept is not None:
            tensors[victim].data.copy_(kept)
    return [t.grad for t in (leaf, *model.parameters()) if t.grad is not None]


def overwrite(tensor: Tensor) -> None:
    """Other values in a tensor's memory, its version counter raised, as in a buffer that is filled anew."""
    with torch.no_grad():
        tensor.copy_(tensor.flip(0) + 1 if tensor.dim() else tensor + 1)


def pool_figures(info: KernelInfo, name: str, sample: Sample) -> list[Figure]:
    """Four streamed layers against the same four resident: unpatched in float64, patched on a 4-bit base."""
    need_device(sample.device)
    resident, x = stack(info, sample)
    if sample.base != "dense":  # bf16 is bit for bit the same only between two runs of one kernel
        patch_all(info, resident)
    want = run_block(resident, x)
    layers, x = stack(info, sample)
    patch_all(info, layers)
    streamed = Streamed(layers)
    with_node: list[bool] = []
    for layer in layers.blocks:
        layer.register_forward_hook(partial(note, info, with_node))
    errors = relative_errors(streamed.named(run_block(streamed, x)), want)
    tensor = worst_of(errors)
    limit = 0.0 if sample.base != "dense" else LIMIT if info.declared else SINGLE_LIMIT
    ran = sum(with_node[:LAYERS])
    if not info.declared and ran < LAYERS:
        raise NotRunError(HANDED_BACK)
    return [
        Figure(f"{name}: {short(tensor)}", errors[tensor], limit, "relative", errors[tensor] <= limit, key=name),
        Figure(f"{name}: layers that ran the kernel", ran, LAYERS, ok=ran == LAYERS),
    ]


class Stack(nn.Module):
    """Blocks one after the other; several outputs are added, and tanh keeps the numbers in range."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = squashed(block(x))
        return x


class Streamed(nn.Module):
    """A stack whose base weights live outside it and pass through few buffers, each load into the next one.

    The blocks' own weights are poisoned: whoever reads them gets NaN, or codes of another weight.
    """

    def __init__(self, layers: Stack) -> None:
        super().__init__()
        self.layers = layers
        self.host = [weights_of(block) for block in layers.blocks]
        self.pool = [{n: torch.empty_like(w) for n, w in self.host[0].items()} for _ in range(BUFFERS)]
        self.loads = 0
        for block in layers.blocks:
            for name, parameter in block.named_parameters():
                if is_base_weight(name):
                    parameter.data.fill_(torch.nan if parameter.is_floating_point() else 0)

    def load(self, index: int) -> dict[str, Tensor]:
        """One layer's weights in the next buffer, as bare views."""
        buffer = self.pool[self.loads % BUFFERS]
        self.loads += 1
        with torch.no_grad():
            return {name: buffer[name].copy_(weight)[:] for name, weight in self.host[index].items()}

    def forward(self, x: Tensor) -> Tensor:
        for index in range(len(self.layers.blocks)):
            x = checkpoint(self.one, index, x, use_reentrant=False)
        return x

    def one(self, index: int, x: Tensor) -> Tensor:
        """One layer with the weights of its buffer."""
        return squashed(torch.func.functional_call(self.layers.blocks[index], self.load(index), (x,)))

    @staticmethod
    def named(found: dict[str, Tensor]) -> dict[str, Tensor]:
        """Results under the names that the resident stack gives them."""
        return {name.replace("d layers.", "d "): tensor for name, tensor in found.items()}


def squashed(result: Any) -> Tensor:
    """A block's outputs as the next block's input."""
    total = sum(outputs_of(result))
    assert isinstance(total, Tensor)
    return torch.tanh(total)


def weights_of(block: nn.Module) -> dict[str, Tensor]:
    """Copies of a block's base weights."""
    return {name: p.data.clone() for name, p in block.named_parameters() if is_base_weight(name)}


def stack(info: KernelInfo, sample: Sample) -> tuple[Stack, Tensor]:
    """Unpatched layers with weights of their own, all widths equal, and the first one's input."""
    built = [build(info, replace(sample, seed=seed, square=True)) for seed in range(LAYERS)]
    return Stack([model for model, _ in built]), built[0].x


def patch_all(info: KernelInfo, layers: Stack) -> None:
    """The kernel on every layer."""
    counts = [info.patch(block) for block in layers.blocks]
    assert all(count >= 1 for count in counts), f"blocks patched, layer by layer: {counts}"


def note(info: KernelInfo, seen: list[bool], module: nn.Module, args: Any, result: Any) -> None:
    """A forward hook: whether every output came from the kernel."""
    seen.append(all(took(info, out) for out in outputs_of(result)))


ORACLE = Oracle(
    id=ID,
    title="Weights streamed through reused buffers",
    sees="a weight, quant state or adapter kept on ctx, on the module or from patch time; a state not repaired",
    blind_to="intermediates kept on ctx (see saved bytes); transfers and streams of a real device",
    check=check,
)
