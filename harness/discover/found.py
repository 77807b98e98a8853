"""What reading a repository found: kernels with their parts, tests, and what is unsure."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastlora_verify.mutations.base import KernelRoles


@dataclass(frozen=True)
class FoundKernel:
    """A kernel's roles, and in words what the reader was not sure of."""

    roles: KernelRoles
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """A repository as a target."""

    name: str
    source_roots: tuple[str, ...]
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    pytest_args: tuple[str, ...]
    gpu_marker: str
    kernels: tuple[FoundKernel, ...]
    doubts: tuple[str, ...] = field(default=())
