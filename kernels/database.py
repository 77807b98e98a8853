"""The reference kernels, declared: one entry a kernel."""

from __future__ import annotations

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.linear import patch_linear, unpatch_linear

KERNELS: tuple[KernelInfo, ...] = (
    KernelInfo(
        name="linear",
        kind="linear",
        node="FusedLoraLinearBackward",
        patch=patch_linear,
        unpatch=unpatch_linear,
        projections=("proj",),
    ),
)
