"""The oracles' answers on the kernels of a job: the database's of the copy, or those that the target describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastlora_verify.harness.child.place import Job

NODE = "kernel"
"""What a cell of the matrix of calls says where the kernel ran."""

EVERY = "every oracle"
"""Stands for the oracles where they can't even be imported."""


def subjects(job: Job) -> Iterator[tuple[str, Any]]:
    """Each kernel's name, and its KernelInfo or, in words, why it can't be asked about."""
    if job["described"] is None:
        from fastlora_verify.kernels.database import KERNELS

        yield from ((info.name, info) for info in KERNELS)
        return
    from fastlora_verify.harness.child.described import kernels

    yield from kernels(job["described"], job.get("device", "cpu"))


def missing(job: Job) -> str:
    """Why the oracles can't run in this interpreter at all; empty if they can."""
    if job["described"] is None:
        return ""
    try:
        import fastlora_verify.oracles.registry  # noqa: F401
    except ImportError as error:
        return f"not run: the target's interpreter lacks a library that the oracles need ({error})"
    return ""


def not_run(oracle: str, kernel: str, reason: str) -> dict[str, Any]:
    """The answer of an oracle that was not run."""
    return {"oracle": oracle, "kernel": kernel, "ok": None, "summary": reason, "figures": []}


def answers(
    job: Job, oracles: Sequence[Any], kernels: Sequence[str], ask: Callable[[Any, Any], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """One answer for each of the kernels named (none: all) and each oracle, in this order."""
    for name, subject in subjects(job):
        if kernels and name not in kernels:
            continue
        for oracle in oracles:
            yield not_run(oracle.id, name, subject) if isinstance(subject, str) else ask(oracle, subject)
