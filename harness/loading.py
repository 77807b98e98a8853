"""A target read and planned: its sources, and the mutants that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fastlora_verify.harness.editing.own import nothing_left, own_mutants, with_base
from fastlora_verify.harness.editing.plugins import PACKAGE
from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.plan import Events
from fastlora_verify.harness.plans import Plans
from fastlora_verify.harness.selection import Selection, check_allowances, select, wanted_mutations
from fastlora_verify.harness.targets.roles import check_roles, modules_of
from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.mutations.base import Mutant, NoSite
from fastlora_verify.mutations.plan import Plan, plan_mutants
from fastlora_verify.mutations.source import SourceFile


@dataclass(frozen=True)
class Loaded:
    """A target with its sources and the mutants that were asked for."""

    target: Target
    sources: Mapping[str, SourceFile]
    plan: Plan
    mutants: tuple[Mutant, ...]
    no_sites: tuple[NoSite, ...]  # of the kernels that were asked for
    not_made: tuple[NoSite, ...] = ()  # hunks of a change that can't be put back alone

    @property
    def kernels(self) -> set[str]:
        """Names of the kernels that have a mutant."""
        return {kernel for mutant in self.mutants for kernel in mutant.kernels}


def load(path: Path | None, selection: Selection, events: Events | None = None) -> Loaded:
    """Reads the target, plans and selects. Raises TargetError, UnknownName or NothingToRun."""
    target = load_target(path)
    loaded = planned(target, read_sources(target), with_base(selection, target))
    check_whole(loaded, selection)
    if events is not None:
        tell_faults([loaded], events)
    return loaded


def planned(
    target: Target, sources: Mapping[str, SourceFile], selection: Selection, plans: Plans | None = None
) -> Loaded:
    """The mutants of these sources. Raises TargetError, UnknownName or NothingToRun."""
    mutations = wanted_mutations(selection, target)
    check_roles(target, sources)
    own = own_mutants(target, sources, selection)
    if not mutations and not own.mutants:
        raise nothing_left(own)
    instruments = [name for name in target.instruments if name in sources]
    plan = Plan((), (), ())
    if mutations:
        make = partial(plan_mutants, sources, target.kernels, instruments, mutations)
        plan = make() if plans is None else plans.kept(sources, target.kernels, instruments, mutations, make)
    plan = replace(plan, faults_elsewhere=(*selection.offered.faults, *plan.faults_elsewhere))
    asked = selection.kernels or tuple(kernel.name for kernel in target.kernels)
    no_sites = tuple(no for no in plan.no_sites if no.kernel in asked)
    chosen = [_with_file(m, selection) for m in (select(plan, selection.of_catalogue()) if mutations else ())]
    return Loaded(target, sources, plan, (*chosen, *own.mutants), no_sites, own.no_sites)


def _with_file(mutant: Mutant, selection: Selection) -> Mutant:
    """A mutant of a user's own mutation, with the option that names its file."""
    origins = [mutation.origin for mutation in selection.offered.mutations if mutation.id == mutant.mutation]
    files = [origin for origin in origins if not origin.startswith(PACKAGE)]
    return replace(mutant, options=("--mutations", files[0])) if files else mutant


def fitting(target: Target, where: str) -> tuple[Target, dict[str, SourceFile], tuple[str, ...]]:
    """What of the target is there in another revision, called `where`: (with those kernels, sources, what is missing).

    Modules stay those of the target, so that one which is taken from elsewhere is noticed.
    """
    sources: dict[str, SourceFile] = {}
    missing: list[str] = []
    for name in target.modules:
        try:
            sources |= read_sources(replace(target, modules=(name,), instruments=()))
        except TargetError as error:
            missing.append(f"{where}: {error.problem.partition(';')[0]}")
    for name in target.instruments:
        try:
            sources |= read_sources(replace(target, modules=(), instruments=(name,)))
        except TargetError as error:
            missing.append(f"{where}: {error.problem.partition(';')[0]}")
    kernels = []
    for kernel in target.kernels:
        if any(module in target.modules and module not in sources for module in modules_of(kernel)):
            continue  # its module is told already
        try:
            check_roles(replace(target, kernels=(kernel,)), sources)
            kernels.append(kernel)
        except TargetError as error:
            missing.append(f"{where} has no kernel {kernel.name}: {error.problem.partition(';')[0]}")
    return replace(target, kernels=tuple(kernels)), sources, tuple(missing)


def nothing_of(target: Target, sources: Mapping[str, SourceFile]) -> Loaded:
    """A tree in which none of the mutants asked for has a site."""
    return Loaded(target, sources, Plan((), (), ()), (), ())


def check_whole(loaded: Loaded, selection: Selection, others: Iterable[Loaded] = ()) -> None:
    """Raises TargetError for an allowance that matches no mutant of a whole plan, in none of the trees."""
    if selection.is_whole:
        mutants = (mutant for one in (loaded, *others) for mutant in one.plan.mutants)
        check_allowances(replace(loaded.plan, mutants=tuple(mutants)), loaded.target)


def tell_faults(several: Iterable[Loaded], events: Events) -> None:
    """Says which mutations made something that is no mutant."""
    for fault in dict.fromkeys(fault for loaded in several for fault in loaded.plan.faults):
        events.note(f"a fault of fastlora-verify, this mutant is not run: {fault}")
    for fault in dict.fromkeys(fault for loaded in several for fault in loaded.plan.faults_elsewhere):
        events.note(f"a fault of a mutation from elsewhere, it is not run: {fault}")
