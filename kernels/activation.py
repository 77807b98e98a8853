"""Whether a gated MLP is a SwiGLU: by its own `act_fn`, and by the configs above it. Both fail closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn.functional import silu
from transformers.activations import SiLUActivation

SILU_MODULES = (nn.SiLU, SiLUActivation)
SILU_NAMES = ("silu", "swish")


def activation_reason(mlp: nn.Module) -> str | None:
    """Why the block's own activation isn't known to be SiLU."""
    act_fn = getattr(mlp, "act_fn", None)
    if act_fn is None:  # an activation written inline may be anything
        return "no act_fn"
    if act_fn is silu:
        return None
    if type(act_fn) not in SILU_MODULES:
        return f"act_fn is {type(act_fn).__name__}"
    return None


def config_reason(model: nn.Module, path: str) -> str | None:
    """Why the configs on the way from `model` to the block at `path` don't say SiLU.

    A config is any module's `config`, or that config's `text_config`. Each that names a `hidden_act` must
    name SiLU, and one must name it: a model whose config has only `hidden_activation` (Gemma 3) is refused.
    """
    named = [act for config in configs_above(model, path) for act in hidden_acts(config)]
    if not named:
        return "no hidden_act in the config"
    for act in named:
        if act not in SILU_NAMES:
            return f"hidden_act={act}"
    return None


def configs_above(model: nn.Module, path: str) -> Iterator[Any]:
    """`config` of `model`, of the module at `path` and of those between, where they have one."""
    module = model
    for step in ("", *path.split(".")) if path else ("",):
        module = getattr(module, step) if step else module
        config = getattr(module, "config", None)
        if config is not None:
            yield config


def hidden_acts(config: Any) -> Iterator[Any]:
    """Every `hidden_act` that a config names, its own and its `text_config`'s."""
    for part in (config, config_field(config, "text_config")):
        act = config_field(part, "hidden_act")
        if act is not None:
            yield act


def config_field(config: Any, name: str) -> Any:
    """A field of a config object, or of a dict (what PEFT gives a model without a config)."""
    if isinstance(config, Mapping):
        return config.get(name)
    return getattr(config, name, None)
