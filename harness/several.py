"""Columns of several trees: each planned from its own source, every tree run once, the outcomes side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fastlora_verify.harness.errors import EditError, Failure, NothingToRun, UnknownName
from fastlora_verify.harness.loading import Loaded, fitting, nothing_of, planned
from fastlora_verify.harness.plan import NO_SITE, NOT_RUN, Column, ColumnOutcome, MutantOutcome, OfTree
from fastlora_verify.harness.plans import Plans
from fastlora_verify.harness.selection import Selection
from fastlora_verify.harness.targets.sources import on_disk, read_sources
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.column_trees import Tree
from fastlora_verify.harness.trees.columns import ColumnSpec
from fastlora_verify.harness.trees.revision import digest_of_sources, digest_of_tests
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.mutations.source import SourceFile


@dataclass(frozen=True)
class Fitted:
    """A column with that of the target which its tree has."""

    column: Column
    tree: Tree
    target: Target
    sources: Mapping[str, SourceFile]
    tests: tuple[str, ...]  # of those that are run, the ones that are there
    notes: tuple[str, ...]

    @property
    def where(self) -> str:
        """What its tree is called."""
        return self.tree.source.name

    def told(self, *, beside: bool) -> OfTree:
        """Its tree, for the record."""
        return OfTree(
            source=self.tree.source.name,
            tests=self.tree.tests.name,
            source_rev=self.tree.source.commit or digest_of_sources(self.sources),
            tests_rev=self.tree.tests.commit or digest_of_tests(self.target, self.tests),
            digest=self.tree.digest,
            beside=beside,
        )


@dataclass(frozen=True)
class Ready:
    """A column with its mutants."""

    fitted: Fitted
    loaded: Loaded

    @property
    def column(self) -> Column:
        """The column."""
        return self.fitted.column


def fitted(columns: Sequence[tuple[Column, Tree]], tests: Sequence[str]) -> list[Fitted]:
    """Each column with what its tree has. Raises TargetError where the user's own tree lacks what the target names."""
    found = []
    for column, tree in columns:
        if tree.is_own:
            found.append(Fitted(column, tree, tree.target, read_sources(tree.target), tuple(tests), tree.notes))
            continue
        target, sources, missing = fitting(tree.target, tree.source.name)
        there = tuple(test for test in tests if on_disk(target, test.partition("::")[0]) is not None)
        missing += tuple(f"{tree.tests.name} has no {test}" for test in tests if test not in there)
        found.append(Fitted(column, tree, target, sources, there, (*tree.notes, *missing)))
    return found


def ready(columns: Sequence[Fitted], selection: Selection, kept: Plans | None = None) -> list[Ready]:
    """Every column planned from its own source. Raises what planning raises where no column has a mutant."""
    plans: dict[object, Loaded] = {}
    failures: list[Failure] = []
    found = []
    for one in columns:
        texts = tuple((name, file.path, file.text) for name, file in one.sources.items())
        key = (texts, one.target.kernels, one.target.instruments)
        if key not in plans:
            try:
                lenient = replace(selection, lenient=not one.tree.is_own)
                plans[key] = planned(one.target, one.sources, lenient, kept)
            except (NothingToRun, UnknownName, EditError) as failure:
                if one.tree.is_own and isinstance(failure, EditError):
                    raise
                failures.append(failure)
                plans[key] = nothing_of(one.target, one.sources)
        found.append(Ready(one, replace(plans[key], target=one.target)))
    if failures and not any(one.loaded.mutants for one in found):
        raise failures[0]
    return found


def under_review(specs: Sequence[ColumnSpec]) -> list[bool]:
    """For each column whether it decides: those of the tree under review do; where there is none, of the first tree."""
    pairs = [(spec.source, spec.tests) for spec in specs]
    own = (ColumnSpec().source, ColumnSpec().tests)
    chosen = own if own in pairs else pairs[0]
    return [pair == chosen for pair in pairs]


def each_tree_once(
    columns: Sequence[Fitted], run: Callable[[Sequence[int]], Sequence[ColumnOutcome]]
) -> list[ColumnOutcome]:
    """The outcomes of all columns; `run` is given the places of those of one tree, on each device once."""
    groups: dict[object, list[int]] = {}
    for place, one in enumerate(columns):
        groups.setdefault((one.tree.digest or id(one.tree), one.tests), []).append(place)
    outcomes: dict[int, ColumnOutcome] = {}
    for places in groups.values():
        firsts: dict[str, int] = {}
        for place in places:
            firsts.setdefault(columns[place].column.device, place)
        chosen = list(firsts.values())
        outcomes |= dict(zip(chosen, run(chosen), strict=True))
        for place in places:
            if place not in outcomes:
                column = columns[place].column
                outcomes[place] = _again(outcomes[firsts[column.device]], column)
    return [outcomes[place] for place in range(len(columns))]


def _again(outcome: ColumnOutcome, column: Column) -> ColumnOutcome:
    """What was found of the same tree, in another column."""
    note = f"the same blobs as {outcome.column.id}, file by file: its results hold here, nothing was run again"
    return replace(
        outcome,
        column=column,
        mutants=tuple(replace(mutant, column=column.id) for mutant in outcome.mutants),
        reused=(),
        audited=(),
        audit_differences=(),
        notes=(note,),
    )


def without_tests(one: Ready) -> ColumnOutcome:
    """A column none of whose tests is there."""
    reason = f"none of the tests is in {one.fitted.tree.tests.name}"
    mutants = (MutantOutcome(m.name, one.column.id, NOT_RUN, reason=reason) for m in one.loaded.mutants)
    return ColumnOutcome(one.column, NOT_RUN, reason, mutants=tuple(mutants))


def side_by_side(
    columns: Sequence[Ready], outcomes: Sequence[ColumnOutcome], part: Collection[str]
) -> tuple[list[Mutant], list[ColumnOutcome]]:
    """Each mutant of `part` as its first column has it; the outcomes, with what has no site there."""
    mutants: dict[str, Mutant] = {}
    for one in columns:
        for mutant in one.loaded.mutants:
            if mutant.name in part:
                mutants.setdefault(mutant.name, mutant)
    whole = []
    for one, outcome in zip(columns, outcomes, strict=True):
        known = {found.mutant: found for found in outcome.mutants}
        reason = f"not in the source of {one.fitted.where}"
        absent = {name: MutantOutcome(name, one.column.id, NO_SITE, reason=reason) for name in mutants}
        whole.append(replace(outcome, mutants=tuple({**absent, **known}[name] for name in mutants)))
    return list(mutants.values()), whole
