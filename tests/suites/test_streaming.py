"""Layers whose base weights live elsewhere and pass through two buffers, and checkpointed layers.

A streamed layer gets its weights for one call, by `functional_call` into views of a buffer that the next layers
reuse. Under checkpointing the backward runs the layer again, in another buffer. A kernel that holds on to the weight
of the first run, or to its quant state, gets another layer's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter

import pytest
import torch
from bitsandbytes.functional import QuantState
from bitsandbytes.nn import Linear4bit
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.instruments import assert_parity, outputs_of

Nodes = Callable[[object], list[str]]
LAYERS, BUFFERS = 4, 2

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
each_checkpoint = pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])


@dataclass
class Stream:
    """Layers in order, what each keeps in the store (by name), and the buffers that it is copied into."""

    layers: list[nn.Module]
    store: list[dict[str, Tensor]]
    buffers: list[dict[str, Tensor]]
    calls: int = 0
    seen: list[str] = field(default_factory=list)

    def load(self, layer: int) -> dict[str, Tensor]:
        """Fills the next buffer; returns the layer's parameters as views of it, and puts its states there too."""
        buffer = self.buffers[self.calls % BUFFERS]
        self.calls += 1
        with torch.no_grad():
            for name, kept in self.store[layer].items():
                buffer[name].copy_(kept)
        for name, module in self.layers[layer].named_modules():
            if isinstance(module, Linear4bit):
                module.quant_state.absmax = buffer[f"{name}.absmax"]
        return {name: buffer[name].view(buffer[name].shape) for name in buffer if "absmax" not in name}


def base_weights(model: nn.Module) -> dict[str, Tensor]:
    """Base weights of a layer by parameter name, and the absmax of its quant states."""
    found: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and "lora_" not in name:
            found[f"{name}.weight"] = module.weight.detach().clone()
            if isinstance(module, Linear4bit):
                found[f"{name}.absmax"] = module.quant_state.absmax.clone()
    return found


def hollow(model: nn.Module) -> None:
    """Takes the weights out of a layer. A 4-bit layer keeps the rest of its state, as the module's own."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and "lora_" not in name:
            if isinstance(module, Linear4bit):
                kept = module.weight.quant_state
                module.weight = nn.Parameter(torch.zeros_like(module.weight.data), requires_grad=False)
                module.quant_state = QuantState(
                    absmax=torch.full_like(kept.absmax, torch.nan), shape=kept.shape, code=kept.code,
                    blocksize=kept.blocksize, quant_type=kept.quant_type, dtype=kept.dtype,
                )  # fmt: skip
            else:
                module.weight.data.fill_(torch.nan)


def stack(kernel: KernelInfo, base: str) -> tuple[list[nn.Module], Tensor]:
    """Layers that differ in everything, and an input."""
    ranks = (3,) * len(kernel.projections)
    sample = Sample(base=base, bias=False, shape=(2, 3), ranks=ranks)
    built = [build(kernel, replace(sample, seed=seed)) for seed in range(LAYERS)]
    return [model for model, _ in built], built[0].x


def streamed(layers: list[nn.Module]) -> Stream:
    """The same layers, hollow; their weights in the store."""
    store = [base_weights(layer) for layer in layers]
    for layer in layers:
        hollow(layer)
    buffers = [{name: torch.empty_like(kept) for name, kept in store[0].items()} for _ in range(BUFFERS)]
    return Stream(layers, store, buffers)


def glued(outputs: tuple[Tensor, ...], x: Tensor) -> Tensor:
    """A block's outputs brought back to the width of its input, which is added. Damped, so that errors don't grow."""
    wide = torch.cat(outputs, dim=-1)
    mix = torch.linspace(-1, 1, wide.shape[-1] * x.shape[-1]).view(wide.shape[-1], x.shape[-1])
    return x + 0.01 * wide @ mix


def results(layers: list[nn.Module], x: Tensor, call: Callable[[int, Tensor], Tensor]) -> dict[str, Tensor]:
    """Output of the whole stack, dX and every adapter's gradient."""
    x = x.detach().clone().requires_grad_()
    out = x
    for index in range(LAYERS):
        out = call(index, out)
    out.square().sum().backward()
    grads = {
        f"{index}.{name}": parameter.grad.clone()
        for index, layer in enumerate(layers)
        for name, parameter in layer.named_parameters()
        if parameter.grad is not None
    }
    for layer in layers:
        layer.zero_grad()
    assert x.grad is not None
    return {"out": out.detach(), "dX": x.grad, **grads}


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4"])
@each_checkpoint
def test_the_kernel_runs_in_streamed_layers_and_matches_resident_peft(
    kernel: KernelInfo, base: str, reentrant: bool, nodes: Nodes
) -> None:
    layers, x = stack(kernel, base)
    want = results(layers, x, lambda i, x: glued(outputs_of(layers[i](x)), x))
    stream = streamed(layers)
    for layer in layers:
        assert kernel.patch(layer) == 1

    def run(index: int, x: Tensor) -> Tensor:
        outputs = outputs_of(functional_call(layers[index], stream.load(index), (x,)))
        stream.seen += nodes(outputs) if torch.is_grad_enabled() else []
        return glued(outputs, x)

    def call(index: int, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(run, index, x, use_reentrant=reentrant)
        return out

    got = results(layers, x, call)
    each_layer_once = LAYERS * (3 if kernel.kind == "qkv" else 1)
    assert len(stream.seen) >= each_layer_once and set(stream.seen) == {kernel.node}
    assert stream.calls == 2 * LAYERS
    assert_parity(got, want, rtol=1e-5, atol=0)


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4"])
def test_one_streamed_call_runs_the_kernel_on_the_weight_of_that_call(
    kernel: KernelInfo, base: str, nodes: Nodes
) -> None:
    """A streamed view is a plain tensor: of a 4-bit weight it carries no state, which is the module's then."""
    model, x = build(kernel, Sample(base=base))
    want = outputs_of(model(x))
    stream = streamed([model])
    kernel.patch(model)
    out = functional_call(model, stream.load(0), (x,))
    assert set(nodes(out)) == {kernel.node}
    for ours, theirs in zip(outputs_of(out), want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4-nested"])
@each_checkpoint
def test_checkpointed_gradients_are_pefts(
    kernel: KernelInfo, base: str, reentrant: bool, step: Callable[..., dict[str, Tensor]]
) -> None:
    model, x = build(kernel, Sample(base=base))
    want = step(model, x)
    kernel.patch(model)
    seen: list[str] = []

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = model

        def forward(self, x: Tensor) -> object:
            return checkpoint(self.run, x, use_reentrant=reentrant)

        def run(self, x: Tensor) -> object:
            out = self.block(x)
            if torch.is_grad_enabled():
                seen.extend(type(o.grad_fn).__name__ for o in outputs_of(out))
            return out

    got = {name.replace("block.", ""): value for name, value in step(Checkpointed(), x).items()}
    assert set(seen) == {kernel.node}
    assert_parity(got, want, rtol=1e-5, atol=0)
