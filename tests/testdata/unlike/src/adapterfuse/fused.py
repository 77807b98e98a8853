"""Die Schicht als eine Funktion.

With s the scaling, x [m, k], W [n, k], A [r, k], B [n, r] and G = ∂L/∂y [m, n]:

    y     = x Wᵀ + b + s (x Aᵀ) Bᵀ
    ∂L/∂x = G W + s (G B) A        ∂L/∂A = s (G B)ᵀ x        ∂L/∂B = s Gᵀ (x Aᵀ)

Maße stehen in eckigen Klammern – „m“ ist das Produkt aller äußeren.
"""

from __future__ import annotations

import functools

import torch
from torch.amp import custom_bwd, custom_fwd
from torch.nn import functional

from adapterfuse.layers import AdapterLinear

_vorher = None  # die ursprüngliche Methode


def _zeilen(tensor: torch.Tensor) -> torch.Tensor:
    """[…, k] wird [m, k]."""
    return tensor.reshape(-1, tensor.shape[-1])


class LowRankProduct(torch.autograd.Function):
    """y und seine drei Ableitungen – ∂L/∂x, ∂L/∂A, ∂L/∂B."""

    @staticmethod
    @custom_fwd(device_type="cuda")
    def forward(ctx, x, weight, bias, down, up, scale):
        flat = _zeilen(x)
        inner = functional.linear(flat, down)
        plain = functional.linear(flat, weight, bias)
        ctx.save_for_backward(flat, weight, down, up)
        ctx.scale, ctx.shape = scale, x.shape
        return torch.addmm(plain, inner, up.mT, alpha=scale).view(*x.shape[:-1], -1)

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        flat, weight, down, up = ctx.saved_tensors
        g = _zeilen(gradient)
        through = g.mm(up) * ctx.scale  # s (G B), [m, r]
        d_x = None
        if ctx.needs_input_grad[0]:
            d_x = torch.addmm(g.mm(weight), through, down).view(ctx.shape)
        d_down = through.mT.mm(flat)
        d_up = g.mT.mm(functional.linear(flat, down)) * ctx.scale
        return d_x, None, None, d_down, d_up, None


def _warum_nicht(layer: AdapterLinear) -> str | None:
    """Warum die Schicht selbst rechnen muß, sonst nichts."""
    if layer.disable_adapters or layer.merged:
        return "ohne Adapter – oder schon verschmolzen"
    if len(layer.active_adapters) != 1:
        return "mehrere Adapter zugleich"
    return None


def schnell(self: AdapterLinear, x: torch.Tensor) -> torch.Tensor:
    """Was `AdapterLinear.forward` wird."""
    if _warum_nicht(self) is not None:
        return _vorher(self, x)
    base = self.get_base_layer()
    (name,) = self.active_adapters
    return LowRankProduct.apply(
        x, base.weight, base.bias, self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name]
    )


def einschalten() -> bool:
    """Jede Schicht dieser Klasse rechnet von nun an schnell; falsch, wenn sie es schon tut."""
    global _vorher
    if _vorher is not None:
        return False
    _vorher = AdapterLinear.forward
    AdapterLinear.forward = functools.wraps(_vorher)(schnell)
    return True


def ausschalten() -> bool:
    """Alles wieder wie zuvor."""
    global _vorher
    if _vorher is None:
        return False
    AdapterLinear.forward = _vorher
    _vorher = None
    return True
