"""`list` and `explain`: the catalogue of mutations in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fastlora_verify.harness.commands.options import Families, Kernels, Mutations, Name, Reverts
from fastlora_verify.harness.errors import check_names
from fastlora_verify.harness.exit_code import ExitCode


def list_mutations(
    how: Annotated[str, typer.Option("--format", help="table, json or markdown.")] = "table",
    sites: Annotated[bool, typer.Option("--sites", help="How many mutants each mutation has on each kernel.")] = False,
    kernel: Kernels = None,
    family: Families = None,
    reverts: Reverts = None,
    mutations: Mutations = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="A target: every site there, and why there is none elsewhere.")
    ] = None,
) -> int:
    """List the catalogue of mutations, the sites that it has in a target, or the hunks that --reverts puts back."""
    from fastlora_verify.harness import catalogue
    from fastlora_verify.harness.editing.edit_options import asked
    from fastlora_verify.harness.editing.plugins import offered
    from fastlora_verify.harness.selection import Selection, families

    check_names("format", [how], catalogue.LIST_FORMATS)
    own = asked(reverts=reverts, mutations=mutations)
    selection = Selection((), tuple(kernel or ()), tuple(family or ()), offered=offered(own.files), reverts=own.reverts)
    check_names("family", selection.families, families(selection.mutations))
    chosen = [mutation for mutation in selection.mutations if not family or mutation.family in family]
    if not (sites or kernel or target is not None or own.reverts is not None):
        typer.echo(catalogue.listed(chosen, how))
        return _status(selection.offered.faults)
    from fastlora_verify.harness.editing.own_list import own_list
    from fastlora_verify.harness.look import looked_at
    from fastlora_verify.harness.site_list import site_list

    loaded = looked_at(target, replace(selection, catalogue=own.reverts is None))
    if own.reverts is not None:
        typer.echo(own_list(loaded, how))
    elif sites:
        kernels = kernel or [one.name for one in loaded.target.kernels]
        typer.echo(catalogue.sites(chosen, kernels, loaded.plan, how))
    else:
        typer.echo(site_list(loaded, how))
    return _status(loaded.plan.faults_elsewhere)


def explain(name: Name, mutations: Mutations = None) -> int:
    """Say what a mutation breaks, what it imitates, and what sees it."""
    from fastlora_verify.harness import catalogue
    from fastlora_verify.harness.editing.plugins import offered
    from fastlora_verify.harness.selection import Selection, find_mutations

    selection = Selection(offered=offered(mutations or []))
    found = find_mutations(name, selection.mutations)
    typer.echo("\n\n".join(catalogue.explained(mutation) for mutation in found))
    return _status(selection.offered.faults)


def _status(faults: Sequence[str]) -> int:
    """Broken mutations from elsewhere are told, and no success."""
    for fault in faults:
        typer.echo(f"a mutation from elsewhere is broken: {fault}", err=True)
    return ExitCode.USAGE if faults else ExitCode.OK
