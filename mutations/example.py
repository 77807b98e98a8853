"""Runs an example: its code is put into a part of a small kernel, the mutation planned, and the part read again."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache

from fastlora_verify.mutations.base import Example, Mutation
from fastlora_verify.mutations.example_kernels import KERNELS, MODULE
from fastlora_verify.mutations.instrument_view import InstrumentView
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.plan import Plan, plan_views
from fastlora_verify.mutations.source import SourceFile, TargetSource

PART = re.compile(r"^(?P<pad> *)#\[ (?P<name>.+)\n(?P<body>(?:.*\n)*?) *#\] (?P=name)\n", re.MULTILINE)
MARK = re.compile(r"^ *#[\[\]] .+\n", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What a mutation makes of an example."""

    before: str  # the part as it was planned on
    parts: tuple[str, ...]  # the part in each mutant that changes it
    faults: tuple[str, ...]  # what the mutation made that is no mutant


def run_example(mutation: Mutation, example: Example) -> Outcome:
    """Plans one mutation on one example. Raises `LookupError` where the example names no part."""
    text, _ = KERNELS[example.kernel]
    text = with_part(text, example.where, example.before)
    before = part_of(text, example.where)
    plan = plan_template(example.kernel, text, (mutation,))
    parts = [part_of(mutant.source, example.where) for mutant in plan.mutants]
    return Outcome(before, tuple(part for part in parts if part != before), plan.faults)


def plan_template(kernel: str, text: str, mutations: tuple[Mutation, ...] | None = None) -> Plan:
    """The mutants of an example kernel."""
    views, instruments = _views(kernel, text)
    return plan_views(views, instruments, mutations)


@lru_cache(maxsize=16)  # many mutations have an example of the same text
def _views(kernel: str, text: str) -> tuple[tuple[KernelView, ...], InstrumentView]:
    _, roles = KERNELS[kernel]
    source = TargetSource({MODULE: SourceFile(MODULE, f"{MODULE}.py", text)})
    if roles is None:
        return (), InstrumentView(list(source.modules.values()))
    return (KernelView(source, roles),), InstrumentView([])


def parts(kernel: str) -> dict[str, str]:
    """The parts of an example kernel by name, as they are by default."""
    text, _ = KERNELS[kernel]
    names = re.findall(r"^ *#\[ (.+)$", text, re.MULTILINE)
    return {name: part_of(text, name) for name in names}


def with_part(text: str, name: str, body: str) -> str:
    """The kernel with a part replaced. Raises `LookupError`."""
    match = _find(text, name)
    indented = textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", match["pad"])
    return text[: match.start("body")] + indented + text[match.end("body") :]


def part_of(text: str, name: str) -> str:
    """A part as it stands in the kernel, its indentation and the marks of parts inside it left out."""
    return textwrap.dedent(MARK.sub("", _find(text, name)["body"]))


def _find(text: str, name: str) -> re.Match[str]:
    start = re.search(rf"^ *#\[ {re.escape(name)}$", text, re.MULTILINE)
    match = PART.match(text, start.start()) if start is not None else None
    if match is None:
        raise LookupError(f"no part is named {name!r} among {re.findall(r'#.. (.+)', text)[::2]}")
    return match
