"""A LoRA projection in one Function: dense weights, one adapter, no dropout, no autocast; all else is PEFT's."""

import functools

import torch
from torch.autograd.function import once_differentiable


@functools.cache
def make_function():
    class FusedProjection(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias, a, b, scale):
            hidden = x.to(a.dtype) @ a.t()
            ctx.scale = scale
            ctx.save_for_backward(x, weight, a, b, hidden)
            out = torch.nn.functional.linear(x, weight, bias)
            return (out + scale * (hidden @ b.t())).to(x.dtype)

        @staticmethod
        @once_differentiable
        def backward(ctx, dy):
            x, weight, a, b, hidden = ctx.saved_tensors
            dy_wide = dy.to(a.dtype)
            dh = ctx.scale * (dy_wide @ b)
            dx = None
            if ctx.needs_input_grad[0]:
                dx = (dy @ weight + (dh @ a).to(dy.dtype)).to(x.dtype)
            da = dh.t() @ x.to(a.dtype)
            db = ctx.scale * (dy_wide.t() @ hidden)
            return dx, None, None, da, db, None

    return FusedProjection


def left_to_peft(layer, x):
    """Why PEFT must run, or None."""
    if layer.disable_adapters or layer.merged or list(layer.active_adapters) != ["default"]:
        return "adapters"
    weight = layer.get_base_layer().weight
    if not weight.is_floating_point() or weight.dtype != x.dtype:
        return "weight"
    if layer.training and not isinstance(layer.lora_dropout["default"], torch.nn.Identity):
        return "dropout"
    if torch.is_autocast_enabled("cpu"):
        return "autocast"
    return None


def fused_forward(layer, original):
    """The forward that takes the place of a LoRA layer's."""

    def forward(x, *args, **kwargs):
        if args or kwargs or left_to_peft(layer, x) is not None:
            return original(x, *args, **kwargs)
        base = layer.get_base_layer()
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        flat = x.reshape(-1, x.shape[-1])
        out = make_function().apply(flat, base.weight, base.bias, a, b, layer.scaling["default"])
        return out.reshape(*x.shape[:-1], out.shape[-1])

    return forward


def patch(model):
    """Installs the fused forward on every LoRA layer; counts nothing."""
    for module in model.modules():
        if hasattr(module, "lora_A") and "forward" not in vars(module):
            module.forward = fused_forward(module, type(module).forward.__get__(module))


def unpatch(model):
    """Takes it away again."""
    for module in model.modules():
        if hasattr(module, "lora_A"):
            vars(module).pop("forward", None)
