"""Small kernels that examples are put into: right ones, and unlike the reference kernels in every habit.

A part of a kernel that an example may replace stands between `#[ name` and `#] name`. Mutations are planned on the
texts, and tests run them; nothing imports them.
"""

from __future__ import annotations

from fastlora_verify.mutations.base import KernelRoles

COMMON = '''
import torch
from bitsandbytes.functional import QuantState, dequantize_4bit
from peft.tuners.lora import LoraLayer
from torch.autograd.function import once_differentiable


def opened(state):
    """A quant state as (tensors, plan); tensors may go through `save_for_backward`."""
    if state is None:
        return [], None
    #[ opened
    second = state.state2
    tensors = [state.absmax, state.code]
    if second is not None:
        tensors = [*tensors, state.offset, second.absmax, second.code]
    inner = None if second is None else (second.blocksize, second.dtype)
    #] opened
    return tensors, {"shape": state.shape, "size": state.blocksize, "kind": state.quant_type, "inner": inner}


def closed(tensors, plan, dtype):
    #[ closed
    second = None
    if plan["inner"] is not None:
        second = QuantState(tensors[3], code=tensors[4], blocksize=plan["inner"][0], dtype=plan["inner"][1])
    return QuantState(
        tensors[0], code=tensors[1], shape=plan["shape"], blocksize=plan["size"], quant_type=plan["kind"],
        dtype=dtype, offset=tensors[2] if second is not None else None, state2=second,
    )
    #] closed


def unpacked(kernel, tensors, plan, dtype):
    if plan is None:
        return kernel.to(dtype)
    return dequantize_4bit(kernel.view(-1, 1), closed(tensors, plan, dtype)).to(dtype)


def joined(base, code, up, factor):
    #[ helper
    wide = torch.promote_types(base.dtype, code.dtype)
    return torch.add(base.to(wide), code.matmul(up.t()), alpha=factor).to(base.dtype)
    #] helper


def packing(bottom):
    #[ packing
    state = getattr(bottom.weight, "quant_state", None)
    if state is None:
        state = getattr(bottom, "quant_state", None)
    #] packing
    return state


def working(bottom, inp):
    #[ working
    chosen = getattr(bottom, "compute_dtype", None)
    #] working
    return inp.dtype if chosen is None else chosen


def plain(layer):
    #[ predicate
    if not isinstance(layer, LoraLayer):
        return False
    if type(layer).__name__ not in ("Linear", "Linear4bit"):
        return False
    return True
    #] predicate


#[ opt-in
def pieces_of(layer, inp, modelled=False):
    #] opt-in
    """What a kernel needs of one layer; None if PEFT must run."""
    if not plain(layer):
        return None
    #[ guard
    if layer.merged or layer.disable_adapters:
        return None
    if len(layer.active_adapters) != 1:
        return None
    #] guard
    name = layer.active_adapters[0]
    if name not in layer.lora_A:
        return None
    #[ dropout guard
    if not modelled and layer.lora_dropout[name].__class__.__name__ != "Identity":
        return None
    #] dropout guard
    bottom = layer.get_base_layer()
    tensors, plan = opened(packing(bottom))
    return {
        "kernel": bottom.weight,
        "shift": bottom.bias,
        "down": layer.lora_A[name].weight,
        "up": layer.lora_B[name].weight,
        "factor": layer.scaling[name],
        "rate": getattr(layer.lora_dropout[name], "p", 0.0) if layer.training else 0.0,
        "tensors": tensors,
        "plan": plan,
        "dtype": working(bottom, inp),
    }
'''

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

SWIGLU = (
    COMMON
    + '''

def joint(pairs):
    """Matrices of the layers that have one, in one."""
    present = [matrix for matrix in pairs if matrix is not None]
    return torch.cat(present, dim=0) if present else None


class Gated(torch.autograd.Function):
    """Y = down(silu(gate X) * up X); ten inputs a layer."""

    @staticmethod
    def forward(ctx, inp, *given):
        gate, up, down = (Wired(*given[i : i + 8]) for i in (0, 8, 16))
        #[ codes
        pair = joint((gate.first, up.first))
        codes = inp.to(gate.first.dtype).matmul(pair.t())
        code_g, code_u = codes.split([len(gate.first), len(up.first)], dim=-1)
        #] codes
        #[ gate
        dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
        wide_g = joined(gate.base(inp, dense_g), code_g, gate.second, gate.factor)
        #] gate
        #[ up
        dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
        wide_u = joined(up.base(inp, dense_u), code_u, up.second, up.factor)
        #] up
        #[ middle
        middle = wide_u * torch.nn.functional.silu(wide_g)
        #] middle
        #[ down
        dense_d = unpacked(down.kernel, down.tensors, down.plan, down.dtype)
        out = down.base(middle, dense_d)
        out = joined(out, middle.to(down.first.dtype) @ down.first.t(), down.second, down.factor)
        #] down
        #[ save
        ctx.save_for_backward(
            inp, codes, wide_g, wide_u, gate.kernel, gate.first, gate.second, up.kernel, up.first, up.second,
            down.kernel, down.first, down.second, *gate.tensors, *up.tensors, *down.tensors,
        )
        #] save
        ctx.counts = [len(wired.tensors) for wired in (gate, up, down)]
        ctx.rest = [(wired.factor, wired.plan, wired.dtype) for wired in (gate, up, down)]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        inp, codes, wide_g, wide_u, *matrices = ctx.saved_tensors
        tensors = iter(matrices[9:])
        parts = [[next(tensors) for _ in range(count)] for count in ctx.counts]
        gate, up, down = (
            Wired(matrices[3 * i], None, matrices[3 * i + 1], matrices[3 * i + 2], *ctx.rest[i], parts[i])
            for i in range(3)
        )
        grad = grad.reshape(-1, grad.shape[-1])
        rows = inp.reshape(-1, inp.shape[-1])
        codes = codes.reshape(-1, codes.shape[-1])
        wide_g, wide_u = wide_g.reshape(-1, wide_g.shape[-1]), wide_u.reshape(-1, wide_u.shape[-1])
        acted = torch.nn.functional.silu(wide_g)
        middle = wide_u * acted
        #[ down's
        grown = torch.mul(down.factor, grad.to(down.second.dtype))
        back_d = grown.mm(down.second)
        d_second = grown.t().mm(middle.to(down.first.dtype) @ down.first.t())
        d_first = back_d.t().mm(middle.to(down.first.dtype))
        #] down's
        d_down = d_first, d_second
        #[ dM
        dense_d = unpacked(down.kernel, down.tensors, down.plan, down.dtype)
        d_middle = grad.to(down.dtype).mm(dense_d).to(middle.dtype)
        d_middle += back_d.mm(down.first).to(middle.dtype)
        #] dM
        #[ slope
        exact = wide_g.to(torch.promote_types(torch.float32, wide_g.dtype))
        chance = exact.sigmoid()
        bend = chance * (exact * (1 - chance) + 1)
        #] slope
        d_wide_u = torch.mul(acted, d_middle)
        d_wide_g = (bend * (wide_u * d_middle).to(bend.dtype)).to(wide_g.dtype)
        code_g, code_u = codes.split([len(gate.first), len(up.first)], dim=-1)
        #[ gate's
        grown_g = d_wide_g.to(gate.second.dtype) * gate.factor
        d_gate_second = grown_g.t() @ code_g
        back_g = grown_g @ gate.second
        #] gate's
        #[ up's
        grown_u = d_wide_u.to(up.second.dtype) * up.factor
        d_up_second = grown_u.t() @ code_u
        back_u = grown_u @ up.second
        #] up's
        #[ dA
        backs = torch.cat((back_g, back_u), dim=-1)
        d_first = torch.matmul(backs.t(), rows.to(backs.dtype))
        d_gate_first, d_up_first = d_first.split([len(gate.first), len(up.first)])
        #] dA
        d_inp = None
        if ctx.needs_input_grad[0]:
            #[ dX
            dense_g = unpacked(gate.kernel, gate.tensors, gate.plan, gate.dtype)
            d_inp = d_wide_g.to(gate.dtype).mm(dense_g).to(backs.dtype)
            dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
            d_inp.addmm_(d_wide_u.to(backs.dtype), dense_u.to(backs.dtype))
            d_inp.add_(backs @ joint((gate.first, up.first)))
            #] dX
            d_inp = d_inp.to(inp.dtype).reshape(inp.shape)
        rest = [None] * 6
        #[ return
        return (
            d_inp, None, None, d_gate_first, d_gate_second, *rest,
            d_up_first, d_up_second, *rest, *d_down, *rest,
        )
        #] return


class Wired:
    """One layer inside the Function."""

    def __init__(self, kernel, shift, first, second, factor, plan, dtype, tensors):
        self.kernel, self.shift, self.first, self.second = kernel, shift, first, second
        self.factor, self.plan, self.dtype, self.tensors = factor, plan, dtype, tensors

    def base(self, inp, dense):
        out = torch.mm(inp.to(self.dtype).reshape(-1, inp.shape[-1]), dense.t())
        #[ shift
        if self.shift is not None:
            out = out + self.shift.to(out.dtype)
        #] shift
        return out.view(*inp.shape[:-1], -1).to(inp.dtype)


def smooth(block):
    #[ activation
    act = getattr(block, "act_fn", None)
    if act is None:
        return False
    #] activation
    return type(act) in (torch.nn.SiLU,) or type(act).__name__ == "SiLUActivation"


class Block:
    """The patched forward of one block, as a method."""

    def __init__(self, block):
        self.block, self.former = block, block.forward

    def forward(self, inp):
        #[ entry
        if not smooth(self.block):
            return self.former(inp)
        got = [pieces_of(layer, inp) for layer in (self.block.gate_proj, self.block.up_proj, self.block.down_proj)]
        if any(one is None for one in got):
            return self.former(inp)
        rows = [[one[k] for k in ("kernel", "shift", "down", "up")] for one in got]
        tails = [[one[k] for k in ("factor", "plan", "dtype", "tensors")] for one in got]
        (g, g_shift, g_first, g_second), (u, u_shift, u_first, u_second), (d, d_shift, d_first, d_second) = rows
        #[ call
        out = Gated.apply(
            inp, g, g_shift, g_first, g_second, *tails[0], u, u_shift, u_first, u_second, *tails[1],
            d, d_shift, d_first, d_second, *tails[2],
        )
        #] call
        return out
        #] entry


def switch_on(model):
    #[ patcher
    found = [
        block
        for block in model.modules()
        if all(hasattr(block, name) for name in ("gate_proj", "up_proj", "down_proj"))
    ]
    for block in found:
        if hasattr(block, "_former"):
            continue
        block._former = block.forward
        block.forward = Block(block).forward
    #] patcher
    return len(found)


def switch_off(model):
    count = 0
    for block in model.modules():
        if "_former" in block.__dict__:
            #[ unpatcher
            block.__dict__.pop("forward")
            #] unpatcher
            del block._former
            count += 1
    return count
'''
)

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

INSTRUMENT = '''
import torch

#[ limits
MARGIN = 1.5
NAMES = ("x", "y")
#] limits


def held_bytes(tensors):
    """Bytes of distinct storages."""
    seen = {}
    for tensor in tensors:
        #[ identity
        key = tensor.untyped_storage()._cdata
        #] identity
        seen[key] = tensor.untyped_storage().nbytes()
    return sum(seen.values())


def worst(one, two):
    #[ difference
    gap = (one.double() - two.double()).abs()
    #] difference
    return float(gap.max())


def alike(one, two):
    #[ equality
    return torch.allclose(one, two, rtol=1e-3)
    #] equality
'''


def _roles(name: str, kind: str, function: str, entries: tuple[str, ...], guards: tuple[str, ...]) -> KernelRoles:
    places = [f"{MODULE}:{scope}" for scope in (function, "switch_on", "switch_off")]
    return KernelRoles(
        name=name,
        kind=kind,
        function=places[0],
        entries=tuple(f"{MODULE}:{scope}" for scope in entries),
        guards=tuple(f"{MODULE}:{scope}" for scope in ("plain", "pieces_of", *guards)),
        helpers=tuple(f"{MODULE}:{scope}" for scope in ("joined", "unpacked")),
        patcher=places[1],
        unpatcher=places[2],
        node=f"{function}Backward",
    )


MODULE = "kernel"
KERNELS: dict[str, tuple[str, KernelRoles | None]] = {
    "linear": (LINEAR, _roles("linear", "linear", "One", ("adopt.run",), ())),
    "swiglu": (SWIGLU, _roles("swiglu", "swiglu-mlp", "Gated", ("Block.forward",), ("smooth",))),
    "qkv": (QKV, _roles("qkv", "qkv", "Three", tuple(f"install.{n}" for n in ("queries", "keys", "values")), ())),
    "instrument": (INSTRUMENT, None),
}
