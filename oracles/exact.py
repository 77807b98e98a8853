"""The hand-written formulas against autograd's, in float64, where nothing hides behind rounding.

Kernel and unpatched PEFT compute the same sums in a different order, so they agree to a few units of 2**-53
times the number of terms. A missing term, factor or transpose is off by about 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
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
from fastlora_verify.oracles.float64 import short, worst_of
from fastlora_verify.oracles.instruments import random_dy, relative_errors, run_block

ID = "exact"
LIMIT = 1e-10
"""Of the largest value. Sums of under 100 terms err by under 1e-13 in float64; ten deep, by under 1e-12."""
SINGLE_LIMIT = 1e-5
"""The same for a kernel that nothing is declared of: it may compute in fp32 whatever it is given. Ten products of
under 100 terms, 6e-8 each; whoever computed in float64 before is held to that by the drift."""
SINGLE_DRIFT = 1e3

DY = Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]


def plain_dy(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A random dY: with one of ones, many a wrong factor is right."""
    return random_dy(outputs, 1)


def strided(tensor: Tensor) -> Tensor:
    """The same values in memory that is not contiguous: every second column of a wider tensor."""
    return torch.stack((tensor, tensor), dim=-1).reshape(*tensor.shape[:-1], -1)[..., ::2]


def strided_dy(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A random dY that is not contiguous."""
    return tuple(strided(dy) for dy in random_dy(outputs, 1))


def expanded_dy(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What `out.sum()` sends back: one element seen everywhere, all strides 0."""
    return tuple(torch.tensor(0.7, dtype=out.dtype, device=out.device).expand(out.shape) for out in outputs)


def zero_dy(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A dY that gives no gradient at all."""
    return tuple(torch.zeros_like(out) for out in outputs)


def zero_row(x: Tensor) -> Tensor:
    """x with its first row zero, as padding leaves it."""
    x = x.detach().clone()
    x.reshape(-1, x.shape[-1])[0] = 0
    return x


def other_scaling(model: nn.Module) -> None:
    """A scaling that is not alpha / r: what rank-stabilised LoRA, or `set_scale`, leaves on a layer."""
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling = {name: value * 0.37 for name, value in module.scaling.items()}


def freeze(part: str, model: nn.Module) -> None:
    """No gradient for every lora_A, or for every lora_B."""
    for name, parameter in model.named_parameters():
        if part in name:
            parameter.requires_grad_(False)


@dataclass(frozen=True)
class Case:
    """One configuration: a sample in float64, what is done to its model and its x, and the dY."""

    name: str
    sample: dict[str, Any] = field(default_factory=dict)
    model: Callable[[nn.Module], object] = lambda model: None
    x: Callable[[Tensor], Tensor] = lambda x: x
    dy: DY = plain_dy
    input_grad: bool = True


CASES = (
    Case("3-D, bias"),
    Case("2-D, no bias, X and dY strided", {"shape": (6,), "bias": False}, x=strided, dy=strided_dy),
    Case("4-D", {"shape": (2, 1, 3)}),
    Case("equal widths", {"square": True}),
    Case("one row", {"shape": (1,)}),
    Case("no rows", {"shape": (0,)}),
    Case("a zero row in X", x=zero_row),
    Case("dY expanded", dy=expanded_dy),
    Case("dY zero", dy=zero_dy),
    Case("scaling set on the layer", model=other_scaling),
    Case("input needs no gradient", input_grad=False),
    Case("every A frozen", model=partial(freeze, "lora_A")),
    Case("every B frozen", model=partial(freeze, "lora_B")),
    Case("eval mode", model=nn.Module.eval),
)


def cases(info: KernelInfo) -> Iterator[Case]:
    """The cases that every kernel has, equal ranks, and each projection unadapted and adapted alone."""
    yield from CASES
    names = info.projections
    yield Case("equal ranks", {"ranks": (4,) * len(names)})
    if len(names) > 1:
        for name in names:
            yield Case(f"{name} unadapted", {"adapted": tuple(n for n in names if n != name)})
            yield Case(f"{name} alone adapted", {"adapted": (name,)})


def check(info: KernelInfo, options: Options) -> OracleResult:
    """Every case, worst tensor each."""
    figures = measured(ID, partial(all_figures, info, options))
    errors = [figure.value for figure in figures if isinstance(figure.value, float)]
    return judged(ID, info.name, figures, f"largest relative error {max(errors, default=0.0):.1e}")


def all_figures(info: KernelInfo, options: Options) -> list[Figure]:
    """One figure per case."""
    need_device(options.device)
    seed = options.seeds[0] if options.seeds else 0
    figures: list[Figure] = []
    for case in cases(info):
        figures += measured(case.name, partial(case_figures, info, case, seed, options.device))
    return figures


def case_figures(info: KernelInfo, case: Case, seed: int, device: str) -> list[Figure]:
    """The tensor of one case that differs most from unpatched PEFT's."""
    make: Make = partial(made, info, case, Sample(seed=seed, dtype="float64", device=device, **case.sample))
    model, x = make()
    want = run_block(model, x, dy=case.dy, input_grad=case.input_grad)
    fast, x = patched(info, make)
    if not ran(info, fast, x):
        raise NotRunError("the call was handed back to PEFT")
    errors = relative_errors(run_block(fast, x, dy=case.dy, input_grad=case.input_grad), want)
    tensor = worst_of(errors)
    error = errors[tensor]
    return [relative_figure(info, f"{case.name}: {short(tensor)}", error, case.name)]


def relative_figure(info: KernelInfo, name: str, error: float, key: str) -> Figure:
    """A relative error in float64 against its limit."""
    if info.declared:
        return Figure(name, error, LIMIT, "relative", error <= LIMIT, key=key)
    return Figure(name, error, SINGLE_LIMIT, "relative", error <= SINGLE_LIMIT, key=key, drift=SINGLE_DRIFT)


def made(info: KernelInfo, case: Case, sample: Sample) -> tuple[nn.Module, Tensor]:
    """The case's model and its x."""
    model, x = build(info, sample)
    case.model(model)
    return model, case.x(x.detach()).requires_grad_(case.input_grad)


ORACLE = Oracle(
    id=ID,
    title="Gradients against autograd's in float64",
    sees="a term, factor, transpose or row that is wrong, in output, dX, dA or dB, and which subset it needs",
    blind_to="rounding in 16 bits, quantised weights, a kernel that does not run, memory, streaming",
    check=check,
)
