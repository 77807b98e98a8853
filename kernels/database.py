"""The reference kernels, declared: one entry a kernel."""

from __future__ import annotations

from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.linear import patch_linear, unpatch_linear
from fastlora_verify.kernels.qkv import patch_qkv, unpatch_qkv
from fastlora_verify.kernels.swiglu import patch_swiglu, unpatch_swiglu

KERNELS: tuple[KernelInfo, ...] = (
    KernelInfo(
        name="linear",
        kind="linear",
        node="FusedLoraLinearBackward",
        patch=patch_linear,
        unpatch=unpatch_linear,
        projections=("proj",),
    ),
    KernelInfo(
        name="qkv",
        kind="qkv",
        node="FusedLoraQKVBackward",
        patch=patch_qkv,
        unpatch=unpatch_qkv,
        projections=("q_proj", "k_proj", "v_proj"),
    ),
    KernelInfo(
        name="swiglu",
        kind="swiglu-mlp",
        node="FusedLoraSwiGLUBackward",
        patch=patch_swiglu,
        unpatch=unpatch_swiglu,
        projections=("gate_proj", "up_proj", "down_proj"),
    ),
)
