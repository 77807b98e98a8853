"""Figures of the reviews that neither the suites nor the oracles print: `review_figures.py NAME…` gives JSON.

Each is computed from the formula or on the reference kernels, on the CPU, at the sizes that the review gives; where it
gives none, on the 2x rule's own fixture. Nothing here is judged: docs/reviews.md sets the figure beside the review's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.linear import patch_linear
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.kernels.swiglu import patch_swiglu
from fastlora_verify.oracles import float64
from fastlora_verify.oracles.arms import three_arms
from fastlora_verify.oracles.base import Fixture, Options
from fastlora_verify.oracles.fixture import swiglu_block
from fastlora_verify.oracles.instruments import SavedBytes, error_ratios, run_block
from fastlora_verify.oracles.saved_bytes import Shape, full_size, sample_at

sys.path.insert(0, str(Path(__file__).parent))

from review_guard_figures import Figures, int8_adapted, int8_sibling, module_to_save, other_activation

SWIGLU = next(kernel for kernel in KERNELS if kernel.kind == "swiglu-mlp")
NF4_SEEDS = (3, 7, 11)


def silu_slope() -> Figures:
    """Errors of SiLU's slope times two factors, 200,000 bf16 triples: six steps in bf16, and fp32 rounded once.

    Both against float64 on the same bf16 values.
    """
    torch.manual_seed(0)
    grad, U, G = (torch.randn(200_000).bfloat16() for _ in range(3))
    exact = slope(grad.double(), U.double(), G.double())
    chain = (slope(grad, U, G).double() - exact).abs()
    once = (slope(grad.float(), U.float(), G.float()).bfloat16().double() - exact).abs()
    near = (G > -1.6) & (G < -1.0)
    return {
        "mean absolute error, 16-bit chain": chain.mean().item(),
        "mean absolute error, fp32 rounded once": once.mean().item(),
        "largest error, 16-bit chain": chain.max().item(),
        "largest error, fp32 rounded once": once.max().item(),
        "chain over once for G in (-1.6, -1.0)": (chain[near].mean() / once[near].mean()).item(),
    }


def slope(grad: Tensor, U: Tensor, G: Tensor) -> Tensor:
    """grad ⊙ U ⊙ σ (1 + G (1 - σ)), every step in the operands' dtype."""
    sigma = torch.sigmoid(G)
    return grad * U * sigma * (1 + G * (1 - sigma))


def swapped_state() -> Figures:
    """How far gate's weight moves when it is dequantised with up's quant state: |W' - W| / |W|, in per cent."""
    found: Figures = {}
    for scale in (1.0, 4.0):
        for seed in NF4_SEEDS:
            model, _ = swiglu_block(seed, Fixture(sibling_scale=scale), nf4=True)
            block: Any = model.get_submodule("mlp")
            gate, up = block.gate_proj.base_layer.weight, block.up_proj.base_layer.weight
            right = dequantize_4bit(gate.data, gate.quant_state).float()
            wrong = dequantize_4bit(gate.data, up.quant_state).float()
            found[f"up x {scale:g}, seed {seed}: per cent"] = 100 * ((wrong - right).norm() / right.norm()).item()
    return found


def nf4_differences() -> Figures:
    """Kernel against unpatched PEFT on NF4, `up` not scaled: differences, and what a tolerance of 1e-2 makes of it."""
    found: Figures = {}
    for seed in NF4_SEEDS:
        arms = three_arms(SWIGLU, partial(swiglu_block, seed, Fixture(sibling_scale=1.0), nf4=True))
        got, want = arms.got, arms.reference
        out = (got["out"] - want["out"]).abs()
        far = out > 1e-2 + 1e-2 * want["out"].abs()
        found[f"seed {seed}: largest difference of the output"] = out.max().item()
        found[f"seed {seed}: largest abs(Y)"] = want["out"].abs().max().item()
        found[f"seed {seed}: largest difference of dX"] = (got["dX"] - want["dX"]).abs().max().item()
        found[f"seed {seed}: per cent of Y outside rtol = atol = 1e-2"] = 100 * far.double().mean().item()
    return found


def dx_errors() -> Figures:
    """Largest absolute errors of dX against float64 on the NF4 fixture, seed 11: kernel and unpatched PEFT."""
    arms = three_arms(SWIGLU, partial(swiglu_block, 11, Fixture(), nf4=True))
    return {
        "kernel": (arms.got["dX"] - arms.exact["dX"]).abs().max().item(),
        "PEFT": (arms.reference["dX"] - arms.exact["dX"]).abs().max().item(),
    }


def nf4_sweep() -> Figures:
    """Seeds 0 to 19 of the NF4 fixture: those over 2x, with the worst ratio."""
    figures = float64.check(SWIGLU, Options(seeds=tuple(range(20)))).figures
    over = [f for f in figures if f.name.startswith("nf4, seed") and isinstance(f.value, float) and f.value > 2]
    return {"seeds over 2x": len(over), **{f.name: f.value for f in over if isinstance(f.value, float)}}


def chain_on_nf4() -> Figures:
    """`dx_errors` and `nf4_sweep` of the kernel whose slope is a 16-bit chain."""
    names = ("dx-errors", "nf4-sweep")
    return {f"chain: {name}": value for name, value in in_mutant("silu-slope-16-bit-chain", *names).items()}


def in_mutant(pattern: str, *names: str) -> Figures:
    """Figures of this file, measured on the mutant that `pattern` names, in a copy that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        apply = [str(Path(sys.executable).with_name("fastlora-verify")), "apply", pattern, "--to", str(copy)]
        subprocess.run(apply, check=True, capture_output=True)
        # The copy stands before the installed packages; what it doesn't hold comes from them.
        env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        again = [sys.executable, "-P", __file__, *names]
        found = json.loads(subprocess.run(again, env=env, check=True, capture_output=True, text=True).stdout)
    return {name: value for figures in found.values() for name, value in figures.items()}


def bf16_twin() -> Figures:
    """12 seeds on a bf16 base with fp32 adapters, 32 to 48, x [2, 5, 32], r = 4: against PEFT and float64."""
    fixture = Fixture(widths=(32, 48), shape=(2, 5), rank=4, alpha=8)
    equal, ratios = 0, []
    for seed in range(12):
        arms = three_arms(SWIGLU, partial(swiglu_block, seed, fixture, nf4=False))
        equal += torch.equal(arms.got["out"], arms.reference["out"])
        ratios.append(error_ratios(arms.got, arms.reference, arms.exact))
    worst = max((ratio, tensor) for found in ratios for tensor, ratio in found.items())
    return {
        "seeds with PEFT's output to the bit": equal,
        "seeds whose output errs more than 1.05x": sum(found["out"] > 1.05 for found in ratios),
        "seeds over 2x": sum(max(found.values()) > 2 for found in ratios),
        "worst ratio": worst[0],
        "worst tensor": worst[1].replace(".default.weight", ""),
    }


def helper_cast_first() -> Figures:
    """`bf16_twin` where the shared helper rounds the LoRA term before it adds it."""
    found = in_mutant("lora-term-cast-before-add@*", "bf16-twin")
    return {f"helper cast-first: {name}": value for name, value in found.items()}


def down_cast_first() -> Figures:
    """`bf16_twin` where down's LoRA term alone is rounded before it is added."""
    found = in_mutant("lora-term-cast-before-add-here@*FusedLoraSwiGLU*down_proj*", "bf16-twin")
    return {f"down cast-first: {name}": value for name, value in found.items()}


def saved_bytes() -> Figures:
    """Saving of the block with h = 4096, f = 14336 in bf16 on meta, with X counted once and at each save."""
    found: Figures = {}
    for rows, rank in ((128, 16), (2048, 64)):
        shape = Shape("", rows, {"swiglu-mlp": (4096, 14336)}, rank)
        totals = [counted(shape, patched=patched) for patched in (False, True)]
        n_f = rows * 14336 * 2
        for what, peft, kernel in zip(("by storage object", "at each save"), *totals, strict=True):
            saving = peft - kernel
            found[f"N = {rows}, r = {rank}, {what}: bytes"] = saving
            found[f"N = {rows}, r = {rank}, {what}: MiB"] = round(saving / 2**20, 3)
            found[f"N = {rows}, r = {rank}, {what}: tensors of N f"] = round(saving / n_f, 3)
    return found


def counted(shape: Shape, *, patched: bool) -> tuple[int, int]:
    """Bytes that a forward saves: by `SavedBytes`, and counting a tensor again whenever it is saved again."""
    model, x = full_size(SWIGLU, sample_at(SWIGLU, shape, "bf16", "dense", "meta"))
    if patched:
        patch_swiglu(model)
    raw = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal raw
        # Weights and adapters are saved once each; only activations can be saved twice.
        raw += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(x)
    with SavedBytes() as once:
        model(x)
    return once.total, raw


def default_layout() -> Figures:
    """Dtypes that get_peft_model leaves by default, on a dense bf16 base and on NF4, and the node that runs there."""
    found: Figures = {}
    for base in ("dense", "nf4"):
        layer = (
            nn.Linear(20, 14) if base == "dense" else Linear4bit(20, 14, compute_dtype=torch.bfloat16, quant_type="nf4")
        )
        model = nn.Sequential()
        model.add_module("o_proj", layer)
        model.to(torch.bfloat16).to("cpu")
        wrapped = get_peft_model(model, LoraConfig(r=3, lora_alpha=7, target_modules=["o_proj"]))
        proj = wrapped.base_model.model.o_proj
        found[f"{base}: lora_A"] = str(proj.lora_A["default"].weight.dtype)
        found[f"{base}: blocks patched"] = patch_linear(wrapped)
        out = wrapped(torch.randn(2, 20, dtype=torch.bfloat16, requires_grad=True))
        function = out.grad_fn
        while type(function).__name__ == "ToCopyBackward0":
            function = function.next_functions[0][0]
        found[f"{base}: node"] = type(function).__name__
    return found


def saturation() -> Figures:
    """SiLU far out on both sides: bf16 inputs times 1000. Values that are not finite, differences from PEFT's."""
    model, x = build("swiglu-mlp", Sample(dtype="bf16"))
    x = (1000 * x.detach()).requires_grad_()
    want = run_block(model, x)
    patch_swiglu(model)
    got = run_block(model, x)
    return {
        "values that are not finite": sum(int((~torch.isfinite(tensor)).sum()) for tensor in got.values()),
        "largest relative difference from PEFT's": max(
            ((got[name] - want[name]).norm() / want[name].norm()).item() for name in want
        ),
    }


FIGURES: dict[str, Callable[[], Figures]] = {
    "silu-slope": silu_slope,
    "swapped-state": swapped_state,
    "nf4-differences": nf4_differences,
    "dx-errors": dx_errors,
    "nf4-sweep": nf4_sweep,
    "chain-on-nf4": chain_on_nf4,
    "bf16-twin": bf16_twin,
    "helper-cast-first": helper_cast_first,
    "down-cast-first": down_cast_first,
    "saved-bytes": saved_bytes,
    "int8-sibling": int8_sibling,
    "int8-adapted": int8_adapted,
    "other-activation": other_activation,
    "module-to-save": module_to_save,
    "default-layout": default_layout,
    "saturation": saturation,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = sys.argv[1:] or list(FIGURES)
    print(json.dumps({name: FIGURES[name]() for name in chosen}, indent=1))
