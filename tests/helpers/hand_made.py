"""LoRA kernels written for the tests of the oracles: right ones, unlike the reference kernels, and wrong ones.

A kernel here is a `Formula` (what is computed, what the backward computes) made into an autograd Function by
`kernel`, which also writes the patcher. Everything else, reading PEFT's layers, taking quant states apart, handing
a call back, stands once in this module and is meant to be right.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from bitsandbytes.functional import QuantState, dequantize_4bit
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fastlora_verify.kernels.info import KernelInfo

SIBLINGS = {
    "linear": ("proj",),
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "swiglu-mlp": ("gate_proj", "up_proj", "down_proj"),
}
QUANT_FIELDS = (("absmax",), ("code",), ("offset",), ("state2", "absmax"), ("state2", "code"))
TENSORS = 4 + len(QUANT_FIELDS)


@dataclass
class Part:
    """One projection of one call: its tensors (W as stored) and its numbers."""

    tensors: list[Tensor | None]  # W, bias, A, B, and the quant state's, in QUANT_FIELDS' order
    skeleton: QuantState | None  # the quant state without tensors
    s: float
    alpha: float
    base: torch.dtype
    lora: torch.dtype
    out: torch.dtype
    training: bool

    @property
    def A(self) -> Tensor | None:  # noqa: N802
        return self.tensors[2]

    @property
    def B(self) -> Tensor | None:  # noqa: N802
        return self.tensors[3]

    @property
    def bias(self) -> Tensor | None:
        return self.tensors[1]

    def W(self) -> Tensor:  # noqa: N802
        """The dense weight in the dtype of the base product."""
        stored = self.tensors[0]
        if self.skeleton is None:
            return stored.to(self.base)
        state = copy.copy(self.skeleton)
        state.state2 = copy.copy(state.state2)
        for path, tensor in zip(QUANT_FIELDS, self.tensors[4:], strict=True):
            if tensor is not None:
                setattr(state.state2 if len(path) > 1 else state, path[-1], tensor)
        return dequantize_4bit(stored.reshape(-1, 1), state).to(self.base)


def read(proj: nn.Module, x: Tensor, x_dtype: torch.dtype | None = None, *, heed_dropout: bool = True) -> Part | None:
    """A projection as it is now; None when its state is PEFT's business."""
    x_dtype = x_dtype or x.dtype
    layer, A, B, s, alpha = proj, None, None, 1.0, 0.0
    if isinstance(proj, LoraLayer):
        layer = proj.base_layer
        (name,) = proj.active_adapters
        dropout = heed_dropout and not isinstance(proj.lora_dropout[name], nn.Identity)
        if proj.disable_adapters or proj.merged or dropout:
            return None
        A, B = proj.lora_A[name].weight, proj.lora_B[name].weight
        s, alpha = proj.scaling[name], proj.lora_alpha[name]
    state = getattr(layer.weight, "quant_state", None) or getattr(layer, "quant_state", None)
    cast = casting(x.device.type, x_dtype)
    base = (layer.compute_dtype or x_dtype) if state is not None else cast or x_dtype
    tensors, skeleton = take_apart(state)
    return Part(
        [layer.weight, layer.bias, A, B, *tensors],
        skeleton,
        s,
        alpha,
        base,
        base if A is None else cast or A.dtype,
        x_dtype if state is not None else base,
        proj.training,
    )


def casting(device: str, dtype: torch.dtype) -> torch.dtype | None:
    """Autocast's dtype where it is on and touches `dtype`."""
    on = device != "meta" and torch.is_autocast_enabled(device) and dtype != torch.float64
    return torch.get_autocast_dtype(device) if on else None


def explicit(x: Tensor) -> AbstractContextManager[object]:
    """No autocast inside: every cast is written out."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def take_apart(state: QuantState | None) -> tuple[list[Tensor | None], QuantState | None]:
    """A quant state's tensors, and the state without them."""
    if state is None:
        return [None] * len(QUANT_FIELDS), None
    skeleton = copy.copy(state)
    skeleton.state2 = copy.copy(state.state2)
    tensors = []
    for path in QUANT_FIELDS:
        holder = skeleton.state2 if len(path) > 1 else skeleton
        tensors.append(None if holder is None else getattr(holder, path[-1]))
        if holder is not None:
            setattr(holder, path[-1], None)
    return tensors, skeleton


def total(one: Tensor, other: Tensor, dtype: torch.dtype) -> Tensor:
    """A sum in the wider dtype of the two, rounded once."""
    wide = torch.promote_types(one.dtype, other.dtype)
    return (one.to(wide) + other.to(wide)).to(dtype)


def flat(tensor: Tensor) -> Tensor:
    """[..., n] as [N, n]."""
    return tensor.reshape(-1, tensor.shape[-1])


class Formula:
    """What a kernel computes. `parts` are its projections, `kept` what the forward leaves for the backward."""

    def prepare(self, x: Tensor) -> Tensor:
        """x as it enters the Function."""
        return x

    def forward(self, x: Tensor, parts: list[Part]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        raise NotImplementedError

    def backward(
        self, x: Tensor, parts: list[Part], kept: tuple[Tensor, ...], dys: tuple[Tensor, ...], needs_x: bool
    ) -> tuple[Tensor | None, list[tuple[Tensor | None, Tensor | None]]]:
        """dX, and (dA, dB) per part."""
        raise NotImplementedError


def function_of(name: str, formula: Formula, once: bool, on_ctx: tuple[int, ...]) -> Any:
    """The Function of a formula. `on_ctx`: tensors of each part that are kept where autograd doesn't see them."""

    def forward(ctx: Any, parts: list[Part], x: Tensor, *tensors: Tensor | None) -> Any:
        with explicit(x):
            outputs, kept = formula.forward(x, parts)
        ctx.kept_behind = {i: tensors[i] for i in range(len(tensors)) if i % TENSORS in on_ctx}
        ctx.save_for_backward(x, *(None if i in ctx.kept_behind else t for i, t in enumerate(tensors)), *kept)
        ctx.count = len(tensors)
        ctx.numbers = [copy.copy(part) for part in parts]
        for part in ctx.numbers:
            part.tensors = []
        return outputs if len(outputs) > 1 else outputs[0]

    def backward(ctx: Any, *dys: Tensor) -> Any:
        x, *saved = ctx.saved_tensors
        tensors = [ctx.kept_behind.get(i, t) for i, t in enumerate(saved[: ctx.count])]
        for i, part in enumerate(ctx.numbers):
            part.tensors = tensors[i * TENSORS : (i + 1) * TENSORS]
        with explicit(x):
            dX, pairs = formula.backward(x, ctx.numbers, tuple(saved[ctx.count :]), dys, ctx.needs_input_grad[1])
        for part in ctx.numbers:
            part.tensors = []
        gradients = []
        for dA, dB in pairs:
            gradients += [None, None, dA, dB, *[None] * len(QUANT_FIELDS)]
        return None, dX if ctx.needs_input_grad[1] else None, *gradients

    body = {
        "forward": staticmethod(forward),
        "backward": staticmethod(once_differentiable(backward) if once else backward),
    }
    return type(name, (torch.autograd.Function,), body)


@dataclass(eq=False)
class Entry:
    """The forward of a patched block."""

    block: nn.Module
    children: tuple[str, ...]  # () when the block is itself the projection
    formula: Formula
    function: Any
    takes: Callable[[list[Part], Tensor], bool]
    heed_dropout: ClassVar[bool] = True

    def __call__(self, x: Tensor) -> Any:
        projections = [getattr(self.block, name) for name in self.children] or [self.block]
        parts = [read(proj, x, heed_dropout=self.heed_dropout) for proj in projections]
        if any(part is None for part in parts) or not self.takes(parts, x):
            return type(self.block).forward(self.block, x)
        if self.children == SIBLINGS["swiglu-mlp"]:
            between = torch.promote_types(parts[0].out, parts[1].out)
            parts[2] = read(projections[2], x, between)
        tensors = [tensor for part in parts for tensor in part.tensors]
        return self.function.apply(parts, self.formula.prepare(x), *tensors)


def kernel(
    name: str,
    kind: str,
    formula: Formula,
    *,
    once: bool = True,
    on_ctx: tuple[int, ...] = (),
    takes: Callable[[list[Part], Tensor], bool] = lambda parts, x: True,
    entry: type[Entry] = Entry,
    idempotent: bool = True,
    leaves: str = "",
) -> KernelInfo:
    """A kernel as the oracles want it, with a patcher for its kind."""
    function = function_of(name, formula, once, on_ctx)
    names = SIBLINGS[kind]

    def blocks(model: nn.Module) -> list[nn.Module]:
        if kind == "linear":
            return [module for module in model.modules() if isinstance(module, LoraLayer)]
        return [module for module in model.modules() if all(hasattr(module, child) for child in names)]

    def patch(model: nn.Module) -> int:
        found = [block for block in blocks(model) if "forward" not in vars(block) or not idempotent]
        for block in found:
            children = () if kind == "linear" else names
            vars(block)["forward"] = entry(block, children, formula, function, takes)
        return len(found)

    def unpatch(model: nn.Module) -> int:
        found = [block for block in blocks(model) if vars(block).pop("forward", None) is not None]
        for block in found:
            if leaves:
                vars(block)[leaves] = type(block).forward.__get__(block)
        return len(found)

    return KernelInfo(name, kind, f"{name}Backward", patch, unpatch, names)


# --- right kernels ----------------------------------------------------------------------------------


class Einsum(Formula):
    """The single projection in Einstein sums, on tensors of any number of dimensions, nothing flattened."""

    def hidden(self, x: Tensor, part: Part) -> Tensor:
        return torch.einsum("...i,ri->...r", x.to(part.lora), part.A.to(part.lora))

    def scale(self, part: Part) -> float:
        return part.s

    def weight(self, part: Part) -> Tensor:
        return part.W()

    def forward(self, x: Tensor, parts: list[Part]) -> Any:
        (part,) = parts
        Y = torch.einsum("...i,oi->...o", x.to(part.base), self.weight(part))
        if part.bias is not None:
            Y = Y + part.bias.to(part.base)
        H = self.hidden(x, part)
        term = torch.einsum("...r,or->...o", H, part.B.to(part.lora)) * self.scale(part)
        return (self.add(Y.to(part.out), term),), (H,)

    def add(self, Y: Tensor, term: Tensor) -> Tensor:
        return total(Y, term, Y.dtype)

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        (part,), (H,), (dY,) = parts, kept, dys
        s, dY_l = self.scale(part), dY.to(part.lora)
        dB = torch.einsum("...o,...r->or", dY_l, H) * s
        dH = torch.einsum("...o,or->...r", dY_l, part.B.to(part.lora)) * s
        dA = torch.einsum("...r,...i->ri", dH, x.to(part.lora))
        dX = None
        if needs_x:
            base = torch.einsum("...o,oi->...i", dY.to(part.base), self.weight(part)).to(x.dtype)
            dX = total(base, torch.einsum("...r,ri->...i", dH, part.A.to(part.lora)), x.dtype)
        return dX, [(dA.to(part.A.dtype), dB.to(part.B.dtype))]


class Columns(Formula):
    """Q, K and V column by column, [features, N], the LoRA terms added by `addmm` into the base products."""

    def all_A(self, parts: list[Part], dtype: torch.dtype) -> Tensor:  # noqa: N802
        return torch.cat([part.A.to(dtype) for part in parts if part.A is not None])

    def hidden(self, x_columns: Tensor, parts: list[Part], lora: torch.dtype) -> Tensor:
        return self.all_A(parts, lora) @ x_columns.to(lora)

    def forward(self, x: Tensor, parts: list[Part]) -> Any:
        lora = next(part.lora for part in parts if part.A is not None)
        columns = flat(x).t()
        H = self.hidden(columns, parts, lora)
        outputs, row = [], 0
        for part in parts:
            P = part.W() @ columns.to(part.base)
            if part.bias is not None:
                P = P + part.bias.to(part.base)[:, None]
            P = P.to(part.out)
            if part.A is not None:
                P = added(P, part.B.to(lora), H[row : row + len(part.A)], part.s)
                row += len(part.A)
            outputs.append(P.t().reshape(*x.shape[:-1], -1) if x.numel() else P.t().reshape(*x.shape[:-1], len(P)))
        return tuple(outputs), (H,)

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        (H,), lora, columns = kept, kept[0].dtype, flat(x).t()
        dP = [flat(dy).t() for dy in dys]
        pieces, dBs, row = [], [], 0
        for part, d in zip(parts, dP, strict=True):
            if part.A is None:
                dBs.append(None)
                continue
            dBs.append((part.s * (d.to(lora) @ H[row : row + len(part.A)].t())).to(part.B.dtype))
            pieces.append(part.s * (part.B.to(lora).t() @ d.to(lora)))
            row += len(part.A)
        dH = torch.cat(pieces)
        dAs = self.dA(dH, columns.to(lora), parts)
        dX = self.dX(x, parts, dP, dH) if needs_x else None
        return dX, list(zip(dAs, dBs, strict=True))

    def dA(self, dH: Tensor, columns: Tensor, parts: list[Part]) -> list[Tensor | None]:  # noqa: N802
        rows = iter((dH @ columns.t()).split([len(part.A) for part in parts if part.A is not None]))
        return [None if part.A is None else next(rows).to(part.A.dtype) for part in parts]

    def dX(self, x: Tensor, parts: list[Part], dP: list[Tensor], dH: Tensor) -> Tensor:  # noqa: N802
        dX = None
        for part, d in zip(parts, dP, strict=True):
            term = (part.W().t() @ d.to(part.base)).to(x.dtype)
            dX = term if dX is None else dX + term
        dX = added(dX, self.all_A(parts, dH.dtype).t(), dH, 1.0)
        return dX.t().reshape(x.shape)


def added(total_: Tensor, left: Tensor, right: Tensor, s: float) -> Tensor:
    """`total + s left right` in one product, in the wider dtype, rounded once."""
    wide = torch.promote_types(total_.dtype, left.dtype)
    return torch.addmm(total_.to(wide), left.to(wide), right.to(wide), alpha=s).to(total_.dtype)


class Recomputed(Formula):
    """The SwiGLU block as plain operations; the backward runs them again under autograd and saves nothing but x."""

    def block(self, x: Tensor, parts: list[Part]) -> Tensor:
        gate, up, down = parts
        seen = [part.A.to(part.lora) for part in (gate, up) if part.A is not None]
        H = F.linear(x.to((gate if gate.A is not None else up).lora), torch.cat(seen)) if seen else None
        G, U = self.project(x, gate, H, 0), self.project(x, up, H, 0 if gate.A is None else len(gate.A))
        M = F.silu(G) * U
        H = None if down.A is None else F.linear(M.to(down.lora), down.A.to(down.lora))
        return self.project(M, down, H, 0)

    def project(self, x: Tensor, part: Part, H: Tensor | None, row: int) -> Tensor:
        bias = None if part.bias is None else part.bias.to(part.base)
        Y = F.linear(x.to(part.base), part.W(), bias).to(part.out)
        if part.A is None:
            return Y
        return total(Y, F.linear(H[..., row : row + len(part.A)], part.B.to(part.lora)) * part.s, Y.dtype)

    def forward(self, x: Tensor, parts: list[Part]) -> Any:
        with torch.no_grad():
            return (self.block(x, parts),), ()

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        x = x.detach().requires_grad_(needs_x)
        wrt = [x] if needs_x else []
        for part in parts:
            if part.A is not None:
                part.tensors[2:4] = [t.detach().requires_grad_() for t in part.tensors[2:4]]
                wrt += part.tensors[2:4]
        with torch.enable_grad():
            (gradients) = iter(torch.autograd.grad(self.block(x, parts), wrt, dys[0]))
        dX = next(gradients) if needs_x else None
        pairs = [(None, None) if part.A is None else (next(gradients), next(gradients)) for part in parts]
        return dX, pairs


class Staged(Formula):
    """The SwiGLU block by hand: dX is `(gate + up) + (their adapters)`, and dM U is multiplied in fp32.

    With these two choices it errs as the implementation did that the NF4 fixture's ratios were published for.
    """

    def slope(self, G: Tensor) -> Tensor:
        wide = G.to(torch.promote_types(G.dtype, torch.float32))
        return torch.sigmoid(wide) * (1 + wide * (1 - torch.sigmoid(wide)))

    def spare(self, M: Tensor) -> tuple[Tensor, ...]:
        """What else the forward keeps."""
        return ()

    def forward(self, x: Tensor, parts: list[Part]) -> Any:
        gate, up, down = parts
        seen = [part for part in (gate, up) if part.A is not None]
        H = F.linear(x.to(seen[0].lora), torch.cat([p.A.to(p.lora) for p in seen])) if seen else None
        H_g, H_u = self.halves(H, gate, up)
        G, U = self.project(x, gate, H_g), self.project(x, up, H_u)
        M = F.silu(G) * U
        return (self.project(M, down, self.hidden(M, down)),), (G, U, H, *self.spare(M))

    def halves(self, H: Tensor | None, gate: Part, up: Part) -> list[Tensor | None]:
        pieces = iter(H.split([len(p.A) for p in (gate, up) if p.A is not None], dim=-1) if H is not None else ())
        return [None if part.A is None else next(pieces) for part in (gate, up)]

    def hidden(self, x: Tensor, part: Part) -> Tensor | None:
        return None if part.A is None else F.linear(x.to(part.lora), part.A.to(part.lora))

    def project(self, x: Tensor, part: Part, H: Tensor | None) -> Tensor:
        bias = None if part.bias is None else part.bias.to(part.base)
        Y = F.linear(x.to(part.base), part.W(), bias).to(part.out)
        return Y if H is None else total(Y, F.linear(H, part.B.to(part.lora)) * part.s, Y.dtype)

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        gate, up, down = parts
        G, U, H = (None if tensor is None else flat(tensor) for tensor in kept[:3])
        X, dY, M = flat(x), flat(dys[0]), F.silu(G) * U
        dH_d, dB_d = self.adapter(down, self.hidden(M, down), dY)
        dM = self.through(down, dY, dH_d, M.dtype)
        wide = torch.promote_types(G.dtype, torch.float32)
        dG = (dM.to(wide) * U.to(wide) * self.slope(G).to(wide)).to(G.dtype)
        dU = (dM * F.silu(G)).to(U.dtype)
        H_g, H_u = self.halves(H, gate, up)
        (dH_g, dB_g), (dH_u, dB_u) = self.adapter(gate, H_g, dG), self.adapter(up, H_u, dU)
        dA_g, dA_u = self.shared_dA(X, (gate, up), (dH_g, dH_u))
        dA_d = None if dH_d is None else (dH_d.t() @ M.to(down.lora)).to(down.A.dtype)
        dX = self.dX(x, (gate, up), (dG, dU), (dH_g, dH_u)) if needs_x else None
        return dX, [(dA_g, dB_g), (dA_u, dB_u), (dA_d, dB_d)]

    def adapter(self, part: Part, H: Tensor | None, dY: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """dH and dB."""
        if part.A is None:
            return None, None
        scaled = dY.to(part.lora) * part.s
        return scaled @ part.B.to(part.lora), (scaled.t() @ H).to(part.B.dtype)

    def through(self, part: Part, dY: Tensor, dH: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The gradient of a projection's input."""
        base = (dY.to(part.base) @ part.W()).to(dtype)
        return base if dH is None else total(base, dH @ part.A.to(part.lora), dtype)

    def shared_dA(self, X: Tensor, parts: tuple[Part, ...], dHs: tuple[Tensor | None, ...]) -> Any:  # noqa: N802
        there = [dH for dH in dHs if dH is not None]
        if not there:
            return [None, None]
        rows = iter((torch.cat(there, dim=1).t() @ X.to(there[0].dtype)).split([dH.shape[1] for dH in there]))
        return [None if dH is None else next(rows).to(part.A.dtype) for part, dH in zip(parts, dHs, strict=True)]

    def dX(self, x: Tensor, parts: Any, dYs: Any, dHs: Any) -> Tensor:  # noqa: N802
        bases = [(dY.to(part.base) @ part.W()).to(x.dtype) for part, dY in zip(parts, dYs, strict=True)]
        dX = bases[0] + bases[1]
        terms = [dH @ part.A.to(dH.dtype) for part, dH in zip(parts, dHs, strict=True) if dH is not None]
        if terms:
            dX = total(dX, terms[0] if len(terms) == 1 else terms[0] + terms[1], x.dtype)
        return dX.reshape(x.shape)


RIGHT = (
    kernel("EinsumLinear", "linear", Einsum()),
    kernel("ColumnQKV", "qkv", Columns()),
    kernel("RecomputedSwiGLU", "swiglu-mlp", Recomputed()),
    kernel("StagedSwiGLU", "swiglu-mlp", Staged()),
)


# --- wrong kernels: what each does, and an oracle that must see it ----------------------------------------------


class InputDetached(Einsum):
    """x enters the Function detached: nothing flows back to the layers below."""

    def prepare(self, x: Tensor) -> Tensor:
        return x.detach()


class GradientOverwritten(Einsum):
    """dY is scaled in place, under the feet of a residual branch."""

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        part = parts[0]
        right = super().backward(x, parts, kept, dys, needs_x)
        dys[0].mul_(part.s)
        return right


class GradientMemoryReused(Einsum):
    """dX is written into dY's memory where it fits."""

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        dX, pairs = super().backward(x, parts, kept, dys, needs_x)
        fits = dX is not None and dX.shape == dys[0].shape
        return (dys[0].copy_(dX) if fits else dX), pairs


class SquareTransposed(Einsum):
    """A square weight is taken for stored the other way round."""

    def weight(self, part: Part) -> Tensor:
        W = part.W()
        return W.t() if W.shape[0] == W.shape[1] else W


class ScaleRecomputed(Einsum):
    """alpha / r worked out anew: rank-stabilised LoRA and `set_scale` are ignored."""

    def scale(self, part: Part) -> float:
        return part.alpha / len(part.A)


class PairChanged(Einsum):
    """A right backward, its dA and dB then changed."""

    def change(self, x: Tensor, part: Part, H: Tensor, dY: Tensor, dA: Tensor, dB: Tensor) -> Any:
        raise NotImplementedError

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        dX, [(dA, dB)] = super().backward(x, parts, kept, dys, needs_x)
        return dX, [self.change(x, parts[0], kept[0], dys[0], dA, dB)]


class PerToken(PairChanged):
    """Gradients divided by the number of tokens, as if the loss had not been."""

    def change(self, x: Tensor, part: Part, H: Tensor, dY: Tensor, dA: Tensor, dB: Tensor) -> Any:
        return dA / max(1, len(flat(x))), dB / max(1, len(flat(x)))


class LastRowLost(PairChanged):
    """The last row of dB is never written."""

    def change(self, x: Tensor, part: Part, H: Tensor, dY: Tensor, dA: Tensor, dB: Tensor) -> Any:
        dB[-1] = 0
        return dA, dB


class FirstSequenceOnly(PairChanged):
    """dA sums over the first sequence of a batch."""

    def change(self, x: Tensor, part: Part, H: Tensor, dY: Tensor, dA: Tensor, dB: Tensor) -> Any:
        if x.dim() < 3:
            return dA, dB
        dH = flat(dY[0]).to(part.lora) @ part.B.to(part.lora) * part.s
        return (dH.t() @ flat(x[0]).to(part.lora)).to(dA.dtype), dB


class CentredInput(PairChanged):
    """dA from another X than the forward's: its mean taken off."""

    def change(self, x: Tensor, part: Part, H: Tensor, dY: Tensor, dA: Tensor, dB: Tensor) -> Any:
        dH = flat(dY).to(part.lora) @ part.B.to(part.lora) * part.s
        X = flat(x).to(part.lora)
        return (dH.t() @ (X - X.mean(dim=-1, keepdim=True))).to(dA.dtype), dB


class OnlyInTraining(PairChanged):
    """No gradient for A while the module is in eval mode."""

    def change(self, x: Tensor, part: Part, H: Tensor, dY: Tensor, dA: Tensor, dB: Tensor) -> Any:
        return (dA if part.training else torch.zeros_like(dA)), dB


class UniformGradient(Einsum):
    """dY is taken for the same everywhere, as `sum()` sends it."""

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        (dY,) = dys
        same = dY.flatten()[:1].expand(dY.shape) if dY.numel() else dY
        return super().backward(x, parts, kept, (same,), needs_x)


class RowsNormalised(Einsum):
    """H through normalised rows: 0 / 0 where a row is zero."""

    def hidden(self, x: Tensor, part: Part) -> Tensor:
        size = x.norm(dim=-1, keepdim=True)
        return super().hidden(x / size, part) * size.to(part.lora)


class HiddenCached(Einsum):
    """H is kept from one call to the next of the same shape."""

    def __init__(self) -> None:
        self.cache: dict[Any, Tensor] = {}

    def hidden(self, x: Tensor, part: Part) -> Tensor:
        return self.cache.setdefault((x.shape, part.lora), super().hidden(x, part))


class WeightCached(Einsum):
    """The dense weight is kept from the first call of the layer's shape."""

    def __init__(self) -> None:
        self.cache: dict[Any, Tensor] = {}

    def weight(self, part: Part) -> Tensor:
        W = part.W()
        return self.cache.setdefault((W.shape, W.dtype, W.device), W.clone())


class WeightSavedDense(Einsum):
    """The dequantised weight is saved beside its codes."""

    def forward(self, x: Tensor, parts: list[Part]) -> Any:
        outputs, kept = super().forward(x, parts)
        return outputs, (*kept, parts[0].W().clone())

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        return super().backward(x, parts, kept[:1], dys, needs_x)


class TermCastFirst(Einsum):
    """The LoRA term is rounded to the base's dtype before it is added."""

    def add(self, Y: Tensor, term: Tensor) -> Tensor:
        return Y + term.to(Y.dtype)


class AlwaysInputGradient(Einsum):
    """dX is computed whether anybody needs it or not."""

    def backward(self, x: Tensor, parts: list[Part], kept: Any, dys: Any, needs_x: bool) -> Any:
        return super().backward(x, parts, kept, dys, True)


class ComputeDtypeIgnored(Einsum):
    """The base product in the input's dtype, whatever the 4-bit layer computes in."""

    def forward(self, x: Tensor, parts: list[Part]) -> Any:
        parts[0].base = x.dtype
        return super().forward(x, parts)


class AlphaTwice(Columns):
    """The scale of the second sibling is the first one's."""

    def forward(self, x: Tensor, parts: list[Part]) -> Any:
        parts[1].s = parts[0].s
        return super().forward(x, parts)


class SplitInput(Columns):
    """One product with X per A."""

    def hidden(self, x_columns: Tensor, parts: list[Part], lora: torch.dtype) -> Tensor:
        return torch.cat([part.A.to(lora) @ x_columns.to(lora) for part in parts if part.A is not None])


class SplitGradient(Columns):
    """One product per dA."""

    def dA(self, dH: Tensor, columns: Tensor, parts: list[Part]) -> list[Tensor | None]:  # noqa: N802
        rows = iter(dH.split([len(part.A) for part in parts if part.A is not None]))
        return [None if part.A is None else (next(rows) @ columns.t()).to(part.A.dtype) for part in parts]


class LastSiblingForgotten(Columns):
    """dX without the last projection's share when the middle one has no adapter."""

    def dX(self, x: Tensor, parts: list[Part], dP: list[Tensor], dH: Tensor) -> Tensor:  # noqa: N802
        fewer = parts[1].A is None
        return super().dX(x, parts, [*dP[:2], dP[2] * 0] if fewer else dP, dH)


class GateClamped(Recomputed):
    """SiLU's input is held within ±2 in the backward."""

    def block(self, x: Tensor, parts: list[Part]) -> Tensor:
        if not torch.is_grad_enabled():
            return super().block(x, parts)
        silu = F.silu
        try:
            F.silu = lambda G: silu(G.clamp(-2, 2))
            return super().block(x, parts)
        finally:
            F.silu = silu


class SlopeChain(Staged):
    """SiLU's slope in the activation's own 16 bits, rounded at every step."""

    def slope(self, G: Tensor) -> Tensor:
        return torch.sigmoid(G) * (1 + G * (1 - torch.sigmoid(G)))


class ProductKept(Staged):
    """M is saved although it can be computed again."""

    def spare(self, M: Tensor) -> tuple[Tensor, ...]:
        return (M,)


class NoGraph(Entry):
    """The block runs under no_grad: a right output without a graph."""

    def __call__(self, x: Tensor) -> Any:
        with torch.no_grad():
            return super().__call__(x)


@dataclass(eq=False)
class PatchTime(Entry):
    """The weight is captured when the block is patched."""

    captured: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.captured = self.block.base_layer.weight

    def __call__(self, x: Tensor) -> Any:
        part = read(self.block, x)
        if part is None:
            return type(self.block).forward(self.block, x)
        part.tensors[0] = self.captured
        return self.function.apply([part], x, *part.tensors)


class DropoutUnheeded(Entry):
    """Dropout is neither modelled nor handed back."""

    heed_dropout: ClassVar[bool] = False


def in_three_dimensions(parts: list[Part], x: Tensor) -> bool:
    """Takes only what has three dimensions."""
    return x.dim() == 3


WRONG = {
    "exact": (
        kernel("InputDetached", "linear", InputDetached()),
        kernel("SquareTransposed", "linear", SquareTransposed()),
        kernel("ScaleRecomputed", "linear", ScaleRecomputed()),
        kernel("PerToken", "linear", PerToken()),
        kernel("LastRowLost", "linear", LastRowLost()),
        kernel("FirstSequenceOnly", "linear", FirstSequenceOnly()),
        kernel("CentredInput", "linear", CentredInput()),
        kernel("OnlyInTraining", "linear", OnlyInTraining()),
        kernel("UniformGradient", "linear", UniformGradient()),
        kernel("RowsNormalised", "linear", RowsNormalised()),
        kernel("AlphaTwice", "qkv", AlphaTwice()),
        kernel("LastSiblingForgotten", "qkv", LastSiblingForgotten()),
        kernel("GateClamped", "swiglu-mlp", GateClamped()),
    ),
    "node-taken": (
        kernel("NoGraph", "linear", Einsum(), entry=NoGraph),
        kernel("OnlyThreeDimensions", "linear", Einsum(), takes=in_three_dimensions),
    ),
    "float64": (
        kernel("TermCastFirst", "linear", TermCastFirst()),
        kernel("SlopeChain", "swiglu-mlp", SlopeChain()),
    ),
    "saved-bytes": (
        kernel("WeightOnCtx", "linear", Einsum(), on_ctx=(0,)),
        kernel("WeightSavedDense", "linear", WeightSavedDense()),
        kernel("ProductKept", "swiglu-mlp", ProductKept()),
    ),
    "gemms": (
        kernel("SplitInput", "qkv", SplitInput()),
        kernel("SplitGradient", "qkv", SplitGradient()),
        kernel("AlwaysInputGradient", "linear", AlwaysInputGradient()),
        kernel("ComputeDtypeIgnored", "linear", ComputeDtypeIgnored()),
    ),
    "streaming": (
        kernel("CodesOnCtx", "linear", Einsum(), on_ctx=(0, 4)),
        kernel("PatchTime", "linear", Einsum(), entry=PatchTime),
        kernel("AdaptersOnCtx", "linear", Einsum(), on_ctx=(2, 3)),
    ),
    "calls": (
        kernel("HiddenCached", "linear", HiddenCached()),
        kernel("WeightCached", "linear", WeightCached()),
    ),
    "unchanged": (
        kernel("GradientOverwritten", "linear", GradientOverwritten()),
        kernel("GradientMemoryReused", "linear", GradientMemoryReused()),
    ),
    "second-order": (kernel("DifferentiableTwice", "linear", Einsum(), once=False),),
    "lifecycle": (
        kernel("PatchedTwice", "linear", Einsum(), idempotent=False),
        kernel("MethodLeftBehind", "linear", Einsum(), leaves="forward"),
        kernel("MarkLeftBehind", "linear", Einsum(), leaves="_patched"),
    ),
    "dropout": (kernel("DropoutUnheeded", "linear", Einsum(), entry=DropoutUnheeded),),
}
"""By the id of an oracle that must see them."""
