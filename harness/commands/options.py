"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PROGRAM = "fastlora-verify"

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
