"""The SwiGLU block: which blocks are one. The block's own `act_fn` and the configs above it are asked, each alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu
from transformers.activations import ACT2FN

from fastlora_verify.kernels.linear import patch_linear
from fastlora_verify.kernels.reasons import delegation_reasons
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.kernels.swiglu import patch_swiglu

Nodes = Callable[[object], list[str]]
NODE = "FusedLoraSwiGLUBackward"


def left_to_peft(model: nn.Module, x: Tensor, nodes: Nodes, reason: str, path: str = "mlp") -> None:
    """Not patched, told why, and what it was."""
    want = model(x)
    assert patch_swiglu(model) == 0
    assert delegation_reasons(model)[path] == f"PEFT: {reason}"
    got = model(x)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert nodes(got) != [NODE]


def taken(model: nn.Module, x: Tensor, nodes: Nodes) -> None:
    """Patched, and computed by the kernel as PEFT does."""
    want = model(x)
    assert patch_swiglu(model) == 1
    got = model(x)
    assert nodes(got) == [NODE]
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "act_fn", [nn.SiLU(), ACT2FN["silu"], ACT2FN["swish"], silu], ids=["nn.SiLU", "silu", "swish", "functional.silu"]
)
def test_a_block_that_calls_silu_is_taken(act_fn: Any, nodes: Nodes) -> None:
    model, x = build("swiglu-mlp", Sample())
    mlp = model.get_submodule("mlp")
    del mlp.act_fn
    mlp.act_fn = act_fn
    taken(model, x, nodes)


class Scaled(nn.SiLU):
    """A SiLU with something more to it."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "act_fn, reason",
    [
        (nn.GELU(), "act_fn is GELU"),
        (nn.ReLU(), "act_fn is ReLU"),
        (Scaled(), "act_fn is Scaled"),
        (gelu, "act_fn is builtin_function_or_method"),
    ],
    ids=["gelu", "relu", "subclass", "function"],
)
def test_a_block_with_another_activation_is_left_to_peft_whatever_the_config_says(
    act_fn: Any, reason: str, nodes: Nodes
) -> None:
    model, x = build("swiglu-mlp", Sample())
    mlp = model.get_submodule("mlp")
    del mlp.act_fn
    mlp.act_fn = act_fn
    left_to_peft(model, x, nodes, reason)


def test_a_block_without_an_act_fn_is_left_to_peft(nodes: Nodes) -> None:
    """An activation written inline may be anything."""
    model, x = build("swiglu-mlp", Sample())
    mlp = model.get_submodule("mlp")
    del mlp.act_fn
    mlp.__class__ = type(
        "Inline", (nn.Module,), {"forward": lambda s, x: s.down_proj(gelu(s.gate_proj(x)) * s.up_proj(x))}
    )
    left_to_peft(model, x, nodes, "no act_fn")


def test_a_block_with_another_layer_in_it_is_left_to_peft(nodes: Nodes) -> None:
    """A norm or a dropout between the products: a kernel would leave it out."""
    model, x = build("swiglu-mlp", Sample())
    mlp: Any = model.get_submodule("mlp")
    mlp.norm = nn.LayerNorm(mlp.down_proj.in_features)
    mlp.__class__ = type(
        "Normed",
        (nn.Module,),
        {"forward": lambda s, x: s.down_proj(s.norm(s.act_fn(s.gate_proj(x)) * s.up_proj(x)))},
    )
    left_to_peft(model, x, nodes, "other layers in the block: norm")


def test_an_activation_exchanged_after_patching_is_left_to_peft(nodes: Nodes) -> None:
    model, x = build("swiglu-mlp", Sample())
    before = model(x)
    assert patch_swiglu(model) == 1
    model.get_submodule("mlp").act_fn = nn.GELU()
    got = model(x)
    assert nodes(got) != [NODE]
    assert not torch.allclose(got, before)
    assert delegation_reasons(model)["mlp"] == "PEFT: act_fn is GELU"


SILU_CONFIGS = [
    SimpleNamespace(hidden_act="silu"),
    SimpleNamespace(hidden_act="swish"),
    SimpleNamespace(text_config=SimpleNamespace(hidden_act="silu")),
    {"hidden_act": "silu"},
]
OTHER_CONFIGS = [
    (SimpleNamespace(hidden_act="gelu"), "hidden_act=gelu"),
    (SimpleNamespace(hidden_act="gelu_pytorch_tanh"), "hidden_act=gelu_pytorch_tanh"),
    (SimpleNamespace(text_config=SimpleNamespace(hidden_act="gelu")), "hidden_act=gelu"),
    (SimpleNamespace(hidden_act="silu", text_config=SimpleNamespace(hidden_act="gelu")), "hidden_act=gelu"),
    ({"hidden_act": "relu"}, "hidden_act=relu"),
    (SimpleNamespace(hidden_activation="silu"), "no hidden_act in the config"),
    ({}, "no hidden_act in the config"),
    (None, "no hidden_act in the config"),
]


@pytest.mark.parametrize("config", SILU_CONFIGS, ids=str)
def test_a_config_that_says_silu_lets_the_block_be_taken(config: Any, nodes: Nodes) -> None:
    model, x = build("swiglu-mlp", Sample())
    model.config = config
    taken(model, x, nodes)


@pytest.mark.parametrize("config, reason", OTHER_CONFIGS, ids=str)
def test_a_config_that_does_not_say_silu_leaves_a_silu_block_to_peft(config: Any, reason: str, nodes: Nodes) -> None:
    """The block's own activation is SiLU: the config alone decides here."""
    model, x = build("swiglu-mlp", Sample())
    model.config = config
    left_to_peft(model, x, nodes, reason)


def test_a_config_between_the_model_and_the_block_counts(nodes: Nodes) -> None:
    inner, x = build("swiglu-mlp", Sample())
    inner.config = SimpleNamespace(hidden_act="gelu")
    model = nn.Sequential(inner)
    model.config = SimpleNamespace(hidden_act="silu")
    left_to_peft(model, x, nodes, "hidden_act=gelu", path="0.mlp")


@pytest.mark.parametrize("path", ["experts.0", "block_sparse_moe.experts.1", "shared_expert", "shared_experts"])
def test_an_expert_is_left_to_peft(path: str, nodes: Nodes) -> None:
    """Experts see routed rows. The same block elsewhere is taken."""
    model, x = build("swiglu-mlp", Sample())
    mlp = model.get_submodule("mlp")
    want = mlp(x)
    outer = nested(path, mlp)
    outer.config = SimpleNamespace(hidden_act="silu")
    assert patch_swiglu(outer) == 0
    assert delegation_reasons(outer)[path] == "PEFT: MoE expert"
    torch.testing.assert_close(mlp(x), want, rtol=0, atol=0)
    assert nodes(mlp(x)) != [NODE]
    dense = nested(path.replace("expert", "layer"), mlp)
    dense.config = outer.config
    assert patch_swiglu(dense) == 1
    assert nodes(mlp(x)) == [NODE]


def nested(path: str, module: nn.Module) -> nn.Module:
    """A module with `module` at `path`."""
    for step in reversed(path.split(".")):
        parent = nn.Module()
        parent.add_module(step, module)
        module = parent
    return module


@pytest.mark.parametrize("how", ["positional", "keyword"])
def test_extra_arguments_are_the_blocks_own(how: str, nodes: Nodes) -> None:
    """A block may take more than x; its own forward knows what to do with it."""
    model, x = build("swiglu-mlp", Sample())
    mlp: Any = model.get_submodule("mlp")
    plain = type(mlp).forward

    class Residual(type(mlp)):  # type: ignore[misc]
        def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
            out: Tensor = plain(self, x)
            return out if residual is None else out + residual

    mlp.__class__ = Residual
    want = mlp(x, x)
    assert patch_swiglu(model) == 1
    got = mlp(x, x) if how == "positional" else mlp(x, residual=x)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert nodes(got) != [NODE]
    assert delegation_reasons(model)["mlp"] == "PEFT: extra call arguments"
    assert nodes(mlp(x)) == [NODE]


def counted(model: nn.Module) -> int | str:
    """How many blocks the patcher takes, or what it raises: it must not trip over modules that are none of its own."""
    try:
        return patch_swiglu(model)
    except Exception as error:
        return repr(error)


def test_an_mlp_of_dense_and_4_bit_layers_has_pefts_dtypes_under_autocast(nodes: Nodes) -> None:
    """down's input is M, in the dtype of gate's and up's output: a 4-bit down returns that dtype, and not x's."""
    model, x = build("swiglu-mlp", Sample(base="nf4"))
    dense: Any = build("swiglu-mlp", Sample()).model
    mlp: Any = model.get_submodule("mlp")
    mlp.gate_proj, mlp.up_proj = dense.mlp.gate_proj, dense.mlp.up_proj
    mlp.down_proj.base_layer.compute_dtype = torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = model(x)
        assert patch_swiglu(model) == 1
        got = model(x)
    assert nodes(got) == [NODE]
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2e-2, atol=0.5)


@pytest.mark.parametrize("missing", ["gate_proj", "up_proj", "down_proj"])
def test_a_module_with_two_of_the_three_children_is_no_swiglu(missing: str) -> None:
    model, _ = build("swiglu-mlp", Sample())
    mlp = model.get_submodule("mlp")
    delattr(mlp, missing)
    assert counted(model) == 0
    assert "mlp" not in delegation_reasons(model)
    assert patch_linear(model) == 2


def test_a_llama_trains_through_the_kernels_as_through_peft(nodes: Nodes) -> None:
    """A real model as `get_peft_model` leaves it: fp32 adapters on a bf16 base, no bias, config and layers its own."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from fastlora_verify.kernels.qkv import patch_qkv

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=3, lora_alpha=7, target_modules=targets))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.2)
    tokens = torch.arange(10).view(2, 5)

    def step() -> dict[str, Tensor]:
        model.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return {"loss": loss.detach()} | {
            name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
        }

    want = step()
    assert (patch_swiglu(model), patch_qkv(model), patch_linear(model)) == (2, 2, 2)
    got = step()
    reasons = delegation_reasons(model)
    assert set(reasons.values()) == {"kernel"}
    assert got.keys() == want.keys() and len(got) == 1 + 2 * 2 * 7
    for name in want:
        torch.testing.assert_close(got[name], want[name], rtol=1e-4, atol=1e-6)
