"""What the suites share. Fixtures all of it: test files are collected without a package to import helpers from."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.oracles.instruments import outputs_of, random_dy, run_block

torch.set_num_threads(1)  # the tensors are tiny: a second thread costs more than it computes
gc.freeze()  # a full collection would walk every object of the imported libraries: a quarter of a second each

Gradients = dict[str, Tensor]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs a card where there is none."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and none is visible"))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws from a stream of its own: what it finds doesn't depend on which tests ran before."""
    torch.manual_seed(0)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Every device that a test is about."""
    return str(request.param)


@pytest.fixture
def nodes() -> Callable[[Any], list[str]]:
    """What computed each output of a block: the names of the `grad_fn`s."""
    return lambda result: [type(out.grad_fn).__name__ for out in outputs_of(result)]


@pytest.fixture
def step() -> Callable[..., Gradients]:
    """One forward and backward with a random dY, the same for every arm; dtypes are kept."""
    return partial(run_block, dy=partial(random_dy, seed=17), dtype=None)


@pytest.fixture
def arms(step: Callable[..., Gradients]) -> Callable[..., tuple[Gradients, Gradients]]:
    """The same step of the same model, patched and before that unpatched: (the kernel's, PEFT's)."""

    def run(kernel: KernelInfo, model: nn.Module, x: Tensor, **how: Any) -> tuple[Gradients, Gradients]:
        want = step(model, x, **how)
        assert kernel.patch(model) == 1
        return step(model, x, **how), want

    return run
