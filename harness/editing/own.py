"""Mutants that no mutation makes: edits of the command line, and hunks of a change put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fastlora_verify.harness.editing.edits import edit_mutants
from fastlora_verify.harness.editing.reverts import base_of, check_reverts, revert_mutants
from fastlora_verify.harness.errors import EditError, NothingToRun
from fastlora_verify.harness.selection import Selection, select_own
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.base import Mutant, NoSite
from fastlora_verify.mutations.source import SourceFile


@dataclass(frozen=True)
class Own:
    """What of a selection is no mutation's."""

    mutants: tuple[Mutant, ...] = ()
    no_sites: tuple[NoSite, ...] = ()
    left_out: EditError | None = None  # why an edit doesn't fit this tree


def with_base(selection: Selection, target: Target) -> Selection:
    """The selection with what the revision of `--reverts` has, read from the user's repository. Raises GitError."""
    if selection.reverts is None or selection.base is not None:
        return selection
    return replace(selection, base=base_of(target, selection.reverts))


def own_mutants(target: Target, sources: Mapping[str, SourceFile], selection: Selection) -> Own:
    """Edits and reverts on these sources. Raises EditError, FileError, GitError, UnknownName or NothingToRun."""
    mutants: list[Mutant] = []
    left_out: EditError | None = None
    for edits in selection.edits.each() if selection.lenient else (selection.edits,):
        try:
            mutants += edit_mutants(target, sources, edits)
        except EditError as error:
            if not selection.lenient:
                raise
            left_out = error
    base = with_base(selection, target).base
    no_sites: tuple[NoSite, ...] = ()
    if base is not None:
        reverts, no_sites = revert_mutants(target, sources, base)
        if not selection.lenient:
            check_reverts(reverts, no_sites, base.rev)
        mutants += reverts
    return Own(select_own(tuple(mutants), selection), no_sites, left_out)


def nothing_left(own: Own) -> EditError | NothingToRun:
    """Why there is nothing to run where no mutation was asked for and no edit is left."""
    empty = NothingToRun("nothing to run: no mutation of the names given is of the families given")
    return own.left_out or empty
