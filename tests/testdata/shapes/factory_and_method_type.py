"""One projection: the Function comes from a factory that keeps nothing, called through an alias of `apply`.

y = x Wᵀ + b + s (x Aᵀ) Bᵀ. Installed on every LoRA layer of a model by `types.MethodType`.
"""

import types

import torch
from peft.tuners.lora.layer import Linear as LoraLinear


def build(keep_input: bool = True):
    class OneProjection(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inp, weight, offset, down, up, factor):
            rows = inp.flatten(0, -2)
            code = rows @ down.T
            total = rows @ weight.T
            if offset is not None:
                total = total + offset
            total = total + factor * (code @ up.T)
            ctx.save_for_backward(rows if keep_input else None, code, weight, down, up)
            ctx.factor = factor
            ctx.outer = inp.shape
            return total.unflatten(0, inp.shape[:-1])

        @staticmethod
        def backward(ctx, grad):
            rows, code, weight, down, up = ctx.saved_tensors
            grad = grad.flatten(0, -2)
            back = ctx.factor * (grad @ up)
            d_inp = (grad @ weight + back @ down).view(ctx.outer)
            return d_inp, None, None, back.T @ rows, ctx.factor * (grad.T @ code), None

    return OneProjection.apply


def refuses(layer):
    if getattr(layer, "merged", False):
        return True
    if layer.disable_adapters:
        return True
    return len(layer.active_adapters) != 1


def new_forward(self, x, *args, **kwargs):
    if args or kwargs or refuses(self):
        return self.slow_forward(x, *args, **kwargs)
    run = build()
    (name,) = self.active_adapters
    layer = self.get_base_layer()
    return run(x, layer.weight, layer.bias, self.lora_A[name].weight, self.lora_B[name].weight, self.scaling[name])


def speed_up(model):
    count = 0
    for _, module in model.named_modules():
        if not isinstance(module, LoraLinear):
            continue
        if hasattr(module, "slow_forward"):
            continue
        module.slow_forward = module.forward
        module.forward = types.MethodType(new_forward, module)
        count += 1
    return count


def slow_down(model):
    for _, module in model.named_modules():
        if hasattr(module, "slow_forward"):
            module.forward = module.slow_forward
            del module.slow_forward
    return model
