"""One mutant to repeat by hand: its diff, and a tree that has it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastlora_verify.harness.errors import FileError, UsageError
from fastlora_verify.harness.loading import Loaded
from fastlora_verify.harness.targets.sources import encoded_as, on_disk
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.tree import make_master
from fastlora_verify.mutations.base import Changed, Mutant


@dataclass(frozen=True)
class Applied:
    """Where a mutant was written, and how its tests are run there."""

    files: tuple[Path, ...]
    command: str


def only_one(mutants: Sequence[Mutant], name: str) -> Mutant:
    """The mutant that `name` means. Raises UsageError if it means several."""
    if len(mutants) > 1:
        names = ", ".join(mutant.name for mutant in mutants[:4]) + (", …" if len(mutants) > 4 else "")
        raise UsageError(f"{name} means {len(mutants)} mutants; give the name of one: {names}")
    return mutants[0]


def apply(loaded: Loaded, mutant: Mutant, to: Path, *, first: bool = False) -> Applied:
    """Writes the mutant into `to`.

    A folder that doesn't exist, or is empty, becomes a whole copy of the target, laid out as the runner does.
    Into a copy that is there already only the mutant's files are written, and only if they are the unmutated ones.
    The target's own tree is refused: raises UsageError or FileError. With `first` the command stops at the first
    failure.
    """
    target = loaded.target
    _check_outside(target, to)
    try:
        if not to.exists() or (to.is_dir() and not any(to.iterdir())):
            if to.exists():
                to.rmdir()
            make_master(target, to)
        files = [_file_in(target, change, to) for change in mutant.changes]  # all are looked at before one is written
        for file, change in zip(files, mutant.changes, strict=True):
            if change.source is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(encoded_as(file, change.source))
    except OSError as error:
        raise FileError(to, f"cannot be written: {error.strerror or error}") from error
    return Applied(tuple(files), _command(target, to, first=first))


def _check_outside(target: Target, to: Path) -> None:
    """Raises UsageError for a folder of the target's own."""
    for folder in _folders(target):
        own, place = folder.resolve(), to.resolve()
        if place == own:
            raise _is_target(to)
        if place.is_relative_to(own):
            raise UsageError(
                f"{to} lies inside the target {folder}, which is never written; give a folder outside of it"
            )


def _folders(target: Target) -> list[Path]:
    """The user's folders that the target is copied from."""
    return [folder for folder in (target.root, *(folder for _, folder in target.place)) if folder is not None]


def _is_target(to: Path) -> UsageError:
    return UsageError(f"{to} is the target itself, which is never written; give a copy, or a new folder")


def _file_in(target: Target, change: Changed, to: Path) -> Path:
    """One file of the mutant in the copy `to`, in the runner's layout or in that of the user's own tree."""
    source = on_disk(target, change.path)
    if source is None:
        return _new_file(target, change, to)
    source = source.resolve()
    tails = [Path(*source.parts[-length:]) for length in range(len(source.parts) - 1, 0, -1)]
    found = [to / inner for inner in (Path(change.path), *tails) if (to / inner).is_file()]
    if not found:
        raise UsageError(f"{to} has no {change.path}; give a copy of the target, or a folder that is not there yet")
    if found[0].resolve() == source:
        raise _is_target(to)
    if found[0].read_bytes() != source.read_bytes():
        raise UsageError(f"{found[0]} is not the target's unmutated file; give a fresh copy")
    return found[0]


def _new_file(target: Target, change: Changed, to: Path) -> Path:
    """A file that the mutant adds: never into the target's own tree, never over another."""
    file = to / change.path
    if any(file.resolve().is_relative_to(folder.resolve()) for folder in _folders(target)):
        raise _is_target(to)
    if file.exists():
        raise UsageError(f"{file} is there already, and the mutant adds it; give a fresh copy")
    return file


def _command(target: Target, to: Path, *, first: bool) -> str:
    """How plain pytest runs the target's tests in the folder."""
    place = to.resolve()
    roots = ":".join(str(place / root) if root != "." else str(place) for root in target.source_roots)
    env = {**dict(target.env), "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["env", *(f"{name}={value}" for name, value in env.items())]
    words += [target.python or sys.executable, "-P", "-m", "pytest", *(["-x"] if first else []), *target.pytest_args]
    words += target.tests
    return f"cd {shlex.quote(str(place))} && {shlex.join(words)}"
