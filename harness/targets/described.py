"""Which kernels the oracles can be asked about: the tree's own database, or what the target describes."""

from __future__ import annotations

from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.targets.sources import on_disk
from fastlora_verify.harness.targets.target import Target

DATABASE = "fastlora_verify/kernels/database.py"
SAMPLED = ("linear", "qkv", "swiglu-mlp")
"""Kinds that there are sample models of."""


def has_kernel_entries(target: Target) -> bool:
    """True if the target's own tree brings a database of kernels: more is declared there than a description says."""
    roots = ("" if root == "." else f"{root}/" for root in target.source_roots)
    return any(on_disk(target, f"{root}{DATABASE}") is not None for root in roots)


def described_kernels(target: Target) -> list[dict[str, str]] | None:
    """The description's kernels as a child wants them; None where the tree has a database."""
    if has_kernel_entries(target):
        return None
    names = ("name", "kind", "node", "patcher", "unpatcher", "patch_call")
    return [{name: getattr(kernel, name) for name in names} for kernel in target.kernels]


def why_not_asked(target: Target) -> str:
    """Why the oracles have nothing to be asked about; empty if they have."""
    kernels = described_kernels(target)
    if kernels is None or any(kernel["kind"] in SAMPLED and kernel["patcher"] for kernel in kernels):
        return ""
    return f"no kernel of the target has a patcher and a kind with sample models ({', '.join(SAMPLED)})"


def check_askable(target: Target) -> None:
    """Raises TargetError where `oracle` would have nothing to say."""
    if reason := why_not_asked(target):
        raise TargetError(target.file, reason)
