"""A target read and planned to be looked at, not run: that nothing applies there is no error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fastlora_verify.harness.editing.own import own_mutants
from fastlora_verify.harness.loading import Loaded
from fastlora_verify.harness.selection import Selection, chosen, wanted_mutations
from fastlora_verify.harness.targets.roles import check_roles
from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.mutations.plan import Plan, plan_mutants


def looked_at(path: Path | None, selection: Selection) -> Loaded:
    """Every mutant and every empty cell that is meant. Raises TargetError and UnknownName."""
    target = load_target(path)
    mutations = wanted_mutations(selection, target)
    sources = read_sources(target)
    check_roles(target, sources)
    own = own_mutants(target, sources, selection)
    plan = plan_mutants(sources, target.kernels, target.instruments, mutations) if mutations else Plan((), (), ())
    plan = replace(plan, faults_elsewhere=(*selection.offered.faults, *plan.faults_elsewhere))
    asked = selection.kernels or tuple(kernel.name for kernel in target.kernels)
    no_sites = tuple(no for no in plan.no_sites if no.kernel in asked)
    found = chosen(plan, selection.of_catalogue()) if mutations else ()
    return Loaded(target, sources, plan, (*found, *own.mutants), no_sites, own.no_sites)
