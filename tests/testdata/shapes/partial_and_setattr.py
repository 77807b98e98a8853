"""SwiGLU block: out = (SiLU(G) ⊙ U) W_downᵀ + …, G, U and the output each with an adapter; installed by
`functools.partial` and `setattr(module, "forward", …)`.
"""

from functools import partial

import torch
import torch.nn.functional as F


def _lora(x, w, a, b, s):
    return F.linear(x, w) + s * F.linear(F.linear(x, a), b)


def _unlora(d, w, a, b, s):
    return d @ w + s * ((d @ b) @ a)


class GatedBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wg, ag, bg, sg, wu, au, bu, su, wd, ad, bd, sd):
        g = _lora(x, wg, ag, bg, sg)
        u = _lora(x, wu, au, bu, su)
        ctx.save_for_backward(x, wg, ag, bg, wu, au, bu, wd, ad, bd, g, u)
        ctx.scales = sg, su, sd
        return _lora(F.silu(g) * u, wd, ad, bd, sd)

    @staticmethod
    def backward(ctx, dy):
        x, wg, ag, bg, wu, au, bu, wd, ad, bd, g, u = ctx.saved_tensors
        sg, su, sd = ctx.scales
        p = torch.sigmoid(g)
        h = g * p * u
        dh = _unlora(dy, wd, ad, bd, sd)
        du = dh * g * p
        dg = dh * u * p * (1 + g * (1 - p))
        flat = lambda t: t.reshape(-1, t.shape[-1])
        dad = sd * (flat(dy) @ bd).T @ flat(h)
        dbd = sd * flat(dy).T @ (flat(h) @ ad.T)
        dag = sg * (flat(dg) @ bg).T @ flat(x)
        dbg = sg * flat(dg).T @ (flat(x) @ ag.T)
        dau = su * (flat(du) @ bu).T @ flat(x)
        dbu = su * flat(du).T @ (flat(x) @ au.T)
        dx = _unlora(dg, wg, ag, bg, sg) + _unlora(du, wu, au, bu, su)
        return dx, None, dag, dbg, None, None, dau, dbu, None, None, dad, dbd, None


def _parts(layer):
    name = layer.active_adapters[0]
    return layer.get_base_layer().weight, layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]


def _usable(layer):
    return (
        hasattr(layer, "lora_A")
        and not layer.merged
        and len(layer.active_adapters) == 1
        and layer.get_base_layer().bias is None
    )


def gated_forward(block, before, x):
    if not all(_usable(layer) for layer in (block.gate_proj, block.up_proj, block.down_proj)):
        return before(x)
    return GatedBlock.apply(x, *_parts(block.gate_proj), *_parts(block.up_proj), *_parts(block.down_proj))


def replace_blocks(model):
    done = []
    for module in model.modules():
        if hasattr(module, "gate_proj") and hasattr(module, "up_proj") and hasattr(module, "down_proj"):
            setattr(module, "forward", partial(gated_forward, module, module.forward))
            done.append(module)
    return done


def restore_blocks(modules):
    for module in modules:
        delattr(module, "forward")
