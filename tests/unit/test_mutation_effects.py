"""Each mutant of a running kernel changes what its name says, and nothing else.

The kernels are the example kernels, as they are and written in ways that no pattern expects. The mutant's step is
compared with the step of the kernel that it was made from, in float64: what moved is what the mutation broke.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from odd_kernels import ODD_KERNELS, Odd
from reference_copy import ReferenceCopy
from reference_plan import reference, reference_plan
from torch import Tensor, nn

from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.mutations.base import KernelRoles, Mutant
from fastlora_verify.mutations.example import plan_template
from fastlora_verify.mutations.example_kernels import KERNELS, MODULE
from fastlora_verify.mutations.plan import Plan

TEXTS = {name: Odd(name) for name, (_, roles) in KERNELS.items() if roles is not None} | ODD_KERNELS
RANKS = {"linear": (3,), "qkv": (3, 3, 3), "swiglu": (3, 3, 3)}  # equal: a sibling's dA must fit
SIBLINGS = {
    "linear": ("proj",),
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "swiglu": ("gate_proj", "up_proj", "down_proj"),
}
BEFORE_DOWN = {f"{p}.lora_{m}" for p in ("gate_proj", "up_proj") for m in "AB"}

Results = dict[str, Tensor]


@cache
def plan(name: str) -> Plan:
    return plan_template(TEXTS[name].kernel, TEXTS[name].text)


def roles_of(name: str) -> KernelRoles:
    roles = KERNELS[TEXTS[name].kernel][1]
    assert roles is not None
    return roles


def step(name: str, source: str, sample: Sample, dropout: float = 0.0) -> tuple[Results, bool]:
    """Outputs and gradients of a patched model, and whether a kernel made every output."""
    roles = roles_of(name)
    module: dict[str, Any] = {"__name__": MODULE}
    exec(compile(source, "kernel.py", "exec"), module)
    return patched_step(roles, module[roles.patcher.partition(":")[2]], sample, dropout)


def patched_step(
    roles: KernelRoles, patch: Callable[[nn.Module], int], sample: Sample, dropout: float = 0.0
) -> tuple[Results, bool]:
    model, x = build(roles.kind, sample)
    if dropout:
        for layer in model.modules():
            if hasattr(layer, "lora_dropout"):
                layer.lora_dropout["default"] = nn.Dropout(dropout)
    patch(model)
    x = x.detach().clone().requires_grad_()
    torch.manual_seed(5)
    out: Any = model(x)
    outs = out if isinstance(out, tuple) else (out,)
    torch.stack([(o.double() * torch.linspace(-1, 2, o.numel()).reshape(o.shape)).sum() for o in outs]).sum().backward()
    assert x.grad is not None
    results = {"x": x.grad} | {f"out{i}": o.detach() for i, o in enumerate(outs)}
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            results[key.removeprefix("mlp.").removeprefix("attn.").replace(".default.weight", "")] = parameter.grad
    return results, all(type(o.grad_fn).__name__ == roles.node for o in outs)


def changed(got: Results, want: Results) -> set[str]:
    assert got.keys() == want.keys()
    return {key for key, exact in want.items() if not torch.allclose(got[key], exact, rtol=1e-7, atol=1e-10)}


def about(kernel: str, mutant: Mutant) -> set[str]:
    """The projections that a mutant's name speaks of."""
    what = mutant.name.rpartition("[")[2].rstrip("]") if mutant.name.endswith("]") else ""
    return {s for s in SIBLINGS[kernel] if s in what} or set(SIBLINGS[kernel])


def allowed(kernel: str, mutant: Mutant) -> tuple[set[str], bool]:
    """(what may move, whether all of it must)."""
    ident, names = mutant.mutation, about(kernel, mutant)
    outs = {"out0", "out1", "out2"} if kernel == "qkv" else {"out0"}
    after = {"x", *BEFORE_DOWN, "down_proj.lora_A", "down_proj.lora_B"} if kernel == "swiglu" else set()
    if ident.endswith("-in-da") and ident.startswith("scaling"):
        return {f"{n}.lora_A" for n in names}, True
    if ident.endswith("-in-db"):
        return {f"{n}.lora_B" for n in names}, True
    if ident.startswith("scaling") and ident.endswith("-in-dx"):
        return {"x", *(BEFORE_DOWN if names == {"down_proj"} else ())}, True
    exact = {
        "lora-term-dropped-from-dx": {"x"},
        "dx-lacks-a-projection": {"x"},
        "lora-term-dropped-from-dm": {"x", *BEFORE_DOWN},
        "sibling-da-swapped": {f"{n}.lora_A" for n in names},
        "silu-slope-term-dropped": {"x", "gate_proj.lora_A", "gate_proj.lora_B"},
        "silu-slope-dtype-lowered": {"x", "gate_proj.lora_A", "gate_proj.lora_B"},
    }
    if ident in exact:
        return exact[ident], True
    if (ident.endswith("-in-forward") and ident.startswith("scaling")) or ident == "bias-dropped":
        return outs | after, False
    return set(), True


FAMILIES = {"mathematics", "precision", "memory and streaming"}


def check(kernel: str, mutant: Mutant, got: Results, want: Results) -> None:
    moved, (may, must) = changed(got, want), allowed(kernel, mutant)
    assert moved == may if must else moved & {"out0", "out1", "out2"} and moved <= may, (mutant.name, moved)


@pytest.mark.parametrize("name", TEXTS)
def test_a_mutant_moves_what_its_name_says(name: str) -> None:
    kernel = TEXTS[name].kernel
    sample = Sample(dtype="float64", shape=(2, 3), ranks=RANKS[kernel])
    want, by_kernel = step(name, TEXTS[name].text, sample)
    assert by_kernel
    mutants = [m for m in plan(name).mutants if m.family in FAMILIES]
    assert len(mutants) >= 20
    for mutant in mutants:
        got, still_by_kernel = step(name, mutant.source, sample)
        check(kernel, mutant, got, want)
        assert still_by_kernel, mutant.name


@pytest.mark.parametrize("kernel", SIBLINGS)
def test_a_mutant_of_a_reference_kernel_moves_what_its_name_says(kernel: str, tmp_path: Path) -> None:
    target, sources = reference()
    roles = next(k for k in target.kernels if k.name == kernel)
    copy = ReferenceCopy(tmp_path, sources)
    sample = Sample(dtype="float64", shape=(2, 3), ranks=RANKS[kernel])

    def run(mutant: Mutant | None) -> tuple[Results, bool]:
        with copy.kernel(kernel, mutant) as module:
            return patched_step(roles, getattr(module, roles.patcher.partition(":")[2]), sample)

    want, by_kernel = run(None)
    assert by_kernel
    mutants = [m for m in reference_plan().mutants if kernel in m.kernels and m.family in FAMILIES]
    assert len(mutants) >= 25
    for mutant in mutants:
        got, still_by_kernel = run(mutant)
        check(kernel, mutant, got, want)
        assert still_by_kernel, mutant.name


@pytest.mark.parametrize("name", [n for n, odd in TEXTS.items() if odd.kernel == "linear"])
def test_what_dropout_loses_is_missing_from_one_gradient(name: str) -> None:
    sample = Sample(dtype="float64", shape=(2, 3))
    want, by_kernel = step(name, TEXTS[name].text, sample, dropout=0.4)
    assert by_kernel
    for mutant in plan(name).mutants:
        if mutant.mutation.startswith(("dropout-mask", "dropout-rescale")):
            got, _ = step(name, mutant.source, sample, dropout=0.4)
            assert changed(got, want) == {"proj.lora_A" if mutant.mutation.endswith("-da") else "x"}, mutant.name


@pytest.mark.parametrize("name", [n for n, odd in TEXTS.items() if odd.kernel != "linear"])
def test_a_siblings_state_moves_what_is_computed_with_it(name: str) -> None:
    sample = Sample(dtype="fp32", base="nf4-nested", shape=(2, 3), square=True)
    want, _ = step(name, TEXTS[name].text, sample)
    for mutant in plan(name).mutants:
        if mutant.mutation in {"sibling-state-in-forward", "sibling-state-in-backward"}:
            got, by_kernel = step(name, mutant.source, sample)
            moved = changed(got, want)
            assert by_kernel and moved, mutant.name
            if mutant.mutation.endswith("forward"):
                assert moved & {"out0", "out1", "out2"}, mutant.name
            else:
                assert moved == {"x"}, (mutant.name, moved)


HANDED_BACK = {"delegates-always", "delegates-on-3d", "delegates-with-bias", "delegates-unless-4-byte"}


@pytest.mark.parametrize("name", TEXTS)
def test_a_narrowed_kernel_gives_peft_s_numbers_and_only_the_node_says_so(name: str) -> None:
    sample = Sample(dtype="float64", shape=(2, 3), ranks=RANKS[TEXTS[name].kernel])
    want, _ = step(name, TEXTS[name].text, sample)
    tried = set()
    for mutant in plan(name).mutants:
        if mutant.family == "delegation" and not mutant.scope.endswith(("keys", "values")):
            got, by_kernel = step(name, mutant.source, sample)
            assert all(torch.allclose(got[k], want[k], rtol=1e-6, atol=1e-6) for k in want), mutant.name
            assert by_kernel == (mutant.mutation not in HANDED_BACK), mutant.name
            tried.add(mutant.mutation)
    assert tried >= HANDED_BACK


def test_every_odd_kernel_has_about_the_sites_of_the_plain_one() -> None:
    for name, odd in ODD_KERNELS.items():
        assert plan(name).faults == (), name
        assert len(plan(name).mutants) >= 0.9 * len(plan(odd.kernel).mutants), name
