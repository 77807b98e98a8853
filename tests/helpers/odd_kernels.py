"""The example kernels written in ways that a pattern would not expect: what they compute stays the same.

Each is a text in which some lines of an example kernel were replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fastlora_verify.mutations.example_kernels import KERNELS


@dataclass(frozen=True)
class Odd:
    """An example kernel with lines replaced, and the text as a whole changed."""

    kernel: str
    lines: dict[str, str] = field(default_factory=dict)
    whole: Callable[[str], str] = str

    @property
    def text(self) -> str:
        text, _ = KERNELS[self.kernel]
        for before, after in self.lines.items():
            if text.count(before) != 1:
                raise ValueError(f"{text.count(before)} times in the kernel: {before}")
            text = text.replace(before, after)
        return self.whole(text)


FORWARD = """\
    def forward(ctx, inp, kernel, shift, down, up, factor, rate, plan, dtype, *tensors):
"""
SAVE = """\
        ctx.save_for_backward(inp, kept, kernel, down, up, code, *tensors)
"""
NUMBERS = """\
        ctx.numbers = {"factor": factor, "rate": rate, "plan": plan, "dtype": dtype}
"""
READ_NUMBERS = """\
        factor, rate, plan, dtype = (ctx.numbers[key] for key in ("factor", "rate", "plan", "dtype"))
"""
DX = """\
            wide = torch.promote_types(base.dtype, term.dtype)
            d_inp = torch.add(base.to(wide), term.to(wide), alpha=factor).to(inp.dtype).view(inp.shape)
"""
DA = """\
            d_down = torch.mm(back.t(), seen).mul_(factor)
"""
DB = """\
            d_up = factor * torch.mm(grown.t(), code.reshape(-1, code.shape[-1]))
"""
BACK = """\
        back = grown.mm(up)
"""
TOP = """\
        if more or named:
            return former(inp, *more, **named)
"""
NOTHING = """\
        if got is None:
            return former(inp)
"""
CALL = """\
        out = One.apply(inp, got["kernel"], got["shift"], got["down"], got["up"], *rest)
"""
ANSWER = """\
        return out
        #] answer
"""
SUM = """\
        out = joined(out, code, up, factor)
"""
BASE = """\
        out = torch.nn.functional.linear(inp.to(dtype), dense, shift).to(inp.dtype)
"""

FUSED = {
    BASE: """\
        flat = inp.to(dtype).reshape(-1, inp.shape[-1])
        out = flat.mm(dense.t()) if shift is None else torch.addmm(shift, flat, dense.t())
        out = out.reshape(*inp.shape[:-1], -1).to(inp.dtype)
""",
    DB: """\
            d_up = torch.zeros_like(up)
            d_up.addmm_(grown.t(), code.reshape(-1, code.shape[-1]), alpha=factor)
""",
    DA: """\
            d_down = torch.addmm(torch.zeros_like(down), back.t(), seen, beta=0, alpha=factor)
""",
    DX: """\
            d_inp = base.to(term.dtype)
            d_inp.add_(term, alpha=factor)
            d_inp = d_inp.to(inp.dtype).view(inp.shape)
""",
}

# back is None until it is needed; one product with s for three gradients.
SHARED_FACTOR = {
    BACK: """\
        grown = grown.mul(factor)
        back = None
        if third or first:
            back = grown @ up
""",
    DB: """\
            d_up = torch.mm(grown.t(), code.reshape(-1, code.shape[-1]))
""",
    DA: """\
            d_down = back.t().mm(seen)
""",
    DX: """\
            d_inp = (term.to(base.dtype) + base).to(inp.dtype).view(inp.shape)
""",
}

# `setup_context`, and numbers as tensors.
SETUP_CONTEXT = {
    FORWARD: """\
    def forward(inp, kernel, shift, down, up, factor, rate, plan, dtype, *tensors):
""",
    SAVE: """\
        return out, code, kept

    @staticmethod
    def setup_context(ctx, inputs, output):
        inp, kernel, _, down, up, factor, rate, plan, dtype, *tensors = inputs
        out, code, kept = output
        ctx.mark_non_differentiable(code, *([] if kept is None else [kept]))
        number = torch.tensor(factor, dtype=torch.float64)
        ctx.save_for_backward(inp, kept, kernel, down, up, code, *tensors, number)
""",
    NUMBERS + "        return out\n": """\
        ctx.numbers = {"rate": rate, "plan": plan, "dtype": dtype}
""",
    "    def backward(ctx, grad):\n": "    def backward(ctx, grad, *ignored):\n",
    "        saved = ctx.saved_tensors\n": "        *saved, number = ctx.saved_tensors\n",
    READ_NUMBERS: """\
        factor, rate, plan, dtype = number.item(), *(ctx.numbers[key] for key in ("rate", "plan", "dtype"))
""",
    CALL: """\
        out, *_ = One.apply(inp, got["kernel"], got["shift"], got["down"], got["up"], *rest)
""",
}

ENTRY_STYLES = {
    TOP: """\
        match (more, named):
            case ((), {}) if not named:
                pass
            case _: return former(inp, *more, **named)
""",
    """\
        got = pieces_of(layer, inp, modelled=True)
"""
    + NOTHING: """\
        if (got := pieces_of(layer, inp, modelled=True)) is None: return former(inp)
""",
}

ONE_RETURN = {
    TOP + "        #] top\n        got = pieces_of(layer, inp, modelled=True)\n" + NOTHING: """\
        #] top
        got = None if more or named else pieces_of(layer, inp, modelled=True)
        if got is None:
            result = former(inp, *more, **named)
            return result
""",
    CALL: """\
        def last():
            return One.apply(inp, got["kernel"], got["shift"], got["down"], got["up"], *rest)

        out = last()
""",
}

DIRECT_RETURN = {
    CALL + "        #] call\n        #[ answer\n" + ANSWER: """\
        #] call
        #[ answer
        return One.apply(inp, got["kernel"], got["shift"], got["down"], got["up"], *rest)
        #] answer
""",
}

HELPERS = {
    DB: """\
            d_up = scaled_outer(factor, grown, code.reshape(-1, code.shape[-1]))
""",
    DA: """\
            d_down = scaled_outer(factor, back, seen)
""",
    DX: """\
            d_inp = summed(inp, base, term * factor).view(inp.shape)
""",
    "class One(torch.autograd.Function):\n": """\
def scaled_outer(number, one, other):
    return one.t().mm(other) * number


def summed(like, *parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.to(like.dtype)


class One(torch.autograd.Function):
""",
}

EINSUM = {
    DB: """\
            d_up = torch.einsum("no,nr->or", grown, code.reshape(-1, code.shape[-1])) * factor
""",
    BACK: """\
        back = torch.einsum("no,or->nr", grown, up)
""",
    DA: """\
            d_down = factor * torch.einsum("nr,ni->ri", back, seen)
""",
}

FORWARD_LINES = (
    """\
        #[ base
"""
    + BASE
    + """\
        #] base
        kept, seen = None, inp.to(down.dtype)
        if rate > 0:
            kept = torch.bernoulli(torch.full_like(seen, 1 - rate))
            seen = torch.mul(kept, seen).div(1 - rate)
        code = seen.matmul(down.t())
        #[ sum
"""
    + SUM
)

# One function for base and LoRA, adapters transposed on the way in, gradients accumulated in place.
ONE_MATMUL = {
    FORWARD_LINES: """\
        kept, seen = None, inp.to(down.dtype)
        if rate > 0:
            kept = torch.bernoulli(torch.full_like(seen, 1 - rate))
            seen = torch.mul(kept, seen).div(1 - rate)
        out, code = whole(inp, seen, dense, shift, down, up, factor)
        #[ sum
""",
    "class One(torch.autograd.Function):\n": """\
def whole(x, seen, weight, bias, a, b, s):
    out = torch.matmul(x.to(weight.dtype), weight.t())
    if bias is not None:
        out += bias
    wide = torch.promote_types(out.dtype, a.dtype)
    total = out.reshape(-1, out.shape[-1]).to(wide)
    if a is not None:
        a, b = a.t(), b.t()
        xa = seen.reshape(-1, seen.shape[-1]) @ a
        total.addmm_(xa, b, alpha=s)
    return total.view(*x.shape[:-1], -1).to(x.dtype), xa


class One(torch.autograd.Function):
""",
    DB: """\
            b = up.t()
            d_b = torch.empty_like(b)
            d_b.addmm_(code.reshape(-1, code.shape[-1]).t(), grown, alpha=factor, beta=0)
            d_up = d_b.t()
""",
    BACK: """\
        down_t, up_t = down.t(), up.t()
        back = grown @ up_t.t()
""",
    DA: """\
            d_down_t = torch.empty_like(down_t)
            d_down_t.addmm_(seen.t(), back, alpha=factor, beta=0)
            d_down = d_down_t.t()
""",
    DX: """\
            d_inp = base.to(term.dtype)
            d_inp.addmm_(back, down_t.t(), alpha=factor)  # without dropout
            d_inp = d_inp.to(inp.dtype).view(inp.shape)
            del base, term
""",
}

PARTIAL = {
    "    def run(inp, *more, **named):\n": "    def run(former, owner, inp, *more, **named):\n",
    "    layer.forward = run\n": "    layer.forward = functools.partial(run, former, layer)\n",
    "import torch\n": "import functools\n\nimport torch\n",
}

ALIAS = {
    CALL: """\
        try:
            out = fused(inp, got["kernel"], got["shift"], got["down"], got["up"], *rest)
        finally:
            del rest
""",
    'TAKEN = "_taken_by_a_group"\n': 'TAKEN = "_taken_by_a_group"\nfused = One.apply\n',
}

TIGHT = {
    DB: """\
            d_up = (grown * factor).t() @ code.reshape(-1, code.shape[-1])
""",
    DA: """\
            d_down = -(-(back * factor).t()).mm(seen)
""",
    DX: """\
            d_inp = (base + factor * term).to(inp.dtype).view(inp.shape)
""",
}

BATCHED = {
    DX: """\
            d_inp = torch.baddbmm(
                base[None].to(term.dtype), back[None], down[None], alpha=factor,
            ).squeeze(0).to(inp.dtype).view(inp.shape)
""",
}


# -- blocks ---------------------------------------------------------------------------------------------------

GRADIENTS = """\
        for grad, up, code, factor in zip(grads, ups, codes, factors):
            grown = factor * grad.to(up.dtype)
            d_ups.append(grown.t() @ code.reshape(-1, code.shape[-1]))
            backs.append(grown @ up)
"""
DX_LOOP = """\
            for grad, kernel, held, plan, dtype in zip(grads, kernels, tensors, plans, dtypes):
                d_inp = d_inp + grad.to(dtype).mm(unpacked(kernel, held, plan, dtype))
"""
DX_END = """\
            d_inp = torch.mm(joint, torch.cat(downs)) + d_inp
"""
DOWNS = """\
        d_downs = (joint.t() @ rows.to(joint.dtype)).split([len(down) for down in downs])
"""
LOOP = """\
        for i, (kernel, shift, held, plan) in enumerate(zip(kernels, shifts, tensors, plans)):
            dense = unpacked(kernel, held, plan, dtypes[i])
            shift = None if shift is None else shift.to(dense.dtype)
            base = torch.nn.functional.linear(inp.to(dense.dtype), dense, bias=shift).to(inp.dtype)
"""

# Everything by index, into lists that are there before.
BY_INDEX = {
    GRADIENTS: """\
        d_ups, backs, d_downs, base = [None] * size, [None] * size, [None] * size, [None] * size
        for i in range(size):
            grown = grads[i].to(ups[i].dtype)
            back = grown @ ups[i]
            d_ups[i] = (grown.t() @ codes[i].reshape(-1, codes[i].shape[-1])) * factors[i]
            d_downs[i] = factors[i] * (back.t() @ rows.to(back.dtype))
            backs[i] = back
            dense = unpacked(kernels[i], tensors[i], plans[i], dtypes[i])
            base[i] = torch.mm(grads[i].to(dtypes[i]), dense)
""",
    DOWNS: """\
        del joint
""",
    DX_LOOP: """\
            d_inp = base[0] + base[1] + base[2]
""",
    DX_END: """\
            for i in range(size):
                d_inp = torch.add(d_inp, backs[i] @ downs[i], alpha=factors[i])
""",
}

# One projection after the other, by name.
SPELLED_OUT = {
    GRADIENTS: """\
        (q_up, k_up, v_up), (q_code, k_code, v_code) = ups, [code.reshape(-1, code.shape[-1]) for code in codes]
        (q_grad, k_grad, v_grad), (q_s, k_s, v_s) = grads, factors
        q_back, k_back, v_back = q_s * q_grad.mm(q_up), k_s * k_grad.mm(k_up), v_s * v_grad.mm(v_up)
        d_ups = {"q": q_s * q_grad.t().mm(q_code), "k": k_s * k_grad.t().mm(k_code), "v": v_s * v_grad.t().mm(v_code)}
        backs = [q_back, k_back, v_back]
""",
    "        return d_inp, None, *[None] * size, *[None] * size, *d_downs, *d_ups\n": """\
        q_down, k_down, v_down = d_downs
        return d_inp, None, *[None] * (2 * size), q_down, k_down, v_down, d_ups["q"], d_ups["k"], d_ups["v"]
""",
    DX_LOOP: """\
            q_dense, k_dense, v_dense = (unpacked(*one) for one in zip(kernels, tensors, plans, dtypes))
            d_inp = torch.empty_like(rows)
            torch.mm(q_grad, q_dense, out=d_inp)
            d_inp.add_(k_grad @ k_dense).addmm_(v_grad, v_dense)
""",
    DX_END: """\
            d_inp[:] += joint @ torch.cat(downs)
""",
}

SLOPE = """\
        exact = wide_g.to(torch.promote_types(torch.float32, wide_g.dtype))
        chance = exact.sigmoid()
        bend = chance * (exact * (1 - chance) + 1)
"""
MIDDLE = """\
        d_middle = grad.to(down.dtype).mm(dense_d).to(middle.dtype)
        d_middle += back_d.mm(down.first).to(middle.dtype)
"""
RETURN = """\
        return (
            d_inp, None, None, d_gate_first, d_gate_second, *rest,
            d_up_first, d_up_second, *rest, *d_down, *rest,
        )
"""
SILU = {
    SLOPE: """\
        exact = wide_g.double() if wide_g.dtype is torch.float64 else wide_g.float()
        chance = torch.sigmoid(exact)
        bend = torch.mul(torch.add(torch.mul(torch.sub(1, chance), exact), 1), chance)
""",
    MIDDLE: """\
        d_middle = sum((grad.to(down.dtype).mm(dense_d), back_d.mm(down.first)))
""",
    RETURN: """\
        grads = [None] * 25
        grads[0], grads[3], grads[4], grads[11], grads[12] = d_inp, d_gate_first, d_gate_second, d_up_first, d_up_second
        grads[19:21] = d_down
        return tuple(grads)
""",
}
SUPER = {
    "class Block:\n": """\
class Before:
    def forward(self, inp, **named):
        return self.former(inp, **named)


class Block(Before):
""",
    "    def forward(self, inp):\n": "    def forward(self, inp, *, scale=1.0, **named):\n",
    """\
        if not smooth(self.block):
            return self.former(inp)
""": """\
        if not smooth(self.block):
            return super().forward(inp, **named)
        elif named:
            return super().forward(inp, **named)
        else:
            inp = inp * 1.0
""",
}


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def tabs(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        bare = line.lstrip(" ")
        depth, odd = divmod(len(line) - len(bare), 4)
        lines.append("\t" * depth + " " * odd + bare)
    return "\n".join(lines)


def letters(text: str) -> str:
    """Words that take several bytes a letter, in front of and inside what changes."""
    for old, new in (("factor", "größe"), ("grown", "выход"), ("former", "préalable"), ("down", "下")):
        text = text.replace(old, new)
    return text


def annotated(text: str) -> str:
    return '"""Größer → ✓."""\n' + text.replace(
        "def run(inp, *more", "@torch.no_grad\n    def unused(): ...\n\n    def run(inp, *more"
    )


ODD_KERNELS: dict[str, Odd] = {
    "fused": Odd("linear", FUSED),
    "shared factor": Odd("linear", SHARED_FACTOR),
    "setup_context": Odd("linear", SETUP_CONTEXT),
    "match and walrus": Odd("linear", ENTRY_STYLES),
    "result, then return": Odd("linear", ONE_RETURN),
    "returned at once": Odd("linear", DIRECT_RETURN),
    "helpers": Odd("linear", HELPERS),
    "einsum": Odd("linear", EINSUM),
    "in parentheses": Odd("linear", TIGHT),
    "one matmul": Odd("linear", ONE_MATMUL),
    "partial": Odd("linear", PARTIAL),
    "alias": Odd("linear", ALIAS),
    "baddbmm": Odd("linear", BATCHED),
    "by index": Odd("qkv", BY_INDEX),
    "spelled out": Odd("qkv", SPELLED_OUT),
    "torch functions": Odd("swiglu", SILU),
    "super": Odd("swiglu", SUPER),
    "crlf": Odd("linear", whole=crlf),
    "tabs": Odd("linear", whole=tabs),
    "letters": Odd("linear", whole=letters),
    "decorated": Odd("linear", whole=annotated),
}
