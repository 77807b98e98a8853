"""A target read and planned to be looked at, not run: that nothing applies there is no error."""

from __future__ import annotations

from pathlib import Path

from fastlora_verify.harness.loading import Loaded
from fastlora_verify.harness.roles import check_roles
from fastlora_verify.harness.selection import Selection, chosen, wanted_mutations
from fastlora_verify.harness.sources import read_sources
from fastlora_verify.harness.target_file import load_target
from fastlora_verify.mutations.plan import plan_mutants


def looked_at(path: Path | None, selection: Selection) -> Loaded:
    """Every mutant and every empty cell that is meant. Raises TargetError and UnknownName."""
    target = load_target(path)
    mutations = wanted_mutations(selection, target)
    sources = read_sources(target)
    check_roles(target, sources)
    plan = plan_mutants(sources, target.kernels, target.instruments, mutations)
    asked = selection.kernels or tuple(kernel.name for kernel in target.kernels)
    no_sites = tuple(no for no in plan.no_sites if no.kernel in asked)
    return Loaded(target, sources, plan, chosen(plan, selection), no_sites)
