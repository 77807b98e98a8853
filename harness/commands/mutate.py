"""`mutate`: break the kernels and report which edits the tests notice."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fastlora_verify.harness import arguments
from fastlora_verify.harness.commands.options import (
    PROGRAM,
    Against,
    At,
    Columns,
    Devices,
    Families,
    Inserts,
    JsonFile,
    Kernels,
    MergedOnto,
    Mutations,
    Names,
    Patches,
    Previous,
    Python,
    RebasedOnto,
    Replaces,
    ReportFile,
    Reverts,
    RunDir,
    ShowOutput,
    TargetPath,
    Tests,
    Upstream,
)
from fastlora_verify.harness.exit_code import of_run


class Mode(StrEnum):
    """What is asked of the tests: how many fail, or whether any does."""

    COUNT = "count"
    VERDICT = "verdict"


class Executor(StrEnum):
    """Where tests run."""

    LOCAL = "local"
    RAY = "ray"


def mutate(
    context: typer.Context,
    names: Names = None,
    everything: Annotated[bool, typer.Option("--all", help="Every mutant of the target.")] = False,
    kernel: Kernels = None,
    family: Families = None,
    insert: Inserts = None,
    replace: Replaces = None,
    at: At = None,
    patch: Patches = None,
    reverts: Reverts = None,
    mutations: Mutations = None,
    target: TargetPath = None,
    tests: Tests = None,
    device: Devices = None,
    column: Columns = None,
    against: Against = None,
    merged_onto: MergedOnto = None,
    rebased_onto: RebasedOnto = None,
    upstream: Upstream = None,
    audit: Annotated[int, typer.Option(min=0, help="Run N mutants and every survivor again, plain.")] = 0,
    python: Python = None,
    previous: Previous = None,
    json: JsonFile = None,
    report: ReportFile = None,
    workers: Annotated[int, typer.Option(min=0, help="Mutants at once; 0: as many as processors.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each run of the tests.")] = 1,
    run_dir: RunDir = None,
    no_select: Annotated[
        bool, typer.Option("--no-select", help="Run every test for every mutant; the record is the same.")
    ] = False,
    mode: Annotated[
        Mode, typer.Option(help="verdict: the likeliest killers first, and a mutant's tests stop at its first kill.")
    ] = Mode.COUNT,
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Run everything anew, whatever earlier runs found.")
    ] = False,
    show_output: ShowOutput = False,
    executor: Annotated[Executor, typer.Option(help="Where the tests run: here, or on the nodes of a Ray cluster.")] = (
        Executor.LOCAL
    ),
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Of the Ray cluster. Default: as Ray finds one, else here.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="K/N", help="Part K of N of the mutants; `report` puts the N records together."),
    ] = None,
    no_oracles: Annotated[bool, typer.Option("--no-oracles", help="Don't run the oracles on the mutants.")] = False,
) -> int:
    """Break the kernels, one small edit at a time, and report which edits the tests notice."""
    from fastlora_verify.harness import session
    from fastlora_verify.harness.editing.edit_options import asked
    from fastlora_verify.harness.progress import progress
    from fastlora_verify.harness.run_folder import write
    from fastlora_verify.reports.markdown import render

    own = asked(insert, replace, patch, reverts, mutations, against)
    selection = arguments.selection(names, kernel, family, own, everything=everything)
    request = session.Request(
        command=(PROGRAM, *context.obj),
        target=target,
        python=python,
        devices=tuple(device or ["cpu"]),
        columns=arguments.wanted(column, against, merged_onto, rebased_onto, upstream),
        tests=tuple(tests or ()),
        run_dir=run_dir,
        json=json,
        previous=tuple(previous or ()),
        workers=workers,
        threads=threads,
        audit=audit,
        oracles=not no_oracles,
        select=not no_select,
        resume=not no_resume,
        mode=mode.value,
        executor=executor.value,
        address=address,
        shard=arguments.shard(shard),
    )
    arguments.check_executor(executor.value, address)
    arguments.check_writable(json, report)
    with progress() as events:
        record = session.mutate(request, selection, events)
    text = render(record, output=show_output)
    if report is not None:
        write(report, text)
    typer.echo(text, nl=False)
    return of_run(record)
