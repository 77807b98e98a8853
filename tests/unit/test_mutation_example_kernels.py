"""The kernels that examples are put into are right: they run, and agree with unpatched PEFT, under other names too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from operand_swap import swap
from renaming import rename
from torch import Tensor, nn

from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.example_kernels import KERNELS, MODULE
from fastlora_verify.mutations.source import SourceFile

TEMPLATES = {name: (text, roles) for name, (text, roles) in KERNELS.items() if roles is not None}


def as_it_is(text: str, roles: KernelRoles) -> tuple[str, KernelRoles]:
    return text, roles


def other_names(text: str, roles: KernelRoles) -> tuple[str, KernelRoles]:
    new = rename({MODULE: SourceFile(MODULE, "kernel.py", text)}, (roles,))
    return new.sources[MODULE].text, new.kernels[0]


def other_order(text: str, roles: KernelRoles) -> tuple[str, KernelRoles]:
    return swap(text)[0], roles


def step(model: nn.Module, x: Tensor) -> tuple[dict[str, Tensor], set[str]]:
    """Outputs and gradients of one step, and the nodes of the outputs."""
    x = x.detach().clone().requires_grad_()
    out: Any = model(x)
    outs = out if isinstance(out, tuple) else (out,)
    generator = torch.Generator().manual_seed(3)
    torch.stack([(o.double() * torch.randn(o.shape, generator=generator)).sum() for o in outs]).sum().backward()
    results = {"x": x.grad} | {f"out{i}": o.detach() for i, o in enumerate(outs)}
    results |= {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    return {name: t for name, t in results.items() if t is not None}, {type(o.grad_fn).__name__ for o in outs}


@pytest.mark.parametrize("written", [as_it_is, other_names, other_order])
@pytest.mark.parametrize("name", TEMPLATES)
def test_an_example_kernel_agrees_with_peft(
    name: str, written: Callable[[str, KernelRoles], tuple[str, KernelRoles]]
) -> None:
    text, roles = TEMPLATES[name]
    assert roles is not None
    text, roles = written(text, roles)
    module: dict[str, Any] = {"__name__": MODULE}
    exec(compile(text, "kernel.py", "exec"), module)
    patch, unpatch = (module[scope.partition(":")[2]] for scope in (roles.patcher, roles.unpatcher))
    for dtype, base in (("float64", "dense"), ("fp32", "nf4-nested")):
        model, x = build(roles.kind, Sample(dtype=dtype, base=base, shape=(2, 3)))
        want, unpatched = step(model, x)
        assert patch(model) == 1
        got, nodes = step(model, x)
        assert nodes == {f"{roles.function.partition(':')[2]}Backward"} != unpatched
        assert got.keys() == want.keys()
        for key, exact in want.items():
            torch.testing.assert_close(got[key], exact, rtol=1e-4, atol=1e-4)
        assert unpatch(model) == 1
        assert step(model, x)[1] == unpatched
