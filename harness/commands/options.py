"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PROGRAM = "fastlora-verify"

Names = Annotated[list[str] | None, typer.Argument(help="Mutation ids or mutants' names; * stands for any text.")]
Name = Annotated[str, typer.Argument(help="A mutation's id or a mutant's name.")]
MaybeName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="A mutation's id or a mutant's name; none if an edit is given.")
]
TargetPath = Annotated[
    Path | None, typer.Option("--target", help="A target file, or a folder with one. Default: the reference kernels.")
]
Kernels = Annotated[list[str] | None, typer.Option("--kernel", help="Only this kernel. Repeatable.")]
Families = Annotated[list[str] | None, typer.Option("--family", help="Only this family. Repeatable.")]
Devices = Annotated[list[str] | None, typer.Option("--device", help="cpu or cuda; both give two columns.")]
Tests = Annotated[list[str] | None, typer.Option(help="Tests in place of the target's own.")]
Python = Annotated[str | None, typer.Option("--python", help="The interpreter that runs the target.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the run record there.")]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write the report there, too.")]
ShowOutput = Annotated[
    bool, typer.Option("--show-output", help="Also what passing tests print: their ratios and bytes.")
]
Previous = Annotated[
    list[Path] | None,
    typer.Option(help="An earlier round's record: what was killed then and survives now, and the other way round."),
]
RunDir = Annotated[
    Path | None, typer.Option("--run-dir", help="Results and logs of runs. Default: .fastlora-verify/TARGET.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="SPEC",
        help="source=REV[+FILE.diff],tests=REV[+FILE.diff],device=cpu; each part may be missing. Repeatable.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Three columns: this tree; it with REV's tests; its own tests on REV's source."),
]
MergedOnto = Annotated[
    list[str] | None,
    typer.Option("--merged-onto", metavar="REV...", help="Run HEAD merged onto REV, onto several in their order."),
]
RebasedOnto = Annotated[str | None, typer.Option("--rebased-onto", metavar="REV", help="Run HEAD rebased onto REV.")]
Upstream = Annotated[
    str | None, typer.Option(metavar="REV", help="With --rebased-onto: leave out the commits up to REV.")
]
Inserts = Annotated[
    list[str] | None,
    typer.Option("--insert", metavar="CODE --at SCOPE", help="A mutant: code at the top of a function. Repeatable."),
]
Replaces = Annotated[
    list[str] | None,
    typer.Option(
        "--replace",
        metavar="OLD NEW --at SCOPE",
        help="A mutant: text that stands once in a function, class or module, replaced. Repeatable.",
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(metavar="SCOPE", help="package.module:outer.inner, of the --insert or --replace before it."),
]
Patches = Annotated[
    list[Path] | None, typer.Option("--patch", metavar="FILE.diff", help="A mutant: a unified diff. Repeatable.")
]
Reverts = Annotated[
    str | None,
    typer.Option(metavar="[REV]", help="Mutants: each source hunk since REV put back alone. Alone: of --against."),
]
Mutations = Annotated[
    list[Path] | None,
    typer.Option(
        "--mutations", metavar="FILE.py", help="Mutations of your own: a Python file with MUTATIONS. Repeatable."
    ),
]
