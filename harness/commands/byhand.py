"""`diff` and `apply`: one mutant, to be repeated by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fastlora_verify.harness.commands.options import Name, TargetPath
from fastlora_verify.harness.exit_code import ExitCode


def diff(name: Name, target: TargetPath = None) -> int:
    """Print what a mutant changes."""
    from fastlora_verify.harness import session
    from fastlora_verify.harness.selection import Selection

    for mutant in session.load(target, Selection(names=(name,))).mutants:
        typer.echo(f"# {mutant.name}: {mutant.gist}\n{mutant.diff}")
    return ExitCode.OK


def apply(
    name: Name,
    to: Annotated[Path, typer.Option(help="A copy of the target, or a folder that is not there yet.")],
    target: TargetPath = None,
) -> int:
    """Write one mutant into a copy of the target, and say how its tests are run there."""
    from fastlora_verify.harness import byhand, session
    from fastlora_verify.harness.selection import Selection

    loaded = session.load(target, Selection(names=(name,)))
    mutant = byhand.only_one(loaded.mutants, name)
    applied = byhand.apply(loaded, mutant, to)
    typer.echo(f"# {mutant.name} is in {applied.file}\n{applied.command}")
    return ExitCode.OK
