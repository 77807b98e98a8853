"""Sample models by kind, non-degenerate by construction.

A degenerate sample hides faults: with B = 0 the adapter is invisible, with scaling 1 a lost factor is, with
equal widths a transposed matrix is, with siblings of equal scale a swapped quant state is. So B is drawn, the
scaling is never 1, widths, ranks and the number of rows differ pairwise, and the second sibling's weight is
scaled by 4 before it is quantised. `square=True` asks for equal widths, for faults that need them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn

from fastlora_verify.kernels.four_bit import Linear4bit, dequantize_4bit
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.patching import patch_of, remove

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "float64": torch.float64,
    "mixed": torch.bfloat16,  # of base and input; adapters stay fp32, as get_peft_model leaves them
}
BASES = ("dense", "nf4", "nf4-nested", "fp4")
SIBLING_SCALE = 4.0  # far enough that a sibling's absmax is wrong by about 300%


@dataclass(frozen=True)
class Kind:
    """Shape of a sample: children, their (input, output) as indices into widths, and default sizes."""

    block: str  # name of the block in the model
    projections: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    widths: tuple[int, ...]
    ranks: tuple[int, ...]


KINDS = {
    "linear": Kind("proj", ("proj",), ((0, 1),), (20, 14), (3,)),
    "qkv": Kind("attn", ("q_proj", "k_proj", "v_proj"), ((0, 1), (0, 2), (0, 3)), (20, 24, 12, 8), (3, 5, 2)),
    "swiglu-mlp": Kind("mlp", ("gate_proj", "up_proj", "down_proj"), ((0, 1), (0, 1), (1, 0)), (20, 28), (3, 5, 2)),
}
SQUARE_WIDTH = 20


@dataclass(frozen=True)
class Sample:
    """One sample model. Empty tuples and `None` stand for the kind's defaults."""

    seed: int = 0
    dtype: str = "fp32"  # "fp32" | "bf16" | "fp16" | "float64" | "mixed"
    base: str = "dense"  # "dense" | "nf4" | "nf4-nested" | "fp4"
    shape: tuple[int, ...] = (2, 3)  # leading dimensions of x
    bias: bool = True
    adapted: tuple[str, ...] | None = None  # which projections have an adapter; None: all
    ranks: tuple[int, ...] = ()  # in the order of the projections
    alpha: int = 7
    device: str = "cpu"  # "meta" for dense bases only
    square: bool = False
    widths: tuple[int, ...] = ()  # linear: in, out; qkv: hidden, q, k, v; swiglu-mlp: hidden, intermediate
    dropout: float = 0.0


class Built(NamedTuple):
    """A fresh model wrapped by PEFT, and an input that requires a gradient."""

    model: nn.Module
    x: Tensor


class LinearModel(nn.Module):
    """`model(x)` is `model.proj(x)`."""

    def __init__(self, proj: nn.Module) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_act="silu")
        self.proj = proj

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.proj(x)
        return out


class Attention(nn.Module):
    """The three projections of an attention, called in order on one x."""

    def __init__(self, q_proj: nn.Module, k_proj: nn.Module, v_proj: nn.Module) -> None:
        super().__init__()
        self.q_proj = q_proj
        self.k_proj = k_proj
        self.v_proj = v_proj

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


class AttentionModel(nn.Module):
    """`model(x)` is `model.attn(x)`: the tuple (q, k, v)."""

    def __init__(self, attn: Attention) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_act="silu")
        self.attn = attn

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out: tuple[Tensor, Tensor, Tensor] = self.attn(x)
        return out


class GatedMLP(nn.Module):
    """`down(act(gate(x)) * up(x))`."""

    def __init__(self, gate_proj: nn.Module, up_proj: nn.Module, down_proj: nn.Module) -> None:
        super().__init__()
        self.gate_proj = gate_proj
        self.up_proj = up_proj
        self.down_proj = down_proj
        self.act_fn: nn.Module = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return out


class MLPModel(nn.Module):
    """`model(x)` is `model.mlp(x)`."""

    def __init__(self, mlp: GatedMLP) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_act="silu")
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.mlp(x)
        return out


def build(info_or_kind: KernelInfo | str, sample: Sample) -> Built:
    """A model of the kernel's kind as the sample says, wrapped by PEFT, in train mode, B drawn; and its x.

    Raises ValueError for a dtype, base or adapted projection that doesn't exist, and for 4-bit in float64;
    MissingLibraryError for a 4-bit base without bitsandbytes.
    """
    name = info_or_kind if isinstance(info_or_kind, str) else info_or_kind.kind
    kind = KINDS[name]
    check(kind, sample)
    generator = torch.Generator().manual_seed(sample.seed)
    widths = sample.widths or kind.widths
    if sample.square:
        widths = (SQUARE_WIDTH,) * len(widths)
    layers = [base_linear(kind, sample, index, widths, generator) for index in range(len(kind.edges))]
    model = assemble(name, layers)
    vars(model)["is_loaded_in_4bit"] = sample.base != "dense"  # how PEFT learns that it may wrap Linear4bit
    adapt(model, kind, sample)
    model.to(sample.device)  # this quantises Params4bit
    settle_adapters(model, sample, generator)
    x = torch.randn(*sample.shape, widths[0], generator=generator, dtype=torch.float64)
    x = x.to(sample.device, DTYPES[sample.dtype]).requires_grad_()
    return Built(model.train(), x)


def check(kind: Kind, sample: Sample) -> None:
    """Raises ValueError for a sample that can't be built."""
    if sample.dtype not in DTYPES:
        raise ValueError(f"dtype {sample.dtype!r} is none of {sorted(DTYPES)}")
    if sample.base not in BASES:
        raise ValueError(f"base {sample.base!r} is none of {BASES}")
    if sample.base != "dense" and sample.dtype == "float64":
        raise ValueError("bitsandbytes computes 4-bit layers in 16 or 32 bits, not in float64")
    unknown = set(sample.adapted or ()) - set(kind.projections)
    if unknown:
        raise ValueError(f"adapted {sorted(unknown)} is none of {kind.projections}")


def base_linear(kind: Kind, sample: Sample, index: int, widths: Sequence[int], generator: torch.Generator) -> nn.Linear:
    """One frozen base layer; 4-bit ones are still unquantised. The second sibling is scaled."""
    in_features, out_features = (widths[edge] for edge in kind.edges[index])
    dtype = DTYPES[sample.dtype]
    device = "meta" if sample.device == "meta" else "cpu"
    layer: nn.Linear
    if sample.base == "dense":
        layer = nn.Linear(in_features, out_features, bias=sample.bias, dtype=dtype, device=device)
    else:
        layer = Linear4bit(
            in_features,
            out_features,
            bias=sample.bias,
            compute_dtype=dtype,
            compress_statistics=sample.base == "nf4-nested",
            quant_type="fp4" if sample.base == "fp4" else "nf4",
        )
    scale = SIBLING_SCALE if index == 1 else 1.0
    with torch.no_grad():
        if device != "meta":
            weight = torch.randn(out_features, in_features, generator=generator, dtype=torch.float64)
            layer.weight.data = (weight * scale / in_features**0.5).to(dtype)
        if sample.bias:
            bias = torch.randn(out_features, generator=generator, dtype=torch.float64)
            layer.bias.data = bias.to(layer.bias.device, dtype)
    return layer.requires_grad_(False)


def assemble(name: str, layers: list[nn.Linear]) -> nn.Module:
    """The model of a kind around its layers."""
    if name == "linear":
        return LinearModel(*layers)
    if name == "qkv":
        return AttentionModel(Attention(*layers))
    return MLPModel(GatedMLP(*layers))


def adapt(model: nn.Module, kind: Kind, sample: Sample) -> None:
    """PEFT's layers around the adapted projections, ranks by name."""
    adapted = kind.projections if sample.adapted is None else sample.adapted
    ranks = dict(zip(kind.projections, sample.ranks or kind.ranks, strict=True))
    config = LoraConfig(
        rank_pattern={name: ranks[name] for name in adapted},
        lora_alpha=sample.alpha,
        lora_dropout=sample.dropout,
        target_modules=list(adapted),
    )
    inject_adapter_in_model(config, model)


def settle_adapters(model: nn.Module, sample: Sample, generator: torch.Generator) -> None:
    """Draws A and B and gives adapters their dtype."""
    dtype = torch.float32 if sample.dtype == "mixed" else DTYPES[sample.dtype]
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            continue
        parameter.data = parameter.data.to(dtype)
        if parameter.device.type == "meta":
            continue
        std = 0.5 if "lora_A" in name else 0.4
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * std
        parameter.data.copy_(drawn)


def to_float64_twin(model: nn.Module) -> nn.Module:
    """A deep copy in float64 for references: unpatched, 4-bit layers replaced by dequantised ones."""
    twin = copy.deepcopy(model)
    for module in list(twin.modules()):
        patch = patch_of(module)
        if patch is not None:
            remove(module, patch.kernel)
        for name, child in list(module.named_children()):
            if isinstance(child, Linear4bit):
                setattr(module, name, dequantised(child))
    return twin.double()


def dequantised(layer: Linear4bit) -> nn.Linear:
    """A dense frozen twin of a 4-bit layer, in float64, with the values that its codes stand for."""
    from fastlora_verify.kernels.quant import quant_state_of  # where there is a 4-bit layer, there is bitsandbytes

    weight = dequantize_4bit(layer.weight.data, quant_state_of(layer)).double()
    out_features, in_features = weight.shape
    twin = nn.Linear(in_features, out_features, bias=layer.bias is not None, dtype=torch.float64)
    twin.weight.data = weight
    if layer.bias is not None:
        twin.bias.data = layer.bias.data.double()
    return twin.to(weight.device).requires_grad_(False)
