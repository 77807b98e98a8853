"""What a kernel may only read: x, dY, parameters, quant states, and the model's make-up.

Compared are bytes and version counters, so that a write of the same value is seen too. Widths are equal
in one row, where dX or an intermediate would fit into dY's or X's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fastlora_verify.kernels.four_bit import Linear4bit
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.arms import Make, need_device, patched
from fastlora_verify.oracles.base import Figure, Options, Oracle, OracleResult, judged, measured
from fastlora_verify.oracles.instruments import leaf_like, outputs_of, random_dy, storage_identity

ID = "unchanged"
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fp32, bias", {"dtype": "fp32"}),
    ("fp32, equal widths", {"dtype": "fp32", "square": True, "bias": False, "shape": (6,)}),
    ("mixed", {"dtype": "mixed", "bias": False}),
    ("bf16 nf4-nested", {"dtype": "bf16", "base": "nf4-nested", "bias": False}),
)


@dataclass(frozen=True)
class Snapshot:
    """A tensor and what it was."""

    tensor: Tensor
    value: Tensor
    version: int

    def changed(self) -> bool:
        """Whether it was written to since."""
        return self.tensor._version != self.version or not torch.equal(self.tensor, self.value)


def check(info: KernelInfo, options: Options) -> OracleResult:
    """One step per row."""
    figures: list[Figure] = []
    for name, fields in ROWS:
        sample = Sample(device=options.device, **fields)
        figures += measured(name, partial(row_figures, info, name, sample))
    return judged(ID, info.name, figures, "nothing written to but gradients of adapters")


def row_figures(info: KernelInfo, name: str, sample: Sample) -> list[Figure]:
    """What one step of one row wrote to."""
    need_device(sample.device)
    make: Make = partial(build, info, sample)
    plain, _ = make()
    model, x = patched(info, make)
    leaf = leaf_like(x, True)
    before = {name: snapshot(tensor) for name, tensor in read_only(model, leaf)}
    outputs = outputs_of(model(leaf))
    dy = random_dy(outputs, 1)
    before |= {f"dY.{i}": snapshot(tensor) for i, tensor in enumerate(dy)}
    torch.autograd.backward(outputs, dy)
    written = [name for name, snap in before.items() if snap.changed()]
    aliases = [f"{name} shares memory with dY" for name, t in results(model, leaf, outputs) if among(t, dy)]
    faults = written + aliases + differences(plain, model)
    told = ", ".join(faults) or "nothing"
    return [Figure(f"{name}: written to or changed", told, "nothing", ok=not faults, drift=0)]


def read_only(model: nn.Module, x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """x, every parameter, and the tensors of quant states."""
    yield "x", x
    yield from model.named_parameters()
    for name, module in model.named_modules():
        if isinstance(module, Linear4bit):
            state = module.weight.quant_state
            for holder, part in ((state, "quant_state"), (state.state2, "quant_state.state2")):
                for field, value in vars(holder).items() if holder is not None else ():
                    if isinstance(value, Tensor):
                        yield f"{name}.{part}.{field}", value


def snapshot(tensor: Tensor) -> Snapshot:
    """The tensor as it is now."""
    return Snapshot(tensor, tensor.detach().clone(), tensor._version)


def results(model: nn.Module, x: Tensor, outputs: tuple[Tensor, ...]) -> Iterator[tuple[str, Tensor]]:
    """What a step gives back."""
    yield from ((f"out.{i}", out) for i, out in enumerate(outputs))
    gradients = [("dX", x.grad)] + [(f"d {name}", p.grad) for name, p in model.named_parameters()]
    yield from ((name, gradient) for name, gradient in gradients if gradient is not None)


def among(tensor: Tensor, others: tuple[Tensor, ...]) -> bool:
    """Whether a tensor shares its storage with one of the others."""
    return storage_identity(tensor) in {storage_identity(other) for other in others}


def differences(plain: nn.Module, model: nn.Module) -> list[str]:
    """What patching and a step changed in the model's make-up: state_dict's keys, dtypes, requires_grad."""
    ours, theirs = make_up(model), make_up(plain)
    return [
        f"{name} is {ours.get(name)}, was {theirs.get(name)}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


def make_up(model: nn.Module) -> dict[str, str]:
    """Every key of the state dict and every parameter, in words."""
    words = {f"state_dict key {key}": str(value.dtype) for key, value in model.state_dict().items()}
    return words | {
        name: f"{p.dtype}, {'trainable' if p.requires_grad else 'frozen'}" for name, p in model.named_parameters()
    }


ORACLE = Oracle(
    id=ID,
    title="Nothing written to but the adapters' gradients",
    sees="X, dY, a parameter or a quant state written to in place; a gradient that lives in dY's memory",
    blind_to="tensors that the kernel saved itself and writes to before a second backward (see calls)",
    check=check,
)
