"""A linear layer with adapters, its attributes named as PEFT names them."""

from __future__ import annotations

import torch
from torch import nn


class AdapterLinear(nn.Module):
    """`x Wᵀ + b + s (x Aᵀ) Bᵀ`; W [n, k] and b [n] are frozen, A is [r, k], B is [n, r]."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, name: str = "standard") -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({name: nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({name: nn.Linear(rank, base.out_features, bias=False)})
        self.scaling = {name: alpha / rank}
        self.active_adapters = [name]
        self.disable_adapters = False
        self.merged = False

    def get_base_layer(self) -> nn.Linear:
        return self.base_layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.base_layer(x)
        for name in [] if self.disable_adapters else self.active_adapters:
            out = out + self.scaling[name] * self.lora_B[name](self.lora_A[name](x))
        return out
