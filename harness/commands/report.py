"""`report`: run records, shown again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fastlora_verify.harness import arguments
from fastlora_verify.harness.commands.options import ShowOutput
from fastlora_verify.harness.errors import UsageError, check_names
from fastlora_verify.harness.exit_code import ExitCode


def report(
    records: Annotated[list[Path], typer.Argument(help="Run records, as --json writes them.")],
    how: Annotated[str, typer.Option("--format", help="markdown or json.")] = "markdown",
    show_output: ShowOutput = False,
) -> int:
    """Show run records again."""
    from fastlora_verify.reports import markdown
    from fastlora_verify.reports.registry import FORMATS

    check_names("format", [how], list(FORMATS))
    if show_output and how != markdown.NAME:
        raise UsageError(f"--show-output is of the Markdown report; {how} is given whole")
    for path in records:
        record = arguments.read_record(path)
        typer.echo(markdown.render(record, output=True) if show_output else FORMATS[how](record), nl=False)
    return ExitCode.OK
