"""The command line: parses, calls, prints, returns a status. Nothing is decided here.

stdout carries the report, stderr the rest. What a command needs is imported when it runs, so that `--help` is
quick and nothing here ever imports torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from fastlora_verify.harness import arguments
from fastlora_verify.harness.errors import Failure, FaultOfOurs, UsageError, check_names
from fastlora_verify.harness.exit_code import ExitCode, of_run

PROGRAM = "fastlora-verify"
INTERRUPTED = 130

app = typer.Typer(
    name=PROGRAM,
    help="Mutation testing and verification for hand-written LoRA kernels.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Names = Annotated[list[str] | None, typer.Argument(help="Mutation ids or mutants' names; * stands for any text.")]
Name = Annotated[str, typer.Argument(help="A mutation's id or a mutant's name.")]
TargetPath = Annotated[
    Path | None, typer.Option("--target", help="A target file, or a folder with one. Default: the reference kernels.")
]
Kernels = Annotated[list[str] | None, typer.Option("--kernel", help="Only this kernel. Repeatable.")]
Families = Annotated[list[str] | None, typer.Option("--family", help="Only this family. Repeatable.")]
Devices = Annotated[list[str] | None, typer.Option("--device", help="cpu or cuda; both give two columns.")]
Python = Annotated[str | None, typer.Option("--python", help="The interpreter that runs the target.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the run record there.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write the report there, too.")]
RunDir = Annotated[
    Path | None, typer.Option("--run-dir", help="Results and logs of runs. Default: .fastlora-verify/TARGET.")
]


@app.command()
def mutate(
    context: typer.Context,
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Every mutant of the target.")] = False,
    kernel: Kernels = None,
    family: Families = None,
    target: TargetPath = None,
    tests: Annotated[list[str] | None, typer.Option(help="Tests in place of the target's own.")] = None,
    device: Devices = None,
    audit: Annotated[int, typer.Option(min=0, help="Run N mutants and every survivor again, plain.")] = 0,
    python: Python = None,
    json: JsonFile = None,
    report: ReportFile = None,
    workers: Annotated[int, typer.Option(min=0, help="Mutants at once; 0: as many as processors.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each run of the tests.")] = 1,
    run_dir: RunDir = None,
    no_select: Annotated[
        bool, typer.Option("--no-select", help="Run every test for every mutant; the record is the same.")
    ] = False,
    no_oracles: Annotated[bool, typer.Option("--no-oracles", help="Don't run the oracles on the mutants.")] = False,
) -> int:
    """Break the kernels, one small edit at a time, and report which edits the tests notice."""
    from fastlora_verify.harness import session
    from fastlora_verify.harness.progress import progress
    from fastlora_verify.reports.markdown import render

    selection = arguments.selection(names, kernel, family, everything=everything)
    request = session.Request(
        command=(PROGRAM, *context.obj),
        target=target,
        python=python,
        devices=tuple(device or ["cpu"]),
        tests=tuple(tests or ()),
        run_dir=run_dir,
        json=json,
        workers=workers,
        threads=threads,
        audit=audit,
        oracles=not no_oracles,
        select=not no_select,
    )
    arguments.check_writable(json, report)
    with progress() as events:
        record = session.mutate(request, selection, events)
    text = render(record)
    if report is not None:
        session.write(report, text)
    typer.echo(text, nl=False)
    return of_run(record)


@app.command()
def oracle(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Oracles' ids. Default: all.")] = None,
    seeds: Annotated[str | None, typer.Option(help="A number of seeds, or seeds: 20 or 5,13 or 3-11.")] = None,
    fixture: Annotated[
        list[str] | None, typer.Option(help="FIELD=VALUE of the 2x rule's fixture: sibling_scale=2, widths=8,12.")
    ] = None,
    kernel: Kernels = None,
    target: TargetPath = None,
    device: Devices = None,
    python: Python = None,
    json: JsonFile = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    run_dir: RunDir = None,
) -> int:
    """Check the unmutated kernels against float64, unpatched PEFT and counted bytes; print the figures."""
    from fastlora_verify.harness import session
    from fastlora_verify.harness.ask import Question
    from fastlora_verify.reports.markdown import render

    question = Question(
        oracles=tuple(names or ()),
        kernels=tuple(kernel or ()),
        seeds=arguments.seeds(seeds),
        fixture=arguments.fixture(fixture or []),
    )
    request = session.Request(
        command=(PROGRAM, *context.obj),
        target=target,
        python=python,
        devices=tuple(device or ["cpu"]),
        run_dir=run_dir,
        json=json,
        threads=threads,
    )
    arguments.check_writable(json)
    record = session.oracle(request, question)
    typer.echo(render(record), nl=False)
    return ExitCode.SURVIVORS if any(answer.ok is False for answer in record.oracles) else ExitCode.OK


@app.command("list")
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


@app.command()
def explain(name: Name) -> int:
    """Say what a mutation breaks, what it imitates, and what sees it."""
    from fastlora_verify.harness import catalogue
    from fastlora_verify.harness.selection import find_mutations

    typer.echo("\n\n".join(catalogue.explained(mutation) for mutation in find_mutations(name)))
    return ExitCode.OK


@app.command()
def diff(name: Name, target: TargetPath = None) -> int:
    """Print what a mutant changes."""
    from fastlora_verify.harness import session
    from fastlora_verify.harness.selection import Selection

    for mutant in session.load(target, Selection(names=(name,))).mutants:
        typer.echo(f"# {mutant.name}: {mutant.gist}\n{mutant.diff}")
    return ExitCode.OK


@app.command()
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


@app.command()
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


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The repository. It is read, never imported.")] = Path("."),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table there; a file that is there is kept.")
    ] = None,
) -> int:
    """Read a repository's source and write the table that describes it as a target."""
    from fastlora_verify.harness.discover.read import read_repository
    from fastlora_verify.harness.discover.write import target_table

    found = read_repository(arguments.existing_folder(folder))
    text = target_table(found)
    if output is None:
        typer.echo(text, nl=False)
    else:
        arguments.write_new(output, text)
        typer.echo(f"wrote {output}", err=True)
    kernels = ", ".join(f"{k.roles.name} ({k.roles.function})" for k in found.kernels)
    typer.echo(f"kernels: {kernels}; {len(found.tests)} test files", err=True)
    for doubt in (*found.doubts, *(f"{k.roles.name}: {d}" for k in found.kernels for d in k.doubts)):
        typer.echo(f"unsure: {doubt}", err=True)
    return ExitCode.OK


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
        typer.echo(f"{PROGRAM}: interrupted; the same command goes on from here", err=True)
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
