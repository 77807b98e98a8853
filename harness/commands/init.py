"""`init`: a repository described as a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastlora_verify.harness import arguments
from fastlora_verify.harness.exit_code import ExitCode


def init(
    folder: Annotated[Path, typer.Argument(help="The repository. It is read, never imported.")] = Path("."),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table there; a file that is there is kept.")
    ] = None,
) -> int:
    """Read a repository's source and write the table that describes it as a target."""
    from fastlora_verify.harness.discover.read import read_repository
    from fastlora_verify.harness.discover.write import target_table
    from fastlora_verify.reports.names import counted

    root = arguments.existing_folder(folder)
    found = read_repository(root)
    if output is None:
        typer.echo(target_table(found), nl=False)
    else:
        arguments.write_new(output, target_table(found, arguments.relative(root, output.resolve().parent)))
        typer.echo(f"wrote {output}", err=True)
    kernels = ", ".join(f"{k.roles.name} ({k.roles.function})" for k in found.kernels)
    typer.echo(f"kernels: {kernels}; {counted(len(found.tests), 'test file')}", err=True)
    for doubt in (*found.doubts, *(f"{k.roles.name}: {d}" for k in found.kernels for d in k.doubts)):
        typer.echo(f"unsure: {doubt}", err=True)
    return ExitCode.OK
