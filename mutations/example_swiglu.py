"""A small SwiGLU kernel for examples: layers as objects, operations in place, a method as entry."""

from __future__ import annotations

from fastlora_verify.mutations.example_common import COMMON

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
