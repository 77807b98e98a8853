"""`report`: run records, shown again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fastlora_verify.harness import arguments
from fastlora_verify.harness.errors import check_names
from fastlora_verify.harness.exit_code import ExitCode


def report(
    records: Annotated[list[Path], typer.Argument(help="Run records, as --json writes them.")],
    how: Annotated[str, typer.Option("--format", help="markdown or json.")] = "markdown",
) -> int:
    """Show run records again."""
    from fastlora_verify.reports.registry import FORMATS

    check_names("format", [how], list(FORMATS))
    for path in records:
        typer.echo(FORMATS[how](arguments.read_record(path)), nl=False)
    return ExitCode.OK
