"""Models that a patcher is called on: the sample model itself, or a small Llama around the sample's layers.

Many a patcher looks for more than a block: PEFT's wrapper, `model.model.layers`, a transformers config, a class.
So the sample's layers can be put into a real Llama of transformers that `get_peft_model` wrapped. The layers are the
very same modules: a forward that is installed on them is the sample's, and one that is installed on the Llama's MLP
is called in the sample block's place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fastlora_verify.harness.child.patch_call import ADAPTER, BLOCK, CLASS, CONFIG, LORA_CONFIG, MODEL, Call, Given
from fastlora_verify.kernels.samples import KINDS

LLAMA_PLACES = {
    "linear": ("self_attn", ("o_proj",)),
    "qkv": ("self_attn", ("q_proj", "k_proj", "v_proj")),
    "swiglu-mlp": ("mlp", ("gate_proj", "up_proj", "down_proj")),
}


@dataclass(frozen=True)
class Host:
    """Something a patcher can be called on, and the sample's block in it."""

    model: nn.Module
    block: nn.Module
    sample: nn.Module  # the sample's own block

    def value(self, given: Given) -> Any:
        """What an argument stands for here."""
        if not given.role:
            return given.value
        peft_config = getattr(self.model, "peft_config", None) or {}
        return {
            MODEL: self.model,
            BLOCK: self.block,
            CLASS: type(self.block),
            CONFIG: getattr(self.model, "config", None),
            LORA_CONFIG: next(iter(peft_config.values()), None),
            ADAPTER: "default",
        }[given.role]

    def call(self, function: Callable[..., Any], call: Call) -> Any:
        """The function's result."""
        named = {name: self.value(given) for name, given in call.named}
        return function(*(self.value(given) for given in call.positional), **named)


def sample_host(kind: str, model: nn.Module) -> Host:
    """The sample model as it is."""
    block = model.get_submodule(KINDS[kind].block)
    return Host(model, block, block)


def llama_host(kind: str, model: nn.Module) -> Host:
    """A Llama of one layer, wrapped by PEFT, with the sample's layers in the places of its own.

    Raises ImportError without transformers.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 12}
    config = LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
    holder, names = LLAMA_PLACES[kind]
    wrapped = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=2, target_modules=list(names)))
    wrapped.to(next(model.parameters()).device)
    block = wrapped.get_base_model().model.layers[0].get_submodule(holder)
    block.train(model.training)
    sample = model.get_submodule(KINDS[kind].block)
    children = [sample] if kind == "linear" else [sample.get_submodule(name) for name in KINDS[kind].projections]
    for name, child in zip(names, children, strict=True):
        setattr(block, name, child)
    return Host(wrapped, sample if kind == "linear" else block, sample)


HOSTS = {"the sample model": sample_host, "a Llama wrapped by PEFT": llama_host}
