"""The kernel computes what unpatched PEFT computes: every output, dX, every dA and dB, from a random dY.

In fp32 and float64 both arms round far below the bound. What 16 bits round is judged in test_numerics.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations
from operator import attrgetter
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from torch import Tensor, nn

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.instruments import (
    assert_lora_matters,
    assert_parity,
    outputs_of,
    random_dy,
    relative_error,
)

Arms = Callable[..., tuple[dict[str, Tensor], dict[str, Tensor]]]

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))

# Errors relative to the largest value. fp32 rounds at 6e-8 and float64 at 1e-16, over some 30 products.
# fp32 adapters on a base that computes in bf16: both arms run the same GEMMs, so the bf16 rounding is common.
RTOL = {"fp32": 3e-6, "float64": 1e-13}

SUBSETS = [
    pytest.param(kernel, subset, id=f"{kernel.name}-{'+'.join(subset)}")
    for kernel in KERNELS
    for subset in chain.from_iterable(
        combinations(kernel.projections, n) for n in range(1, len(kernel.projections) + 1)
    )
]
LEFT_OUT = [param for param in SUBSETS if len(param.values[1]) >= len(param.values[0].projections) - 1]


@each_kernel
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize(
    "dtype, shape",
    [("fp32", (6,)), ("fp32", (2, 3)), ("float64", (2, 3)), ("float64", (2, 1, 3))],
    ids=["fp32-2-D", "fp32-3-D", "float64-3-D", "float64-4-D"],
)
def test_outputs_and_gradients_equal_pefts(
    kernel: KernelInfo, dtype: str, bias: bool, shape: tuple[int, ...], device: str, arms: Arms
) -> None:
    model, x = build(kernel, Sample(dtype=dtype, bias=bias, shape=shape, device=device))
    assert_lora_matters(model, x)
    assert_parity(*arms(kernel, model, x), rtol=RTOL[dtype], atol=0)


@pytest.mark.parametrize("kernel, subset", SUBSETS)
def test_every_subset_of_adapted_projections_equals_pefts(
    kernel: KernelInfo, subset: tuple[str, ...], arms: Arms
) -> None:
    model, x = build(kernel, Sample(adapted=subset))
    assert_lora_matters(model, x)
    assert_parity(*arms(kernel, model, x), rtol=RTOL["fp32"], atol=0)


@each_kernel
@pytest.mark.parametrize("square", [True, False], ids=["square", "not-square"])
def test_equal_ranks_equal_pefts(kernel: KernelInfo, square: bool, arms: Arms) -> None:
    """Equal ranks (and widths) are where siblings' gradients, if exchanged, still fit."""
    model, x = build(kernel, Sample(ranks=(3,) * len(kernel.projections), square=square))
    assert_parity(*arms(kernel, model, x), rtol=RTOL["fp32"], atol=0)


@each_kernel
@pytest.mark.parametrize("base", ["nf4", "fp4", "nf4-nested"])
@pytest.mark.parametrize("square", [True, False], ids=["square", "not-square"])
def test_4_bit_bases_equal_pefts(kernel: KernelInfo, base: str, square: bool, device: str, arms: Arms) -> None:
    """Square siblings differ by a factor of 4 in scale: another one's quant state fits, and is far off."""
    model, x = build(kernel, Sample(base=base, bias=not square, square=square, device=device))
    assert_lora_matters(model, x)
    assert_parity(*arms(kernel, model, x), rtol=1e-5, atol=0)


@each_kernel
@pytest.mark.parametrize("compute", [torch.bfloat16, torch.float16])
def test_an_fp32_input_is_computed_in_the_compute_dtype_of_its_4_bit_base(
    kernel: KernelInfo, compute: torch.dtype, device: str, arms: Arms, step: Callable[..., dict[str, Tensor]]
) -> None:
    """Both arms round to the compute dtype at the same places; computed in fp32, PEFT's own output is elsewhere."""
    model, x = build(kernel, Sample(base="nf4", device=device))
    in_fp32 = step(model, x)
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.compute_dtype = compute
    got, want = arms(kernel, model, x)
    assert_parity(got, want, rtol=1e-5, atol=0)
    for name in (name for name in want if name.startswith(("out", "dX"))):
        assert relative_error(in_fp32[name], want[name]) > 5e-5, name


@each_kernel
def test_an_input_that_is_not_contiguous_gives_pefts_gradients(kernel: KernelInfo, arms: Arms) -> None:
    model, x = build(kernel, Sample(shape=(2, 3)))
    x = x.detach().transpose(0, 1)
    assert not x.is_contiguous()
    assert_parity(*arms(kernel, model, x), rtol=RTOL["fp32"], atol=0)


def transposed_dy(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A dY with the last two dimensions' strides exchanged."""
    return tuple(dy.transpose(-1, -2).contiguous().transpose(-1, -2) for dy in random_dy(outputs, seed=3))


def expanded_dy(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A dY that is one row, seen again and again by stride 0."""
    return tuple(dy[:1, :1].expand(dy.shape) for dy in random_dy(outputs, seed=3))


@each_kernel
@pytest.mark.parametrize("dy", [transposed_dy, expanded_dy])
def test_a_gradient_of_any_layout_gives_pefts_gradients(kernel: KernelInfo, dy: Any, arms: Arms) -> None:
    model, x = build(kernel, Sample(shape=(2, 3)))
    assert_parity(*arms(kernel, model, x, dy=dy), rtol=RTOL["fp32"], atol=0)


@each_kernel
@pytest.mark.parametrize("shape", [(), (1, 1), (0,)], ids=str)
def test_one_row_and_no_row_equal_pefts(kernel: KernelInfo, shape: tuple[int, ...], arms: Arms) -> None:
    model, x = build(kernel, Sample(shape=shape))
    assert_parity(*arms(kernel, model, x), rtol=RTOL["fp32"], atol=0)


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4"])
def test_an_input_that_needs_no_gradient_leaves_pefts_adapter_gradients(
    kernel: KernelInfo, base: str, arms: Arms
) -> None:
    model, x = build(kernel, Sample(base=base))
    got, want = arms(kernel, model, x, input_grad=False)
    assert "dX" not in want
    assert_parity(got, want, rtol=RTOL["fp32"], atol=0)


@each_kernel
@pytest.mark.parametrize("input_grad", [True, False], ids=["with-dX", "without-dX"])
def test_a_frozen_adapter_gets_no_gradient_and_the_others_pefts(
    kernel: KernelInfo, input_grad: bool, arms: Arms
) -> None:
    """Each A and each B in turn, then every A, every B, and (where dX is left to compute) all of them."""
    each = [f"{projection}.lora_{part}" for projection in kernel.projections for part in "AB"]
    for frozen in (*each, "lora_A", "lora_B", *(["lora_"] if input_grad else [])):
        model, x = build(kernel, Sample())
        for name, parameter in model.named_parameters():
            if frozen in name:
                parameter.requires_grad_(False)
        got, want = arms(kernel, model, x, input_grad=input_grad)
        assert not any(frozen in name for name in want)
        assert_parity(got, want, rtol=RTOL["fp32"], atol=0)


@each_kernel
def test_without_a_gradient_to_give_the_output_is_pefts_and_carries_no_node(kernel: KernelInfo) -> None:
    model, x = build(kernel, Sample())
    with torch.no_grad():
        want = outputs_of(model(x))
        kernel.patch(model)
        got = outputs_of(model(x))
    assert not any(out.requires_grad for out in got)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


@each_kernel
def test_two_backwards_of_one_graph_add_up(kernel: KernelInfo) -> None:
    """A backward that writes into what it saved is right once."""
    model, x = build(kernel, Sample())
    kernel.patch(model)
    outputs = outputs_of(model(x))
    wanted = [x, *(p for p in model.parameters() if p.requires_grad)]
    first, second = (
        torch.autograd.grad(outputs, wanted, random_dy(outputs, seed=5), retain_graph=True) for _ in range(2)
    )
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


def everything_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of parameters and of every tensor of the quant states."""
    tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for name, module in model.named_modules():
        state = getattr(getattr(module, "weight", None), "quant_state", None)
        if state is not None:
            tensors |= {f"{name}.{key}": value.clone() for key, value in state.as_dict(packed=True).items()}
    return tensors


@each_kernel
@pytest.mark.parametrize("base", ["dense", "nf4-nested"])
def test_a_step_changes_neither_input_nor_dy_nor_weights(kernel: KernelInfo, base: str) -> None:
    """PEFT's residual branch still reads X and dY when the kernel is done with them."""
    model, x = build(kernel, Sample(base=base, square=True))
    kernel.patch(model)
    before, x_before = everything_of(model), x.detach().clone()
    outputs = outputs_of(model(x))
    outputs_before = [out.detach().clone() for out in outputs]
    dy = random_dy(outputs, seed=5)
    dy_before = [d.clone() for d in dy]
    torch.autograd.backward(outputs, dy)
    after = everything_of(model)
    assert torch.equal(x, x_before)
    assert all(map(torch.equal, dy, dy_before))
    assert all(map(torch.equal, outputs, outputs_before))
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("kernel, adapted", LEFT_OUT)
def test_gradcheck_in_float64_with_each_projection_unadapted_in_turn(
    kernel: KernelInfo, adapted: tuple[str, ...]
) -> None:
    model, x = build(kernel, Sample(dtype="float64", adapted=adapted, shape=(2,)))
    kernel.patch(model)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]

    def block(x: Tensor, *adapters: Tensor) -> Any:
        return torch.func.functional_call(model, dict(zip(names, adapters, strict=True)), (x,))

    adapters = [model.get_parameter(name).detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(block, (x, *adapters), fast_mode=True)


@each_kernel
@pytest.mark.parametrize("base, dtype", [("dense", "fp32"), ("dense", "mixed"), ("nf4", "fp32"), ("nf4", "mixed")])
def test_under_autocast_outputs_and_gradients_are_pefts(
    kernel: KernelInfo, base: str, dtype: str, device: str, arms: Arms
) -> None:
    """Both arms run the same GEMMs in the same 16-bit dtype; sums may round in another order."""
    model, x = build(kernel, Sample(base=base, dtype=dtype, device=device))
    with torch.autocast(device, dtype=torch.bfloat16):
        got, want = arms(kernel, model, x)
    assert_parity(got, want, rtol=2e-2, atol=0)


@each_kernel
@pytest.mark.parametrize("inside", [True, False], ids=["forward-inside", "forward-outside"])
def test_gradients_are_the_same_whichever_region_the_backward_is_called_in(kernel: KernelInfo, inside: bool) -> None:
    """The forward settles the dtypes: autocast around the call of `backward()` changes nothing."""
    model, x = build(kernel, Sample(bias=False, ranks=(3,) * len(kernel.projections)))
    kernel.patch(model)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
        outputs = outputs_of(model(x))
    wanted = [x, *(parameter for parameter in model.parameters() if parameter.requires_grad)]
    grads = []
    for enabled in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            dy = random_dy(outputs, seed=5)
            grads.append(torch.autograd.grad(outputs, wanted, dy, retain_graph=True))
    for in_region, out_of_region in zip(*grads, strict=True):
        torch.testing.assert_close(in_region, out_of_region, rtol=0, atol=0)


@each_kernel
def test_a_kernel_leaves_the_region_it_ran_in_as_it_was(
    kernel: KernelInfo, step: Callable[..., dict[str, Tensor]]
) -> None:
    """A cast cached without a graph would be read by PEFT's layers later in the region."""
    model, x = build(kernel, Sample())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = step(model, x)
        kernel.patch(model)
        model(x.detach())
        kernel.unpatch(model)
        got = step(model, x)
    assert_parity(got, want, rtol=0, atol=0)
