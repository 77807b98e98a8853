"""Figures of the reviews about guards: what a kernel would do to a block that it must refuse.

A guard is silenced by replacing its function with one that finds no reason, wherever the kernels call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F  # noqa: N812
from bitsandbytes.nn import Linear8bitLt
from peft import LoraConfig, inject_adapter_in_model
from peft.utils.other import ModulesToSaveWrapper
from torch import Tensor, nn

from fastlora_verify.kernels import linear, projection, qkv, swiglu
from fastlora_verify.kernels.linear import patch_linear
from fastlora_verify.kernels.qkv import patch_qkv
from fastlora_verify.kernels.samples import GatedMLP, MLPModel, Sample, build
from fastlora_verify.kernels.swiglu import patch_swiglu
from fastlora_verify.oracles.base import Fixture
from fastlora_verify.oracles.fixture import layers

Figures = dict[str, float | int | str]
MODULES = (linear, projection, qkv, swiglu)


@contextmanager
def guard_silent(*names: str) -> Iterator[None]:
    """Inside, guards of these names find no reason, in every module of the kernels that calls them."""
    with ExitStack() as stack:
        for module in MODULES:
            for name in names:
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, return_value=None))
        yield


def int8_layer(base: Any) -> Linear8bitLt:
    """The layer quantised to 8 bits by bitsandbytes."""
    layer = Linear8bitLt(base.in_features, base.out_features, bias=False, has_fp16_weights=False)
    layer.load_state_dict({"weight": base.weight.data})
    return layer.to("cpu").requires_grad_(False)


def int8_sibling() -> Figures:
    """8-bit projections without an adapter beside an adapted one: largest abs(out), with the guard and without it."""
    found: Figures = {}
    for kind, adapted, patch in (("swiglu-mlp", "gate_proj", patch_swiglu), ("qkv", "q_proj", patch_qkv)):
        model, x = build(kind, Sample(adapted=(adapted,), bias=False))
        block: Any = model.get_submodule("mlp" if kind == "swiglu-mlp" else "attn")
        for name, child in list(block.named_children()):
            if name.endswith("_proj") and name != adapted:
                setattr(block, name, int8_layer(child))
        want = glued(model(x))
        found[f"{kind}: blocks patched"] = patch(model)
        with guard_silent("layer_reason", "dtype_reason"):
            found[f"{kind}, guard silent: blocks patched"] = patch(model)
            got = model(x)
        out = glued(got)
        found[f"{kind}, guard silent: largest abs(out)"] = out.abs().max().item()
        found[f"{kind}, guard silent: largest difference"] = (out - want).abs().max().item()
        found[f"{kind}, PEFT: largest abs(out)"] = want.abs().max().item()
    return found


def glued(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    """A block's outputs side by side."""
    return torch.cat([out] if isinstance(out, Tensor) else list(out), dim=-1).detach()


def int8_adapted() -> Figures:
    """PEFT's 8-bit layers under adapters, as an 8-bit load makes them: what is patched, and the output otherwise."""
    block = GatedMLP(*(int8_layer(layer) for layer in layers(Fixture(), nf4=False)))
    model, x = MLPModel(block), torch.randn(2, 3, 8, requires_grad=True)
    model.is_loaded_in_8bit = True  # type: ignore[assignment]
    inject_adapter_in_model(LoraConfig(r=2, lora_alpha=4, target_modules=["gate_proj", "up_proj", "down_proj"]), model)
    want = model(x)
    found: Figures = {
        "single kernel: layers patched": patch_linear(model),
        "swiglu: blocks patched": patch_swiglu(model),
    }
    with guard_silent("layer_reason", "dtype_reason"):
        found["swiglu, guard silent: blocks patched"] = patch_swiglu(model)
        out = model(x)
    found["swiglu, guard silent: node"] = type(out.grad_fn).__name__
    found["swiglu, guard silent: largest abs(out)"] = out.abs().max().item()
    found["PEFT: largest abs(out)"] = want.abs().max().item()
    return found


def other_activation() -> Figures:
    """A GELU block in a model whose config says silu: how far its output moves if the guard says nothing."""
    found: Figures = {}
    for how in ("GELU as act_fn", "GELU inline, no act_fn"):
        model, x = build("swiglu-mlp", Sample())
        mlp = model.get_submodule("mlp")
        if how == "GELU as act_fn":
            mlp.act_fn = nn.GELU()
        else:
            del mlp.act_fn
            mlp.__class__ = InlineGELU
        want = model(x)
        found[f"{how}: blocks patched"] = patch_swiglu(model)
        with guard_silent("activation_reason"):
            found[f"{how}, guard silent: blocks patched"] = patch_swiglu(model)
            found[f"{how}, guard silent: output moves by"] = (model(x) - want).abs().max().item()
        found[f"{how}: largest abs(out)"] = want.abs().max().item()
    return found


class InlineGELU(nn.Module):
    """A gated MLP that names its activation nowhere."""

    def forward(self, x: Tensor) -> Tensor:
        gate, up, down = (self.get_submodule(f"{name}_proj") for name in ("gate", "up", "down"))
        out: Tensor = down(F.gelu(gate(x)) * up(x))
        return out


def module_to_save() -> Figures:
    """A trainable copy of down_proj: L1 norms of its gradients under PEFT and with the guards silent."""
    found: Figures = {}
    for guards in ((), ("layer_reason", "base_reason")):
        model, x = build("swiglu-mlp", Sample(adapted=("gate_proj", "up_proj")))
        mlp = model.get_submodule("mlp")
        wrapper = ModulesToSaveWrapper(mlp.down_proj, "default")
        copy = wrapper.modules_to_save["default"].requires_grad_()
        # With the guards silent the kernel reads the layer that the wrapper would run.
        mlp.down_proj = copy if guards else wrapper
        with guard_silent(*guards):
            patched = patch_swiglu(model)
            model(x).square().mean().backward()
        how = "guards silent" if guards else "as it is"
        found[f"{how}: blocks patched"] = patched
        for name, parameter in copy.named_parameters():
            grad = parameter.grad
            found[f"{how}: gradient of {name}"] = "None" if grad is None else grad.abs().sum().item()
    return found
