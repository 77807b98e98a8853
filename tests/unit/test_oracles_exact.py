"""The cases of the float64 comparison are what their names say."""

import pytest
import torch
from peft.tuners.lora import LoraLayer

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.samples import Sample
from fastlora_verify.oracles import exact

KERNEL = {info.name: info for info in KERNELS}
CASES = {case.name: case for case in exact.cases(KERNEL["swiglu"])}


def built(name):
    case = CASES[name]
    model, x = exact.made(KERNEL["swiglu"], case, Sample(dtype="float64", **case.sample))
    (dy,) = case.dy((model(x),))
    return model, x, dy


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"dY expanded", "dY zero", "no rows"}))
def test_everything_is_float64_and_dy_is_random(name):
    model, x, dy = built(name)
    assert {tensor.dtype for tensor in (x, dy, *model.parameters())} == {torch.float64}
    assert len(dy.unique()) == dy.numel() and abs(dy.mean()) < dy.std()


def test_what_is_strided_is_not_contiguous_and_has_the_same_values():
    _, x, dy = built("2-D, no bias, X and dY strided")
    assert x.dim() == 2 and not x.is_contiguous() and not dy.is_contiguous()
    assert torch.equal(exact.strided(x.detach().contiguous()), x)


def test_dy_expanded_and_zero():
    assert set(built("dY expanded")[2].stride()) == {0}
    assert built("dY expanded")[2].flatten()[0] not in (0, 1)
    assert not built("dY zero")[2].any()


def test_rows_and_dimensions():
    assert built("3-D, bias")[1].shape[:-1] == (2, 3)
    assert built("4-D")[1].dim() == 4
    assert built("one row")[1].shape[0] == 1
    assert built("no rows")[1].shape[0] == 0
    x = built("a zero row in X")[1]
    assert (x == 0).all(dim=-1).sum() == 1


def test_who_needs_a_gradient():
    for name, part in (("every A frozen", "lora_A"), ("every B frozen", "lora_B")):
        frozen = {n for n, p in built(name)[0].named_parameters() if "lora_" in n and not p.requires_grad}
        assert len(frozen) == 3 and all(part in n for n in frozen)
    assert not CASES["input needs no gradient"].input_grad
    assert not built("eval mode")[0].training and built("3-D, bias")[0].training


def test_scaling_widths_and_ranks():
    layers = [m for m in built("scaling set on the layer")[0].modules() if isinstance(m, LoraLayer)]
    assert all(m.scaling["default"] != m.lora_alpha["default"] / m.r["default"] for m in layers)
    shapes = {p.shape for n, p in built("equal widths")[0].named_parameters() if "lora_" not in n and p.dim() == 2}
    assert {rows == columns for rows, columns in shapes} == {True}
    ranks = {m.r["default"] for m in built("equal ranks")[0].modules() if isinstance(m, LoraLayer)}
    assert len(ranks) == 1
    assert len({m.r["default"] for m in built("3-D, bias")[0].modules() if isinstance(m, LoraLayer)}) == 3


def test_each_projection_is_left_out_once_and_left_alone_once():
    adapted = {case.sample["adapted"] for case in CASES.values() if "adapted" in case.sample}
    gate, up, down = KERNEL["swiglu"].projections
    assert adapted == {(up, down), (gate, down), (gate, up), (gate,), (up,), (down,)}
    assert not [case for case in exact.cases(KERNEL["linear"]) if "adapted" in case.sample]
