"""The SwiGLU block that the 2x rule's published figures were measured on, rebuilt step by step.

Every step draws from one generator, so their order is part of the fixture: seed, the three layers' own
initialisation, `up` scaled and then quantised, PEFT's initialisation of A, B in the order of the model's
parameters, and only then the input. With the input drawn before B the ratios are others.
"""

from __future__ import annotations

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn

from fastlora_verify.kernels.four_bit import Linear4bit
from fastlora_verify.kernels.samples import GatedMLP, MLPModel
from fastlora_verify.oracles.base import Fixture

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def swiglu_block(seed: int, fixture: Fixture, *, nf4: bool, device: str = "cpu") -> tuple[nn.Module, Tensor]:
    """Three bias-less layers and their input x of shape [*fixture.shape, hidden] in bf16.

    NF4 with nested statistics: adapters in bf16, the layout of the published figures. Dense: the base in bf16
    and the adapters in fp32, as `get_peft_model` leaves them. The caller's random state is left alone.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        gate, up, down = layers(fixture, nf4)
        model = MLPModel(GatedMLP(gate, up, down))
        with torch.no_grad():
            up.weight.mul_(fixture.sibling_scale)
        model.to(device)  # this is where bitsandbytes quantises
        inject_adapter_in_model(
            LoraConfig(r=fixture.rank, lora_alpha=fixture.alpha, target_modules=list(PROJECTIONS)), model
        )
        settle_dtypes(model, torch.bfloat16 if nf4 else torch.float32, cast_base=not nf4)
        draw_b(model, fixture.b_std)
        x = torch.randn(*fixture.shape, fixture.widths[0], dtype=torch.bfloat16)
    return model, x.to(device).requires_grad_()


def layers(fixture: Fixture, nf4: bool) -> list[nn.Linear]:
    """gate, up and down in their library's own initialisation, fp32 and not yet quantised."""
    hidden, intermediate = fixture.widths
    made: list[nn.Linear] = []
    for i, o in ((hidden, intermediate), (hidden, intermediate), (intermediate, hidden)):
        if nf4:
            made.append(Linear4bit(i, o, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4"))
        else:
            made.append(nn.Linear(i, o, bias=False))
    return made


def settle_dtypes(model: nn.Module, adapters: torch.dtype, *, cast_base: bool) -> None:
    """Gives adapters their dtype, and a dense base bf16."""
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(adapters)
        elif cast_base:
            parameter.data = parameter.data.to(torch.bfloat16)


def draw_b(model: nn.Module, std: float) -> None:
    """B is zero after PEFT's initialisation, and then a LoRA kernel has nothing to show. Drawn on the CPU."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.empty(parameter.shape, dtype=parameter.dtype).normal_(std=std))
