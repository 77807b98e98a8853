"""The data that mutations are made of: roles in, mutants out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from fastlora_verify.mutations.kernel_view import KernelView
    from fastlora_verify.mutations.source import Edit, ParsedModule


@dataclass(frozen=True)
class KernelRoles:
    """Where a kernel's parts stand, as scopes `package.module:outer.inner`. Data from the target file."""

    name: str
    kind: str  # "linear" | "qkv" | "swiglu-mlp" | "other"
    function: str  # the autograd Function's class
    entries: tuple[str, ...]  # the patched forwards
    guards: tuple[str, ...]  # functions that decide whether PEFT must run
    helpers: tuple[str, ...]  # functions that forward and backward call
    patcher: str  # empty: none in the target
    unpatcher: str
    node: str  # grad_fn name of the kernel's output
    owner: tuple[str, ...] = ()  # the classes whose forward the entries replace, the target's or a library's
    patch_call: str = ""  # how the patcher is called, `patch(model, config)`; empty: its signature says


@dataclass(frozen=True)
class Probes:
    """Lines (1-based, of the mutated text) whose execution is recorded per test."""

    reached: tuple[int, ...]  # first statements of the mutated scope
    triggered: tuple[int, ...]  # the changed line, or the body behind an inserted condition


@dataclass(frozen=True)
class Changed:
    """One file of a mutant."""

    path: str  # relative to the scratch copy
    source: str | None  # the whole mutated text; None: the file is gone
    probes: Probes


@dataclass(frozen=True)
class Mutant:
    """One change of the target's source, of one file as a rule."""

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
    also: tuple[Changed, ...] = ()  # further files that change along with it
    options: tuple[str, ...] = ()  # words of the command line that make it, where its name alone does not

    @property
    def changes(self) -> tuple[Changed, ...]:
        """Every file that it changes."""
        return (Changed(self.path, self.source, self.probes), *self.also)


@dataclass(frozen=True)
class Site:
    """A place in a target where a mutation applies, with the edits that make the mutant."""

    module: ParsedModule
    scope: str  # dotted, inside the module
    what: str  # from the site's content; never a running number
    node: cst.CSTNode  # the original code that changes: its line is the mutant's
    edits: tuple[Edit, ...]
    gist: str


@dataclass(frozen=True)
class Example:
    """Code before and after, put into a part of a small kernel (`example_kernels`)."""

    where: str  # the part, as it is named there: "entry", "forward", "dA", "patcher", …
    before: str
    after: str | None  # None: the mutation leaves this code alone
    kernel: str = "linear"  # "linear" | "swiglu" | "qkv" | "instrument"

    def __post_init__(self) -> None:
        for name in ("before", "after"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, textwrap.dedent(text).strip("\n"))


@dataclass(frozen=True)
class Mutation:
    """A catalogue entry: one named way to be wrong."""

    id: str
    family: str
    fault: str  # one sentence: what is wrong in the mutant
    imitates: str  # which real fault, and where it was seen
    seen_by: str  # the oracle or the kind of test that sees it
    find: Callable[[KernelView], Iterator[Site]]
    absent: str  # why a kernel can be without a site
    kinds: frozenset[str] = frozenset({"linear", "qkv", "swiglu-mlp", "other"})
    needs: str = "cpu"  # "cuda" if only a card can show it
    examples: tuple[Example, ...] = ()
    origin: str = ""  # where it comes from, if it is none of the catalogue's


@dataclass(frozen=True)
class NoSite:
    """A mutation that found no place in a kernel, with the reason."""

    mutation: str
    kernel: str
    reason: str
