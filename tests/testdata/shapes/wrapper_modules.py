"""q, k and v of one input: wrapper modules take the places of the projections, the Function hides in a helper.

[Q K V] = X [W_q W_k W_v]ᵀ + s (X Aᵀ) Bᵀ, each with its own adapter.
"""

import torch
from torch import nn
from torch.autograd import Function


class ThreeOfOne(Function):
    @staticmethod
    def forward(ctx, x, weights, scales, *adapters):
        outs, hidden = [], []
        for i in range(3):
            a, b = adapters[2 * i], adapters[2 * i + 1]
            h = torch.matmul(x, a.transpose(0, 1))
            hidden.append(h)
            outs.append(torch.matmul(x, weights[i].transpose(0, 1)) + torch.matmul(h, b.transpose(0, 1)) * scales[i])
        ctx.save_for_backward(x, *weights, *adapters, *hidden)
        ctx.scales = scales
        return tuple(outs)

    @staticmethod
    def backward(ctx, dq, dk, dv):
        x, *rest = ctx.saved_tensors
        weights, adapters, hidden = rest[:3], rest[3:9], rest[9:]
        flat_x = x.reshape(-1, x.shape[-1])
        dx, grads = torch.zeros_like(x), []
        for i, d in enumerate((dq, dk, dv)):
            a, b, s = adapters[2 * i], adapters[2 * i + 1], ctx.scales[i]
            db_in = torch.matmul(d, b) * s
            dx = dx + torch.matmul(d, weights[i]) + torch.matmul(db_in, a)
            grads.append(db_in.reshape(-1, a.shape[0]).transpose(0, 1) @ flat_x)
            grads.append((d.reshape(-1, b.shape[0]).transpose(0, 1) @ hidden[i].reshape(-1, a.shape[0])) * s)
        return (dx, None, None, *grads)


def weights_of(layer):
    name = layer.active_adapters[0]
    return layer.base_layer.weight, layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]


def three(x, layers):
    weights, scales, adapters = [], [], []
    for layer in layers:
        w, a, b, s = weights_of(layer)
        weights.append(w)
        scales.append(s)
        adapters += [a, b]
    return ThreeOfOne.apply(x, tuple(weights), tuple(scales), *adapters)


def fits(layer):
    if not hasattr(layer, "lora_A"):
        return False
    if layer.merged or layer.disable_adapters:
        return False
    return True


class SharedQuery(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.inner = attention.q_proj
        self.others = [attention.k_proj, attention.v_proj]
        self.found = None

    def forward(self, x):
        layers = [self.inner, *self.others]
        if not all(fits(layer) for layer in layers):
            return self.inner(x)
        q, k, v = three(x, layers)
        self.found = (x, k, v)
        return q


class Later(nn.Module):
    def __init__(self, inner, first, place):
        super().__init__()
        self.inner, self.place = inner, place
        self.first = [first]

    def forward(self, x):
        found = self.first[0].found
        if found is None or found[0] is not x:
            return self.inner(x)
        return found[self.place]


def wrap_attention(model):
    for module in list(model.modules()):
        if not all(hasattr(module, name) for name in ("q_proj", "k_proj", "v_proj")):
            continue
        first = SharedQuery(module)
        k, v = Later(module.k_proj, first, 1), Later(module.v_proj, first, 2)
        module.q_proj, module.k_proj, module.v_proj = first, k, v


def unwrap_attention(model):
    for module in list(model.modules()):
        if isinstance(getattr(module, "q_proj", None), SharedQuery):
            module.q_proj, module.k_proj, module.v_proj = (
                module.q_proj.inner,
                module.k_proj.inner,
                module.v_proj.inner,
            )
