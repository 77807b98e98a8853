"""A small QKV kernel for examples: lists and loops, three closures over one store."""

from __future__ import annotations

from fastlora_verify.mutations.example_common import COMMON

QKV = (
    COMMON
    + '''
NAMES = ("q_proj", "k_proj", "v_proj")


class Three(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, lists, *flat):
        size = len(NAMES)
        kernels, shifts, downs, ups = (flat[i * size : (i + 1) * size] for i in range(4))
        factors, plans, dtypes, tensors = lists
        #[ codes
        stacked = torch.cat(downs)
        codes = inp.to(stacked.dtype).matmul(stacked.t()).split([len(down) for down in downs], dim=-1)
        #] codes
        outs = []
        #[ loop
        for i, (kernel, shift, held, plan) in enumerate(zip(kernels, shifts, tensors, plans)):
            dense = unpacked(kernel, held, plan, dtypes[i])
            shift = None if shift is None else shift.to(dense.dtype)
            base = torch.nn.functional.linear(inp.to(dense.dtype), dense, bias=shift).to(inp.dtype)
            #[ sum
            outs.append(joined(base, codes[i], ups[i], factors[i]))
            #] sum
        #] loop
        #[ save
        ctx.save_for_backward(inp, *kernels, *downs, *ups, *codes, *[one for held in tensors for one in held])
        #] save
        ctx.counts = [len(held) for held in tensors]
        ctx.lists = factors, plans, dtypes
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        size = len(NAMES)
        inp, *saved = ctx.saved_tensors
        kernels, downs, ups, codes = (saved[i * size : (i + 1) * size] for i in range(4))
        left = list(saved[4 * size :])
        tensors = [[left.pop(0) for _ in range(count)] for count in ctx.counts]
        factors, plans, dtypes = ctx.lists
        grads = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
        rows = inp.reshape(-1, inp.shape[-1])
        backs, d_ups = [], []
        #[ gradients
        for grad, up, code, factor in zip(grads, ups, codes, factors):
            grown = factor * grad.to(up.dtype)
            d_ups.append(grown.t() @ code.reshape(-1, code.shape[-1]))
            backs.append(grown @ up)
        #] gradients
        #[ dA
        joint = torch.cat(backs, dim=1)
        d_downs = (joint.t() @ rows.to(joint.dtype)).split([len(down) for down in downs])
        #] dA
        d_inp = None
        #[ dX if
        if ctx.needs_input_grad[0]:
        #] dX if
            d_inp = 0
            #[ dX
            for grad, kernel, held, plan, dtype in zip(grads, kernels, tensors, plans, dtypes):
                d_inp = d_inp + grad.to(dtype).mm(unpacked(kernel, held, plan, dtype))
            #] dX
            #[ dX end
            d_inp = torch.mm(joint, torch.cat(downs)) + d_inp
            #] dX end
            d_inp = d_inp.to(inp.dtype).reshape(inp.shape)
        #[ return
        return d_inp, None, *[None] * size, *[None] * size, *d_downs, *d_ups
        #] return


class Store:
    """What Q computed for K and V, for one input."""

    def __init__(self):
        self.held = {}

    def keep(self, key, inp, out):
        self.held[key] = (inp, inp._version, out)

    def handed(self, key, inp):
        #[ handed
        source, version, out = self.held.pop(key, (None, 0, None))
        if source is not inp:
            return None
        if version != inp._version:
            return None
        #] handed
        return out


def install(attention):
    store = Store()
    layers = [getattr(attention, name) for name in NAMES]
    formers = [layer.forward for layer in layers]

    def queries(inp):
        #[ entry
        got = [pieces_of(layer, inp) for layer in layers]
        if any(one is None for one in got):
            return formers[0](inp)
        by_name = {key: [one[key] for one in got] for key in ("kernel", "shift", "down", "up", "factor", "plan")}
        lists = by_name["factor"], by_name["plan"], [one["dtype"] for one in got], [one["tensors"] for one in got]
        #[ call
        outs = Three.apply(inp, lists, *by_name["kernel"], *by_name["shift"], *by_name["down"], *by_name["up"])
        #] call
        store.keep("k", inp, outs[1])
        store.keep("v", inp, outs[2])
        return outs[0]
        #] entry

    def keys(inp):
        #[ second entry
        out = store.handed("k", inp)
        if out is None:
            return formers[1](inp)
        return out
        #] second entry

    def values(inp):
        out = store.handed("v", inp)
        return formers[2](inp) if out is None else out

    for layer, forward in zip(layers, (queries, keys, values)):
        layer.forward = forward


def release(layer):
    """Takes the single kernel off a layer."""
    if "forward" in vars(layer):
        #[ release
        del vars(layer)["forward"]
        #] release


def switch_on(model):
    count = 0
    for attention in list(model.modules()):
        #[ patcher
        if not all(hasattr(attention, name) for name in NAMES):
            continue
        if getattr(attention, "_three", False):
            continue
        for name in NAMES:
            release(getattr(attention, name))
        #] patcher
        install(attention)
        attention._three = True
        count += 1
    return count


def switch_off(model):
    count = 0
    for attention in model.modules():
        if getattr(attention, "_three", False):
            for name in NAMES:
                #[ unpatcher
                delattr(getattr(attention, name), "forward")
                #] unpatcher
            del attention._three
            count += 1
    return count
'''
)
