"""The reference kernels as mutations see them, planned once a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.mutations.plan import Plan, plan_mutants
from fastlora_verify.mutations.source import SourceFile


@cache
def reference() -> tuple[Target, dict[str, SourceFile]]:
    """The target and its modules' sources."""
    target = load_target(None)
    return target, read_sources(target)


@cache
def reference_plan() -> Plan:
    return plan_of(reference()[1])


def plan_of(sources: Mapping[str, SourceFile]) -> Plan:
    """The plan of the reference kernels written another way; scopes of the roles must still be there."""
    target, _ = reference()
    return plan_mutants(sources, target.kernels, target.instruments)


def sites(plan: Plan) -> Counter[tuple[str, str]]:
    """The number of sites per mutation and kernel ("" for instruments)."""
    return Counter((m.mutation, kernel) for m in plan.mutants for kernel in m.kernels or ("",))
