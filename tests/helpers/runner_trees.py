"""Targets and mutants for the runner's tests, made from the trees in tests/testdata."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fastlora_verify.harness.plan import Column, ColumnOutcome, MutantOutcome, RunOptions
from fastlora_verify.harness.runner.run import run_columns
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.base import Mutant, Probes

TESTDATA = Path(__file__).parent.parent / "testdata"
CPU = Column("head:cpu", "cpu")


class Recorder:
    """Events, written down."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int, int]] = []
        self.controls: list[str] = []
        self.done: list[tuple[str, str, str]] = []
        self.notes: list[str] = []

    def column_started(self, column: Column, mutants: int, done: int) -> None:
        self.started.append((column.id, mutants, done))

    def control_done(self, name: str, seconds: float) -> None:
        self.controls.append(name)

    def mutant_done(self, name: str, column: str, status: str) -> None:
        self.done.append((name, column, status))

    def note(self, text: str) -> None:
        self.notes.append(text)


def copy_of(tree: str, to: Path) -> Path:
    """A copy of a tree that a test may write to."""
    return Path(shutil.copytree(TESTDATA / tree, to / tree))


def target_of(root: Path, *modules: str, env: dict[str, str] | None = None) -> Target:
    """The tree at `root` as a target."""
    return Target(
        name=root.name,
        file=root / "target.toml",
        root=root,
        place=(),
        source_roots=("src",),
        modules=modules,
        instruments=(),
        tests=("tests",),
        pytest_args=(),
        gpu_marker="gpu",
        env=tuple((env or {}).items()),
        python=None,
        kernels=(),
        allowances=(),
    )


def mutant_of(root: Path, path: str, old: str, new: str, *, name: str = "", new_names: Iterable[str] = ()) -> Mutant:
    """The file at `path` with the one place `old` made `new`; probes on the first changed line."""
    text = (root / path).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
    source = text.replace(old, new)
    before, after = text.splitlines(keepends=True), source.splitlines(keepends=True)
    changed = [i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
    line = (changed[0] if changed else min(len(before), len(after)) - 1) + 1
    module = Path(path).stem
    return Mutant(
        name=name or f"edit@{module}[{new}]",
        mutation="edit",
        family="test",
        kernels=(),
        module=module,
        path=path,
        line=line,
        scope=f"{module}:",
        source=source,
        diff="".join(difflib.unified_diff(before, after, path, path)),
        gist=f"{old} -> {new}",
        probes=Probes((line,), (line,)),
        new_names=tuple(new_names),
    )


def options_for(tmp_path: Path, **changes: object) -> RunOptions:
    """Few workers, no libraries: what tests of the runner itself need."""
    options = RunOptions(run_dir=tmp_path / "run", workers=2, libraries=())
    return replace(options, **changes)  # type: ignore[arg-type]


def run_one(target: Target, mutants: list[Mutant], options: RunOptions) -> tuple[ColumnOutcome, Recorder]:
    """The only column of a run on the CPU, and what was told meanwhile."""
    events = Recorder()
    (column,) = run_columns(target, mutants, [CPU], options, events)
    return column, events


def outcome_of(column: ColumnOutcome, part: str) -> MutantOutcome:
    """The outcome of the one mutant whose name has `part` in it."""
    (found,) = [outcome for outcome in column.mutants if part in outcome.mutant]
    return found
