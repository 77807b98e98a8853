"""A target as data: what is copied, what is mutated, how its tests run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastlora_verify.mutations.base import KernelRoles


@dataclass(frozen=True)
class Allowance:
    """A survivor that the target's table allows, with its written reason."""

    mutant: str  # a mutant's name, `*` allowed as wildcard
    reason: str


@dataclass(frozen=True)
class Target:
    """A source tree under review."""

    name: str
    file: Path  # the TOML file that describes it
    root: Path | None  # folder copied whole (tracked and untracked files, not ignored ones); None: only `place`
    place: tuple[tuple[str, Path], ...]  # (folder in the scratch copy, folder on disk)
    source_roots: tuple[str, ...]  # relative to the copy; first on the child's path
    modules: tuple[str, ...]  # dotted names of the modules that mutations look into
    instruments: tuple[str, ...]  # modules of test helpers and oracles, for the family of that name
    tests: tuple[str, ...]  # relative to the copy; empty: it can be listed, not run
    pytest_args: tuple[str, ...]
    gpu_marker: str
    env: tuple[tuple[str, str], ...]
    python: str | None
    kernels: tuple[KernelRoles, ...]
    allowances: tuple[Allowance, ...]
    include: tuple[str, ...] = ()  # paths and patterns below root: ignored files that the copy has nevertheless
