"""What 16 bits round: the kernel errs at most twice as much as PEFT against float64, and each sum rounds once.

The 2x rule compares largest errors, and needs many seeds to notice that a term was rounded twice. The tests of single
sums don't: there the base cancels the LoRA term, so that a rounding of the term is many times that of the result.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import GatedMLP, MLPModel, Sample, build, to_float64_twin
from fastlora_verify.oracles.instruments import assert_within_twice, error_ratios, run_block

Results = dict[str, Tensor]

SWIGLU = next(kernel for kernel in KERNELS if kernel.kind == "swiglu-mlp")
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
SUMS = [pytest.param(kernel, name, id=f"{kernel.name}-{name}") for kernel in KERNELS for name in kernel.projections]


def three_arms(kernel: KernelInfo, model: nn.Module, x: Tensor, **how: Any) -> tuple[Results, Results, Results]:
    """The kernel's results, unpatched PEFT's, and those of float64 on the same (dequantised) weights."""
    exact = run_block(to_float64_twin(model), x.detach().double(), **how)
    reference = run_block(model, x, **how)
    assert kernel.patch(model) == 1
    return run_block(model, x, **how), reference, exact


def mean_error(got: Tensor, exact: Tensor) -> float:
    """Mean of |got - exact|: steadier than the largest, which is one element's luck."""
    return float((got - exact).abs().mean())


def swiglu(seed: int, hidden: int, intermediate: int, rank: int, *, nf4: bool) -> tuple[nn.Module, Tensor]:
    """Bias-less layers as their library draws them, `up` four times as large, B of std 0.2, x [2, 3 or 5, hidden].

    NF4: everything in bf16. Dense: fp32 adapters on a bf16 base, as `get_peft_model` leaves them. Every draw is from
    one generator, so their order is part of the fixture.
    """
    torch.manual_seed(seed)
    how: dict[str, Any] = {"compute_dtype": torch.bfloat16, "quant_type": "nf4"} if nf4 else {}
    layer = Linear4bit if nf4 else nn.Linear
    widths = ((hidden, intermediate), (hidden, intermediate), (intermediate, hidden))
    model = MLPModel(GatedMLP(*(layer(i, o, bias=False, **how) for i, o in widths)))
    with torch.no_grad():
        model.get_parameter("mlp.up_proj.weight").mul_(4)
    model.to("cpu" if nf4 else torch.bfloat16)  # for an NF4 layer this is where it is quantised
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(SWIGLU.projections)), model)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(torch.bfloat16 if nf4 else torch.float32)
        if "lora_B" in name:
            parameter.data = torch.empty_like(parameter).normal_(std=0.2)
    return model, torch.randn(2, 3 if nf4 else 5, hidden, dtype=torch.bfloat16)


@pytest.mark.parametrize("seed", range(12))
def test_a_bf16_swiglu_with_fp32_adapters_errs_at_most_twice_as_much_as_peft(seed: int) -> None:
    got, reference, exact = three_arms(SWIGLU, *swiglu(seed, 32, 48, 4, nf4=False))
    assert_within_twice(got, reference, exact)
    assert error_ratios(got, reference, exact)["out"] <= 1.05


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_an_nf4_swiglu_errs_at_most_twice_as_much_as_peft(seed: int, device: str) -> None:
    model, x = swiglu(seed, 8, 12, 2, nf4=True)
    got, reference, exact = three_arms(SWIGLU, model.to(device), x.to(device))
    ratios = assert_within_twice(got, reference, exact)
    print(f"seed {seed}, {device}:", ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4"])
@pytest.mark.parametrize("dtype", ["mixed", "bf16", "fp16"])
def test_16_bit_blocks_err_on_average_at_most_twice_as_much_as_peft(
    kernel: KernelInfo, base: str, dtype: str, device: str
) -> None:
    """The scaling is 2, which rounds nothing: it may multiply any factor of a product."""
    ranks = (4,) * len(kernel.projections)
    sample = Sample(base=base, dtype=dtype, shape=(2, 9), ranks=ranks, alpha=8, device=device)
    model, x = build(kernel, sample)
    got, reference, exact = three_arms(kernel, model, x)
    assert got.keys() == reference.keys() == exact.keys()
    for name in exact:
        assert mean_error(got[name], exact[name]) <= 2 * mean_error(reference[name], exact[name]), name


@pytest.mark.parametrize("dtype", ["mixed", "bf16", "fp16"])
def test_silus_slope_is_computed_in_fp32_and_rounded_once(dtype: str, device: str) -> None:
    """Around its zero at -1.278 the slope's factor 1 + G (1 - sigma) cancels: 16-bit arithmetic leaves noise.

    G is the gate's bias alone, the same numbers in every arm.
    """
    model, x = build(SWIGLU, Sample(dtype=dtype, shape=(2, 9), device=device))
    gate = model.get_submodule("mlp.gate_proj")
    with torch.no_grad():
        gate.base_layer.weight.zero_()
        gate.base_layer.bias.copy_(torch.linspace(-1.6, -1.0, gate.out_features))
        gate.lora_B["default"].weight.zero_()
    got, reference, exact = three_arms(SWIGLU, model, x)
    name = "d mlp.gate_proj.lora_B.default.weight"
    assert mean_error(got[name], exact[name]) <= 1.3 * mean_error(reference[name], exact[name])


def test_the_gradient_of_the_gate_is_rounded_once(device: str) -> None:
    """One row, U = 1 and dM a whole number: dB is dG times a known H, and dG is off by bf16's half unit at most."""
    model, x = build(SWIGLU, Sample(dtype="mixed", shape=(1,), device=device))
    gate, up, down = (model.get_submodule(f"mlp.{name}") for name in SWIGLU.projections)
    with torch.no_grad():
        for projection in (gate, up, down):
            projection.lora_B["default"].weight.zero_()
        for constant, value in ((gate, torch.linspace(-4, 2, gate.out_features)), (up, torch.ones(up.out_features))):
            constant.base_layer.weight.zero_()
            constant.base_layer.bias.copy_(value)
        down.base_layer.weight.fill_(1)

    def loss(outputs: tuple[Tensor, ...]) -> Tensor:
        return (outputs[0] * 3).sum()

    got, _, exact = three_arms(SWIGLU, model, x, loss=loss)
    name = "d mlp.gate_proj.lora_B.default.weight"
    assert exact[name].abs().min() > 0
    assert ((got[name] - exact[name]) / exact[name]).abs().max() <= 1.001 * 2**-8


def cancelling(kernel: KernelInfo, projection: str) -> tuple[nn.Module, Tensor]:
    """A projection whose weight is the nearest whole number to -s B A, and an x of small whole numbers.

    So the base term is exact in bf16 and nearly the LoRA term's negative: what is left is a tenth of either. The other
    projections' B is zero, and the other one of gate and up is constantly 1, so that dX comes from one of them alone.
    """
    model, x = build(kernel, Sample(dtype="mixed", bias=False, shape=(4, 16), ranks=(3,) * len(kernel.projections)))
    x = x.detach().mul(1.5).round()
    x[..., 0] = 1
    constant = {"gate_proj": "up_proj", "up_proj": "gate_proj"}.get(projection)
    for name in kernel.projections:
        layer: Any = next(module for path, module in model.named_modules() if path.endswith(name))
        A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        if name == projection:
            layer.base_layer.weight.data = -(layer.scaling["default"] * B @ A).detach().round().bfloat16()
        else:
            B.data.zero_()
        if name == constant:
            layer.base_layer.weight.data = torch.eye(1, layer.in_features).expand(layer.out_features, -1).bfloat16()
    return model, x


@pytest.mark.parametrize("kernel, projection", SUMS)
def test_a_lora_term_is_rounded_with_the_sum_and_not_before(kernel: KernelInfo, projection: str) -> None:
    got, reference, exact = three_arms(kernel, *cancelling(kernel, projection))
    for name in (name for name in exact if name.startswith("out")):
        assert mean_error(got[name], exact[name]) <= 1.05 * mean_error(reference[name], exact[name])


@pytest.mark.parametrize("projection", ["gate_proj", "up_proj"])
def test_the_lora_term_of_dx_is_rounded_with_the_sum_and_not_before(projection: str) -> None:
    """PEFT rounds it before: autograd casts each branch's gradient to x's dtype and adds in that."""

    def loss(outputs: tuple[Tensor, ...]) -> Tensor:
        (out,) = outputs
        dy = torch.randint(-2, 3, out.shape, generator=torch.Generator().manual_seed(3))
        return (out * dy.to(out.dtype)).sum()

    got, reference, exact = three_arms(SWIGLU, *cancelling(SWIGLU, projection), loss=loss)
    assert mean_error(got["dX"], exact["dX"]) <= 0.93 * mean_error(reference["dX"], exact["dX"])
