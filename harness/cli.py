"""The command line: every command by its name, and what becomes of a failure. Nothing is decided here.

stdout carries the report, stderr the rest. What a command needs is imported when it runs, so that `--help` is
quick and nothing here ever imports torch.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fastlora_verify.harness import arguments
from fastlora_verify.harness.commands.byhand import apply, diff
from fastlora_verify.harness.commands.catalogue import explain, list_mutations
from fastlora_verify.harness.commands.init import init
from fastlora_verify.harness.commands.mutate import mutate
from fastlora_verify.harness.commands.options import PROGRAM
from fastlora_verify.harness.commands.oracle import oracle
from fastlora_verify.harness.commands.report import report
from fastlora_verify.harness.commands.suite import suite
from fastlora_verify.harness.commands.sweep import sweep
from fastlora_verify.harness.errors import Failure, FaultOfOurs, UsageError
from fastlora_verify.harness.exit_code import ExitCode

INTERRUPTED = 130

app = typer.Typer(
    name=PROGRAM,
    help="Mutation testing and verification for hand-written LoRA kernels.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(mutate)
app.command()(oracle)
app.command("list")(list_mutations)
app.command()(explain)
app.command()(diff)
app.command()(apply)
app.command()(report)
app.command()(sweep)
app.command()(suite)
app.command()(init)


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Mutation testing and verification for hand-written LoRA kernels."""
    if context.invoked_subcommand is None and not version:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(ExitCode.USAGE)
    if version:
        from importlib import metadata

        typer.echo(f"{PROGRAM} {metadata.version(PROGRAM)}")
        raise typer.Exit


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Runs one command line; every failure becomes one line on stderr and a status."""
    try:
        status = _invoked(argv)
        sys.stdout.flush()
    except Failure as failure:
        return _told(failure)
    except KeyboardInterrupt:
        rest = "the same command goes on from here" if argv[:1] == ["mutate"] else "nothing was kept"
        typer.echo(f"{PROGRAM}: interrupted; {rest}", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        arguments.close_stdout()
        return ExitCode.OK
    except Exception as error:
        if arguments.is_usage_error(error):
            return _told(UsageError(arguments.usage_text(error)))
        return _told(FaultOfOurs(error, arguments.save_traceback(error)))
    return status


def _invoked(argv: list[str]) -> int:
    """The status of the command; not by `app(…)`, which would have statuses of its own for what is raised."""
    command = typer.main.get_command(app)
    try:
        with command.make_context(PROGRAM, arguments.spread(argv), obj=tuple(argv)) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as end:
        return end.exit_code


def _told(failure: Failure) -> int:
    typer.echo(f"{PROGRAM}: {arguments.one_line(failure)}", err=True)
    return failure.exit_code
