"""`list` and `explain`: the catalogue of mutations in words."""

from __future__ import annotations

from typing import Annotated

import typer
from fastlora_verify.harness.commands.options import Name, TargetPath
from fastlora_verify.harness.errors import check_names
from fastlora_verify.harness.exit_code import ExitCode


def list_mutations(
    how: Annotated[str, typer.Option("--format", help="table, json or markdown.")] = "table",
    sites: Annotated[bool, typer.Option("--sites", help="How many mutants each mutation has on each kernel.")] = False,
    target: TargetPath = None,
) -> int:
    """List the catalogue of mutations."""
    from fastlora_verify.harness import catalogue
    from fastlora_verify.harness.selection import Selection
    from fastlora_verify.mutations.registry import MUTATIONS

    check_names("format", [how], catalogue.LIST_FORMATS)
    if not sites:
        typer.echo(catalogue.listed(MUTATIONS, how))
        return ExitCode.OK
    from fastlora_verify.harness import session

    loaded = session.load(target, Selection())
    kernels = [kernel.name for kernel in loaded.target.kernels]
    typer.echo(catalogue.sites(MUTATIONS, kernels, loaded.plan, how))
    return ExitCode.OK


def explain(name: Name) -> int:
    """Say what a mutation breaks, what it imitates, and what sees it."""
    from fastlora_verify.harness import catalogue
    from fastlora_verify.harness.selection import find_mutations

    typer.echo("\n\n".join(catalogue.explained(mutation) for mutation in find_mutations(name)))
    return ExitCode.OK
