"""Everything that a backward reads goes through `save_for_backward`, is read once, and nothing stays on `ctx`.

Checkpointing, offloading and streaming all work through saved-tensor hooks. A tensor that goes around them is
the one of the forward, whatever became of its memory since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.instruments import assert_parity, mean_of_squares, outputs_of, random_dy

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=attrgetter("name"))
each_base = pytest.mark.parametrize("base", ["dense", "nf4", "nf4-nested"])


def tensors_under(value: Any, seen: set[int]) -> Iterator[Tensor]:
    """Every tensor reachable from `value` through containers, attributes, bound methods and closures."""
    if id(value) in seen or isinstance(value, (type, ModuleType)):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
        return
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts += value
    elif isinstance(value, MethodType):
        parts += [value.__self__, value.__func__]
    elif isinstance(value, FunctionType):
        parts += [cell.cell_contents for cell in value.__closure__ or ()] + [value.__defaults__]
    parts.append(getattr(value, "__dict__", None))
    for part in parts:
        yield from tensors_under(part, seen)


@each_kernel
@each_base
def test_no_tensor_stays_on_ctx(kernel: KernelInfo, base: str) -> None:
    model, x = build(kernel, Sample(base=base))
    kernel.patch(model)
    for out in outputs_of(model(x)):
        assert type(out.grad_fn).__name__ == kernel.node
        assert not list(tensors_under(getattr(out.grad_fn, "__dict__", {}), set()))


@each_kernel
@each_base
def test_each_saved_tensor_is_read_once(kernel: KernelInfo, base: str) -> None:
    """Non-reentrant checkpointing refuses a second read."""
    model, x = build(kernel, Sample(base=base))
    kernel.patch(model)
    kept: list[Tensor] = []
    reads: Counter[int] = Counter()

    def pack(tensor: Tensor) -> int:
        kept.append(tensor)
        return len(kept) - 1

    def unpack(handle: int) -> Tensor:
        reads[handle] += 1
        return kept[handle]

    with saved_tensors_hooks(pack, unpack):
        outputs = outputs_of(model(x))
        torch.autograd.backward(outputs, random_dy(outputs, seed=1))
    assert kept and set(reads.values()) == {1}


def overwrite(model: nn.Module, x: Tensor) -> None:
    """Fills X, every parameter and every tensor of the quant states with something else, unseen by autograd."""
    tensors = [x, *model.parameters()]
    for module in model.modules():
        state = getattr(getattr(module, "weight", None), "quant_state", None)
        for part in (state, getattr(state, "state2", None)):
            tensors += [value for value in vars(part or object).values() if isinstance(value, Tensor)]
    for tensor in tensors:
        tensor.data.fill_(3)


@each_kernel
@each_base
def test_the_backward_is_right_after_everything_that_the_forward_read_was_overwritten(
    kernel: KernelInfo, base: str, step: Callable[..., dict[str, Tensor]]
) -> None:
    """The hooks keep copies, as offloading does: what didn't pass through them is read as it is now."""
    model, x = build(kernel, Sample(base=base, bias=False, ranks=(3,) * len(kernel.projections)))
    want = step(model, x)
    kernel.patch(model)
    with saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda copy: copy):
        outputs = outputs_of(model(x))
    dy = random_dy(outputs, seed=17)
    overwrite(model, x)
    torch.autograd.backward(outputs, dy)
    grads = {f"d {name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    got = {"dX": x.grad, **grads}
    assert_parity(got, {name: want[name] for name in want if "out" not in name}, rtol=1e-5, atol=0)


@each_kernel
def test_a_second_derivative_is_refused(kernel: KernelInfo) -> None:
    """The backward's own products are invisible to autograd: a second derivative would be silently wrong."""
    model, x = build(kernel, Sample(bias=False, ranks=(3,) * len(kernel.projections)))
    kernel.patch(model)
    loss = mean_of_squares(outputs_of(model(x)))
    (dX,) = torch.autograd.grad(loss, x, create_graph=True)
    refusal = ""
    try:
        dX.square().sum().backward()
    except RuntimeError as error:
        refusal = str(error)
    assert "once_differentiable" in refusal
