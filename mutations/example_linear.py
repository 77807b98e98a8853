"""A small kernel of one projection, for examples: saved tensors by index, torch functions, a closure as entry."""

from __future__ import annotations

from fastlora_verify.mutations.example_common import COMMON

LINEAR = (
    COMMON
    + """

class One(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, kernel, shift, down, up, factor, rate, plan, dtype, *tensors):
        #[ forward
        dense = unpacked(kernel, tensors, plan, dtype)
        if shift is not None:
            shift = shift.to(dtype)
        #[ base
        out = torch.nn.functional.linear(inp.to(dtype), dense, shift).to(inp.dtype)
        #] base
        kept, seen = None, inp.to(down.dtype)
        if rate > 0:
            kept = torch.bernoulli(torch.full_like(seen, 1 - rate))
            seen = torch.mul(kept, seen).div(1 - rate)
        code = seen.matmul(down.t())
        #[ sum
        out = joined(out, code, up, factor)
        #] sum
        #] forward
        #[ save
        ctx.save_for_backward(inp, kept, kernel, down, up, code, *tensors)
        #] save
        ctx.numbers = {"factor": factor, "rate": rate, "plan": plan, "dtype": dtype}
        return out

    #[ decorators
    @staticmethod
    @once_differentiable
    #] decorators
    def backward(ctx, grad):
        #[ read
        saved = ctx.saved_tensors
        #] read
        inp, kept, kernel, down, up, code = saved[:6]
        factor, rate, plan, dtype = (ctx.numbers[key] for key in ("factor", "rate", "plan", "dtype"))
        first, third, fourth = (ctx.needs_input_grad[i] for i in (0, 3, 4))
        d_inp = d_down = d_up = None
        flat = grad.reshape(-1, grad.shape[-1])
        grown = flat.to(up.dtype)
        #[ back
        back = grown.mm(up)
        #] back
        if fourth:
            #[ dB
            d_up = factor * torch.mm(grown.t(), code.reshape(-1, code.shape[-1]))
            #] dB
        if third:
            seen = inp.to(down.dtype).reshape(-1, inp.shape[-1])
            if kept is not None:
                #[ dA dropout
                seen = torch.mul(kept.reshape(seen.shape), seen).div(1 - rate)
                #] dA dropout
            #[ dA
            d_down = torch.mm(back.t(), seen).mul_(factor)
            #] dA
        #[ dX if
        if first:
        #] dX if
            term = back.mm(down)
            if kept is not None:
                #[ dX dropout
                term = torch.mul(kept.reshape(term.shape), term).div(1 - rate)
                #] dX dropout
            base = flat.to(dtype).mm(unpacked(kernel, saved[6:], plan, dtype))
            #[ dX
            wide = torch.promote_types(base.dtype, term.dtype)
            d_inp = torch.add(base.to(wide), term.to(wide), alpha=factor).to(inp.dtype).view(inp.shape)
            #] dX
        return d_inp, None, None, d_down, d_up, *[None] * (len(ctx.needs_input_grad) - 5)


TAKEN = "_taken_by_a_group"


def adopt(layer):
    former = layer.forward

    def run(inp, *more, **named):
        #[ entry
        #[ top
        if more or named:
            return former(inp, *more, **named)
        #] top
        got = pieces_of(layer, inp, modelled=True)
        if got is None:
            return former(inp)
        rest = got["factor"], got["rate"], got["plan"], got["dtype"], *got["tensors"]
        #[ call
        out = One.apply(inp, got["kernel"], got["shift"], got["down"], got["up"], *rest)
        #] call
        #[ answer
        return out
        #] answer
        #] entry

    layer._former = former
    layer.forward = run


def switch_on(model):
    count = 0
    #[ patcher
    for layer in model.modules():
        if not plain(layer):
            continue
        if hasattr(layer, "_former"):
            continue
        if getattr(layer, TAKEN, False):
            continue
        adopt(layer)
        count += 1
    #] patcher
    return count


def switch_off(model):
    count = 0
    for layer in model.modules():
        if hasattr(layer, "_former"):
            #[ unpatcher
            del layer.forward
            #] unpatcher
            del layer._former
            count += 1
    return count
"""
)
