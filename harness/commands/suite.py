"""`suite`: the tests themselves, before a change and after it."""

from __future__ import annotations

from typing import Annotated

import typer

from fastlora_verify.harness import arguments
from fastlora_verify.harness.commands.options import PROGRAM, JsonFile, Python, ReportFile, RunDir, TargetPath, Tests
from fastlora_verify.harness.exit_code import of_suite


def suite(
    context: typer.Context,
    against: Annotated[str, typer.Option(help="The revision whose suite is the base: a branch, a tag, a commit.")],
    target: TargetPath = None,
    tests: Tests = None,
    device: Annotated[str, typer.Option(help="cpu or cuda: what the tests see while they are collected.")] = "cpu",
    python: Python = None,
    json: JsonFile = None,
    report: ReportFile = None,
    run_dir: RunDir = None,
) -> int:
    """Compare the suite with that of another revision: what was deleted, skipped or loosened. No test is run.

    Status 1: a test, an arm or an assertion is gone, a bound is looser, or a skip is new. Status 3: none of
    these, but something is for a reader to judge: an assertion is rewritten, a file can't be collected. Else 0.
    """
    from fastlora_verify.harness import session
    from fastlora_verify.harness.run_folder import write
    from fastlora_verify.harness.suite_diff.session import suite as compare
    from fastlora_verify.harness.trees.columns import Wanted, check_device
    from fastlora_verify.reports.markdown import render

    check_device(device)
    request = session.Request(
        command=(PROGRAM, *context.obj),
        target=target,
        python=python,
        devices=(device,),
        tests=tuple(tests or ()),
        columns=Wanted(against=against),
        run_dir=run_dir,
        json=json,
    )
    arguments.check_writable(json, report)
    record = compare(request)
    text = render(record)
    if report is not None:
        write(report, text)
    typer.echo(text, nl=False)
    return of_suite(record)
