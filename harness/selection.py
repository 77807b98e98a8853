"""Which mutations and mutants a command line means."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from fastlora_verify.harness.editing.edits import Edits
from fastlora_verify.harness.editing.plugins import RESERVED, Offered
from fastlora_verify.harness.editing.reverts import Base
from fastlora_verify.harness.errors import NothingToRun, TargetError, UnknownName, UsageError, check_names
from fastlora_verify.harness.targets.target import Allowance, Target
from fastlora_verify.mutations.base import Mutant, Mutation
from fastlora_verify.mutations.plan import Plan
from fastlora_verify.mutations.registry import MUTATIONS
from fastlora_verify.reports.names import short_name

SEE_LIST = "`fastlora-verify list` gives all of them"


@dataclass(frozen=True)
class Selection:
    """What the command line asks for. Empty tuples ask for everything of their kind."""

    names: tuple[str, ...] = ()  # mutation ids and mutants' names, long or short; `*` stands for any text
    kernels: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    edits: Edits = field(default_factory=Edits)  # they are run whatever the names ask for
    reverts: str | None = None  # the revision whose hunks are put back
    base: Base | None = None  # what that revision has
    offered: Offered = field(default_factory=Offered)  # mutations from elsewhere
    catalogue: bool = True  # False: nothing but edits and reverts was asked for
    lenient: bool = False  # an edit that doesn't fit the tree is left out: another column's does

    @property
    def mutations(self) -> tuple[Mutation, ...]:
        """Every mutation there is to choose from."""
        return (*MUTATIONS, *self.offered.mutations)

    @property
    def is_whole(self) -> bool:
        """Whether every mutation is planned."""
        return self.catalogue and not self.names and not self.families

    def of_catalogue(self) -> Selection:
        """Without the names that mean reverts."""
        return replace(self, names=tuple(name for name in self.names if not is_reserved(name)))


def is_reserved(name: str) -> bool:
    """Whether a name means a mutant that no mutation makes, such as a revert."""
    return name.partition("@")[0] in RESERVED


def matches(pattern: str, name: str) -> bool:
    """True if `name` is `pattern`, in which `*` stands for any text and every other sign for itself."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def wanted_mutations(selection: Selection, target: Target) -> tuple[Mutation, ...]:
    """The mutations to plan. Raises UnknownName for a name, a kernel or a family that doesn't exist."""
    check_names("kernel", selection.kernels, [kernel.name for kernel in target.kernels])
    check_names("family", selection.families, families(selection.mutations))
    wanted: dict[str, Mutation] = {}
    asked = selection.of_catalogue()
    for name in asked.names:
        wanted |= {mutation.id: mutation for mutation in find_mutations(name, selection.mutations)}
    _check_reserved(selection)
    if not selection.catalogue or (selection.names and not asked.names):
        return ()
    return tuple(
        mutation
        for mutation in selection.mutations
        if (not asked.names or mutation.id in wanted)
        and (not selection.families or mutation.family in selection.families)
    )


def _check_reserved(selection: Selection) -> None:
    for name in filter(is_reserved, selection.names):
        kind = name.partition("@")[0]
        if kind != "reverts":
            raise UsageError(f"{name}: such a mutant is made by --{kind} and needs no name")
        if selection.reverts is None:
            raise UsageError(f"{name}: such a mutant is made by --reverts; give --reverts REV as well")


def find_mutations(name: str, known: tuple[Mutation, ...] = MUTATIONS) -> list[Mutation]:
    """The mutations that a name means: by id, by a pattern of ids, or by a mutant's name."""
    ids = name.partition("@")[0]
    found = [mutation for mutation in known if matches(ids, mutation.id)]
    if not found:
        raise UnknownName("mutation", ids, [mutation.id for mutation in known], see=SEE_LIST)
    return found


def families(mutations: tuple[Mutation, ...] = MUTATIONS) -> list[str]:
    """The families, in the catalogue's order."""
    return list(dict.fromkeys(mutation.family for mutation in mutations))


def select_own(mutants: tuple[Mutant, ...], selection: Selection) -> tuple[Mutant, ...]:
    """Of edits and reverts those that are meant: names choose among reverts. Raises UnknownName."""
    names = [name for name in selection.names if is_reserved(name)]
    reverts = [mutant for mutant in mutants if mutant.mutation == "reverts"]
    for name in names:
        if not any(_is_named(mutant, name) for mutant in reverts):
            raise UnknownName("mutant", name, [mutant.name for mutant in reverts])
    return tuple(
        mutant
        for mutant in mutants
        if mutant.mutation != "reverts" or not names or any(_is_named(mutant, name) for name in names)
    )


def select(plan: Plan, selection: Selection) -> tuple[Mutant, ...]:
    """The plan's mutants that are meant. Raises UnknownName for a mutant's name that no mutant has."""
    found = chosen(plan, selection)
    for name in selection.names:
        if "@" in name and not any(_is_named(mutant, name) for mutant in plan.mutants):
            raise UnknownName("mutant", name, [mutant.name for mutant in plan.mutants], see=SEE_LIST)
    if not found:
        raise NothingToRun(_why_empty(plan, selection))
    return found


def chosen(plan: Plan, selection: Selection) -> tuple[Mutant, ...]:
    """The plan's mutants that are meant, perhaps none."""
    return tuple(mutant for mutant in plan.mutants if _is_meant(mutant, selection))


def allowance_of(mutant: str, target: Target) -> str | None:
    """The written reason of the first allowance that matches the mutant."""
    return next((a.reason for a in target.allowances if _allows(a, mutant)), None)


def check_allowances(plan: Plan, target: Target) -> None:
    """Raises TargetError for an allowance that matches no mutant of a whole plan."""
    for index, allowance in enumerate(target.allowances):
        if not is_reserved(allowance.mutant) and not any(_allows(allowance, mutant.name) for mutant in plan.mutants):
            problem = f"{allowance.mutant!r} matches no mutant; remove the allowance or correct its name"
            raise TargetError(target.file, problem, key=f"allow[{index}].mutant")


def _allows(allowance: Allowance, name: str) -> bool:
    return matches(allowance.mutant, name) or matches(allowance.mutant, short_name(name))


def _is_meant(mutant: Mutant, selection: Selection) -> bool:
    return (
        (not selection.names or any(_is_named(mutant, name) for name in selection.names))
        and (not selection.kernels or bool(set(selection.kernels) & set(mutant.kernels)))
        and (not selection.families or mutant.family in selection.families)
    )


def _is_named(mutant: Mutant, name: str) -> bool:
    if "@" not in name:
        return matches(name, mutant.mutation)
    return matches(name, mutant.name) or matches(name, short_name(mutant.name))


def _why_empty(plan: Plan, selection: Selection) -> str:
    text = "nothing to run: no mutant is selected"
    kernels = selection.kernels
    reasons = [no for no in plan.no_sites if not kernels or no.kernel in kernels]
    if reasons and not plan.mutants:
        told = [f"{no.mutation} has no site in {no.kernel} ({no.reason})" for no in reasons[:3]]
        return f"{text}; {'; '.join(told)}"
    if plan.mutants:
        text += f"; the {len(plan.mutants)} mutants of the names given are of other kernels or families"
    return text
