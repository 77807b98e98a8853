"""`list` and `explain`: the catalogue of mutations in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fastlora_verify.harness.commands.options import Families, Kernels, Name
from fastlora_verify.harness.errors import check_names
from fastlora_verify.harness.exit_code import ExitCode


def list_mutations(
    how: Annotated[str, typer.Option("--format", help="table, json or markdown.")] = "table",
    sites: Annotated[bool, typer.Option("--sites", help="How many mutants each mutation has on each kernel.")] = False,
    kernel: Kernels = None,
    family: Families = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="A target: every site there, and why there is none elsewhere.")
    ] = None,
) -> int:
    """List the catalogue of mutations, or the sites that it has in a target."""
    from fastlora_verify.harness import catalogue
    from fastlora_verify.harness.selection import Selection, families
    from fastlora_verify.mutations.registry import MUTATIONS

    check_names("format", [how], catalogue.LIST_FORMATS)
    check_names("family", family or [], families())
    mutations = [mutation for mutation in MUTATIONS if not family or mutation.family in family]
    if not (sites or kernel or target is not None):
        typer.echo(catalogue.listed(mutations, how))
        return ExitCode.OK
    from fastlora_verify.harness.look import looked_at
    from fastlora_verify.harness.site_list import site_list

    loaded = looked_at(target, Selection(kernels=tuple(kernel or ()), families=tuple(family or ())))
    if sites:
        kernels = kernel or [one.name for one in loaded.target.kernels]
        typer.echo(catalogue.sites(mutations, kernels, loaded.plan, how))
    else:
        typer.echo(site_list(loaded, how))
    return ExitCode.OK


def explain(name: Name) -> int:
    """Say what a mutation breaks, what it imitates, and what sees it."""
    from fastlora_verify.harness import catalogue
    from fastlora_verify.harness.selection import find_mutations

    typer.echo("\n\n".join(catalogue.explained(mutation) for mutation in find_mutations(name)))
    return ExitCode.OK
