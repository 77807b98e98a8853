"""Small kernels that examples are put into: right ones, and unlike the reference kernels in every habit.

A part of a kernel that an example may replace stands between `#[ name` and `#] name`. Mutations are planned on the
texts, and tests run them; nothing imports them.
"""

from __future__ import annotations

from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.example_linear import LINEAR
from fastlora_verify.mutations.example_qkv import QKV
from fastlora_verify.mutations.example_swiglu import SWIGLU

INSTRUMENT = '''
import torch

#[ limits
MARGIN = 1.5
NAMES = ("x", "y")
#] limits


def held_bytes(tensors):
    """Bytes of distinct storages."""
    seen = {}
    for tensor in tensors:
        #[ identity
        key = tensor.untyped_storage()._cdata
        #] identity
        seen[key] = tensor.untyped_storage().nbytes()
    return sum(seen.values())


def worst(one, two):
    #[ difference
    gap = (one.double() - two.double()).abs()
    #] difference
    return float(gap.max())


def alike(one, two):
    #[ equality
    return torch.allclose(one, two, rtol=1e-3)
    #] equality
'''


def _roles(name: str, kind: str, function: str, entries: tuple[str, ...], guards: tuple[str, ...]) -> KernelRoles:
    places = [f"{MODULE}:{scope}" for scope in (function, "switch_on", "switch_off")]
    return KernelRoles(
        name=name,
        kind=kind,
        function=places[0],
        entries=tuple(f"{MODULE}:{scope}" for scope in entries),
        guards=tuple(f"{MODULE}:{scope}" for scope in ("plain", "pieces_of", *guards)),
        helpers=tuple(f"{MODULE}:{scope}" for scope in ("joined", "unpacked")),
        patcher=places[1],
        unpatcher=places[2],
        node=f"{function}Backward",
    )


MODULE = "kernel"
KERNELS: dict[str, tuple[str, KernelRoles | None]] = {
    "linear": (LINEAR, _roles("linear", "linear", "One", ("adopt.run",), ())),
    "swiglu": (SWIGLU, _roles("swiglu", "swiglu-mlp", "Gated", ("Block.forward",), ("smooth",))),
    "qkv": (QKV, _roles("qkv", "qkv", "Three", tuple(f"install.{n}" for n in ("queries", "keys", "values")), ())),
    "instrument": (INSTRUMENT, None),
}
