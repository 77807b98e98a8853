"""`report`: run records, shown again; those of several machines as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastlora_verify.harness.commands.options import Previous, ShowOutput
from fastlora_verify.harness.errors import UsageError, check_names
from fastlora_verify.harness.exit_code import ORDER, ExitCode, of_run

SEPARATE = "--separate shows one after the other"


def report(
    records: Annotated[list[Path], typer.Argument(help="Run records, as --json writes them; several are merged.")],
    how: Annotated[str, typer.Option("--format", help="markdown, json, csv, junit or html.")] = "markdown",
    previous: Previous = None,
    separate: Annotated[bool, typer.Option("--separate", help="One record after the other, none merged.")] = False,
    show_output: ShowOutput = False,
) -> int:
    """Show run records again. Several, of one tree on different machines, become one table.

    All shards of a run become that run, and the exit status is the run's.
    """
    from fastlora_verify.harness.records import beside, read_merged
    from fastlora_verify.harness.sweep.read import read_sweeps
    from fastlora_verify.reports import markdown, sweep_text
    from fastlora_verify.reports.merge_shards import is_whole_run
    from fastlora_verify.reports.registry import FORMATS

    check_names("format", [how], list(FORMATS))
    if show_output and how != markdown.NAME:
        raise UsageError(f"--show-output is of the Markdown report; {how} is given whole")
    sweeps = read_sweeps(records)
    if sweeps and (how not in sweep_text.FORMATS or previous):
        raise UsageError(f"a sweep is shown as {' or '.join(sweep_text.FORMATS)}, beside no earlier round")
    for sweep in sweeps:
        typer.echo(sweep_text.FORMATS[how](sweep, output=show_output), nl=False)
    if sweeps:
        return ExitCode.OK
    groups = [[path] for path in records] if separate else [records]
    shown = [beside(read_merged(group, SEPARATE), previous or []) for group in groups]
    if how == "csv" and not all(record.mutants for record in shown):
        raise UsageError(
            "csv has a row a mutant and column, and there is no mutant in the record; --format json has all"
        )
    for record in shown:
        typer.echo(markdown.render(record, output=True) if show_output else FORMATS[how](record), nl=False)
    applying = {ExitCode.OK, *(of_run(record) for record in shown if is_whole_run(record))}
    return next(code for code in ORDER if code in applying)
