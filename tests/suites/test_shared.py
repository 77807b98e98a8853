"""What the three kernels share: a projection read, a packed weight dequantised, a LoRA term added."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from bitsandbytes.nn import Linear4bit
from torch import Tensor, nn

from fastlora_verify.kernels.projection import ProjectionState, projection_state
from fastlora_verify.kernels.quant import dense_weight
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.kernels.scaled_add import scaled_lora_add


def read(proj: nn.Module, x: Tensor, **how: Any) -> ProjectionState:
    """The projection as a kernel reads it."""
    state = projection_state(proj, x, **how)
    assert not isinstance(state, str), state
    return state


@pytest.mark.parametrize("base", ["dense", "nf4", "nf4-nested", "fp4"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_a_state_holds_the_layers_own_tensors(base: str, bias: bool) -> None:
    model, x = build("linear", Sample(base=base, bias=bias))
    proj: Any = model.get_submodule("proj")
    state = read(proj, x)
    assert state.weight is proj.base_layer.weight
    assert state.bias is proj.base_layer.bias
    assert state.A is proj.lora_A["default"].weight
    assert state.B is proj.lora_B["default"].weight
    assert state.scaling == proj.scaling["default"] == 7 / 3
    assert state.dropout_p == 0


def test_a_projection_without_an_adapter_has_none() -> None:
    model, x = build("linear", Sample())
    state = read(model.get_submodule("proj.base_layer"), x)
    assert state.A is None and state.B is None


@pytest.mark.parametrize("training, p", [(True, 0.25), (False, 0.0)])
def test_dropout_counts_in_training_alone(training: bool, p: float) -> None:
    model, x = build("linear", Sample(dropout=0.25))
    model.train(training)
    assert read(model.get_submodule("proj"), x, allow_dropout=True).dropout_p == p
    assert projection_state(model.get_submodule("proj"), x) == "lora_dropout=0.25"


@pytest.mark.parametrize("base", ["nf4", "nf4-nested", "fp4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("streamed", [False, True], ids=["resident", "streamed"])
def test_a_packed_weight_is_dequantised_by_its_own_state(
    base: str, dtype: torch.dtype, streamed: bool, device: str
) -> None:
    """Streamed: a bare view of the codes carries no state; the module's own is asked."""
    model, x = build("linear", Sample(base=base, device=device, widths=(40, 36)))
    layer: Any = model.get_submodule("proj.base_layer")
    want = dequantize_4bit(layer.weight.data, layer.weight.quant_state).to(dtype)
    if streamed:
        layer.weight = nn.Parameter(layer.weight.data.clone(), requires_grad=False)
        assert not hasattr(layer.weight, "quant_state")
    state = read(layer, x)
    got = dense_weight(state.weight, state.quant.tensors, state.quant.meta, dtype)
    assert got.dtype == dtype and got.shape == (36, 40)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("quant_type", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
@pytest.mark.parametrize("blocksize", [64, 128])
def test_every_setting_of_a_state_is_kept(quant_type: str, nested: bool, blocksize: int) -> None:
    """Block size, code, nesting and its offset: each changes the numbers."""
    out, width = (64, 512) if nested else (8, 256)  # rows of several blocks, and more than one block of 256 blocks
    weight = torch.randn(out, width, generator=torch.Generator().manual_seed(2)) + 1
    packed, kept = quantize_4bit(weight, blocksize=blocksize, compress_statistics=nested, quant_type=quant_type)
    layer: Any = Linear4bit(width, out, bias=False, quant_type=quant_type)
    layer.weight = nn.Parameter(packed, requires_grad=False)
    layer.quant_state = kept
    state = read(layer, torch.ones(1, width))
    got = dense_weight(state.weight, state.quant.tensors, state.quant.meta, torch.float32)
    torch.testing.assert_close(got, dequantize_4bit(packed, kept))


def test_a_dense_weight_is_itself() -> None:
    model, x = build("linear", Sample())
    state = read(model.get_submodule("proj"), x)
    assert dense_weight(state.weight, *state.quant, torch.float32) is state.weight


@pytest.mark.parametrize("compute", [None, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_4_bit_layer_computes_in_the_dtype_that_it_would_itself(
    compute: torch.dtype | None, dtype: torch.dtype
) -> None:
    """Chosen, or settled by its first input; the output is the input's. Asking settles it as running does."""
    layers = [Linear4bit(8, 6, compute_dtype=compute).to("cpu").requires_grad_(False) for _ in range(2)]
    x = torch.ones(2, 8, dtype=dtype)
    layers[0](x.requires_grad_())
    state = read(layers[1], x)
    assert state.out_dtype == dtype
    assert state.base_dtype == (layers[0].compute_dtype or dtype)
    assert layers[1].compute_dtype == layers[0].compute_dtype
    assert layers[1].compute_type_is_set == layers[0].compute_type_is_set


OUT, HIDDEN, B = (
    torch.tensor([[256.0, 1.0]]),
    torch.tensor([[1.0, 2.0]]),
    torch.tensor([[0.5, 0.25], [3.0, -1.0]]),
)


@pytest.mark.parametrize("out", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lora", [torch.float64, torch.float32, torch.bfloat16])
def test_a_lora_term_is_scaled_and_added_in_the_dtype_of_the_base(out: torch.dtype, lora: torch.dtype) -> None:
    got = scaled_lora_add(OUT.to(out), HIDDEN.to(lora), B.to(lora), 1.5)
    assert got.dtype == out
    assert got.tolist() == [[257.5, 2.5]] or out == torch.bfloat16


def test_a_lora_term_is_rounded_with_the_sum() -> None:
    """256 + 1.5 rounds to 258 in bf16; a term of 1.498 that was rounded to 1.5 before would too, 1.002 + 256 not."""
    out = torch.tensor([[256.0]], dtype=torch.bfloat16)
    for term, want in ((1.0 + 2**-10, 258.0), (1.0 - 2**-10, 256.0)):
        got = scaled_lora_add(out, torch.tensor([[term]]), torch.ones(1, 1), 1.0)
        assert got.item() == want
