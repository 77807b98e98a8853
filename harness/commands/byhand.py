"""`diff` and `apply`: one mutant, to be repeated by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastlora_verify.harness import arguments
from fastlora_verify.harness.commands.options import (
    At,
    Inserts,
    MaybeName,
    Mutations,
    Patches,
    Python,
    Replaces,
    Reverts,
    TargetPath,
    Tests,
)
from fastlora_verify.harness.exit_code import ExitCode

if TYPE_CHECKING:
    from fastlora_verify.harness.editing.edit_options import Asked
    from fastlora_verify.harness.loading import Loaded


def diff(
    name: MaybeName = None,
    insert: Inserts = None,
    replace: Replaces = None,
    at: At = None,
    patch: Patches = None,
    reverts: Reverts = None,
    mutations: Mutations = None,
    target: TargetPath = None,
) -> int:
    """Print what a mutant changes."""
    from fastlora_verify.harness.editing.edit_options import asked

    loaded = _loaded(name, asked(insert, replace, patch, reverts, mutations), target)
    for mutant in loaded.mutants:
        typer.echo(f"# {mutant.name}: {mutant.gist}\n{mutant.diff}")
    for no in loaded.not_made:
        typer.echo(f"# not made: {no.mutation}: {no.reason}")
    return _status(loaded)


def apply(
    to: Annotated[Path, typer.Option(help="A copy of the target, or a folder that is not there yet.")],
    name: MaybeName = None,
    insert: Inserts = None,
    replace: Replaces = None,
    at: At = None,
    patch: Patches = None,
    reverts: Reverts = None,
    mutations: Mutations = None,
    target: TargetPath = None,
    tests: Tests = None,
    python: Python = None,
    first: Annotated[bool, typer.Option("-x", help="The command that it prints stops at the first failure.")] = False,
) -> int:
    """Write one mutant into a copy of the target, and say how its tests are run there."""
    from fastlora_verify.harness import byhand
    from fastlora_verify.harness.editing.edit_options import asked
    from fastlora_verify.harness.targets.instead import inner_tests, with_python

    loaded = _loaded(name, asked(insert, replace, patch, reverts, mutations), target)
    run = with_python(loaded.target, python)
    run = dataclasses.replace(run, tests=inner_tests(run, tests)) if tests else run
    loaded = dataclasses.replace(loaded, target=run)
    mutant = byhand.only_one(loaded.mutants, name or "what was given")
    applied = byhand.apply(loaded, mutant, to, first=first)
    typer.echo(f"# {mutant.name} is in {', '.join(map(str, applied.files))}\n{applied.command}")
    return _status(loaded)


def _loaded(name: str | None, own: Asked, target: Path | None) -> Loaded:
    from fastlora_verify.harness.loading import load

    selection = arguments.selection([name] if name else [], None, None, own, everything=False)
    return load(target, selection)


def _status(loaded: Loaded) -> int:
    """Broken mutations from elsewhere are told, and no success."""
    for fault in loaded.plan.faults_elsewhere:
        typer.echo(f"a mutation from elsewhere is broken: {fault}", err=True)
    return ExitCode.USAGE if loaded.plan.faults_elsewhere else ExitCode.OK
