"""`sweep`: one test of the target under many seeds, or many times."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fastlora_verify.harness import arguments
from fastlora_verify.harness.commands.options import (
    PROGRAM,
    Against,
    Columns,
    Devices,
    JsonFile,
    MergedOnto,
    Python,
    RebasedOnto,
    ReportFile,
    RunDir,
    ShowOutput,
    TargetPath,
    Upstream,
)
from fastlora_verify.harness.exit_code import of_sweep


def sweep(
    context: typer.Context,
    test: Annotated[str, typer.Argument(help="A test's id, with or without its [parameters], or its name.")],
    seeds: Annotated[
        str | None, typer.Option(help="A number of seeds, or seeds: 20 or 5,13 or 3-11. Default: 20.")
    ] = None,
    runs: Annotated[int, typer.Option(min=0, help="Run it N times instead, unchanged, each a pytest of its own.")] = 0,
    seed_env: Annotated[
        list[str] | None, typer.Option(help="Give the seed in this variable of the environment. Repeatable.")
    ] = None,
    mutant: Annotated[str | None, typer.Option(help="Run it on this mutant.")] = None,
    target: TargetPath = None,
    device: Devices = None,
    column: Columns = None,
    against: Against = None,
    merged_onto: MergedOnto = None,
    rebased_onto: RebasedOnto = None,
    upstream: Upstream = None,
    python: Python = None,
    json: JsonFile = None,
    report: ReportFile = None,
    workers: Annotated[int, typer.Option(min=0, help="Runs at once; 0: as many as processors.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each run.")] = 1,
    run_dir: RunDir = None,
    show_output: ShowOutput = False,
) -> int:
    """Run one test of the target under many seeds, or many times, and report the distribution."""
    from fastlora_verify.harness import session
    from fastlora_verify.harness.run_folder import write
    from fastlora_verify.harness.sweep.session import Wish
    from fastlora_verify.harness.sweep.session import sweep as run
    from fastlora_verify.reports.escape import one_line
    from fastlora_verify.reports.sweep_text import render

    wish = Wish(test, arguments.seeds(seeds), runs, tuple(seed_env or ()), mutant)
    request = session.Request(
        command=(PROGRAM, *context.obj),
        target=target,
        python=python,
        devices=tuple(device or ["cpu"]),
        columns=arguments.wanted(column, against, merged_onto, rebased_onto, upstream),
        run_dir=run_dir,
        json=json,
        workers=workers,
        threads=threads,
    )
    arguments.check_writable(json, report)
    record = run(request, wish, lambda text: print(one_line(text, 400), file=sys.stderr, flush=True))
    text = render(record, output=show_output)
    if report is not None:
        write(report, text)
    typer.echo(text, nl=False)
    return of_sweep(record)
