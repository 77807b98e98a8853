"""`oracle`: check the unmutated kernels."""

from __future__ import annotations

from typing import Annotated

import typer

from fastlora_verify.harness import arguments
from fastlora_verify.harness.commands.options import (
    PROGRAM,
    Against,
    Columns,
    Devices,
    JsonFile,
    Kernels,
    MergedOnto,
    Python,
    RebasedOnto,
    RunDir,
    TargetPath,
    Upstream,
)
from fastlora_verify.harness.exit_code import of_oracles


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
    column: Columns = None,
    against: Against = None,
    merged_onto: MergedOnto = None,
    rebased_onto: RebasedOnto = None,
    upstream: Upstream = None,
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
        columns=arguments.wanted(column, against, merged_onto, rebased_onto, upstream),
        run_dir=run_dir,
        json=json,
        threads=threads,
    )
    arguments.check_writable(json)
    record = session.oracle(request, question)
    typer.echo(render(record), nl=False)
    return of_oracles(record)
