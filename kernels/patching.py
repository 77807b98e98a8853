"""Instance forwards installed and removed, and which kernel owns which module.

A patched module has one thing more than before, an instance attribute `forward` that is a `Patch`; it is also
the mark that the module is patched. Removing it restores class dispatch, or the instance forward that
somebody had installed before. A `Patch` refers to modules and never to tensors or bound methods, so a deep
copy (or a pickle) of a patched model refers to the copy's modules and computes with the copy's weights.

Group kernels (QKV, SwiGLU) own their projections: they take them from the single kernel when they are patched
in, and the single kernel leaves them alone afterwards. Unpatching a group leaves its projections to PEFT;
call `patch_linear` again to give them to the single kernel.

Hooks on a projection's inner modules (base layer, lora_A, …), and on the three projections of a SwiGLU block,
don't fire while a kernel runs; hooks on the patched modules themselves do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MethodType
from typing import Any

from torch import Tensor, nn

EXTRA_ARGUMENTS = "extra call arguments"
NO_ADAPTER = "no adapter on any projection"
QKV_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
SWIGLU_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
GROUP_PROJECTIONS = {"qkv": QKV_PROJECTIONS, "swiglu": SWIGLU_PROJECTIONS}

Forward = Callable[..., Tensor]


@dataclass(eq=False)
class Patch:
    """An instance forward: the entry of a kernel and what the entry needs to know.

    `last_reason` is why the last call was handed back, `None` if the kernel ran (or was never called).
    """

    kernel: str  # "linear" | "qkv" | "swiglu"
    entry: Forward  # entry(patch, x, *args, **kwargs), a function of a module
    module: Any  # whose forward this is; an nn.Module, its children looked up by name
    owner: Any  # the block: the module itself, or the attention that a projection belongs to
    shared: Any = None  # what several entries of one block share
    allow_dropout: bool = False
    replaced: Forward | None = None  # an instance forward that was there before
    last_reason: str | None = None

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.entry(self, x, *args, **kwargs)

    @property
    def original(self) -> Forward:
        """The forward that the module would run without the patch, looked up at each call."""
        if self.replaced is not None:
            return self.replaced
        return MethodType(type(self.module).forward, self.module)


def patch_of(module: nn.Module) -> Patch | None:
    """The patch on a module, of whatever kernel."""
    forward = vars(module).get("forward")
    return forward if isinstance(forward, Patch) else None


def kernel_of(module: nn.Module) -> str | None:
    """Name of the kernel that a module's forward belongs to, or `None`."""
    patch = patch_of(module)
    return None if patch is None else patch.kernel


def install(patch: Patch) -> None:
    """Puts the patch on its module and keeps an instance forward that was there."""
    instance = vars(patch.module)  # past nn.Module.__setattr__, which has nothing to do here
    patch.replaced = instance.get("forward")
    instance["forward"] = patch


def remove(module: nn.Module, kernel: str) -> bool:
    """Takes a patch of `kernel` off a module; False if there is none."""
    patch = patch_of(module)
    if patch is None or patch.kernel != kernel:
        return False
    instance = vars(module)
    del instance["forward"]
    if patch.replaced is not None:
        instance["forward"] = patch.replaced
    return True


def has_children(module: nn.Module, names: tuple[str, ...]) -> bool:
    """Whether every name is a child module."""
    return all(isinstance(getattr(module, name, None), nn.Module) for name in names)


def owned_projections(model: nn.Module) -> Iterator[nn.Module]:
    """Projections of the group kernels that are patched into `model`."""
    for module in model.modules():
        patch = patch_of(module)
        if patch is None or patch.kernel not in GROUP_PROJECTIONS:
            continue
        for name in GROUP_PROJECTIONS[patch.kernel]:
            yield getattr(patch.owner, name)
