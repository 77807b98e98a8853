"""The data that mutations are made of: roles in, mutants out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelRoles:
    """Where a kernel's parts stand, as scopes `package.module:outer.inner`. Data from the target file."""

    name: str
    kind: str  # "linear" | "qkv" | "swiglu-mlp" | "other"
    function: str  # the autograd Function's class
    entries: tuple[str, ...]  # the patched forwards
    guards: tuple[str, ...]  # functions that decide whether PEFT must run
    helpers: tuple[str, ...]  # functions that forward and backward call
    patcher: str
    unpatcher: str
    node: str  # grad_fn name of the kernel's output


@dataclass(frozen=True)
class Probes:
    """Lines (1-based, of the mutated text) whose execution is recorded per test."""

    reached: tuple[int, ...]  # first statements of the mutated scope
    triggered: tuple[int, ...]  # the changed line, or the body behind an inserted condition


@dataclass(frozen=True)
class Mutant:
    """One changed source file of the target."""

    name: str  # `mutation@module:scope[what]`, stable under edits elsewhere
    mutation: str
    family: str
    kernels: tuple[str, ...]  # names of the kernels that it can change
    module: str
    path: str  # of the changed file, relative to the scratch copy
    line: int  # in the original text
    scope: str
    source: str  # the whole mutated text
    diff: str  # unified, from the original
    gist: str  # one line: what the edit is, as a reviewer would write it
    probes: Probes
    new_names: tuple[str, ...]  # names that the mutation brings in
