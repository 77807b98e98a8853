"""The folder of a run, and the files that a run writes."""

from __future__ import annotations

import re
from pathlib import Path

from fastlora_verify.harness.errors import FileError
from fastlora_verify.harness.recording import save
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.reports.record import RecordError, RunRecord, dumps, loads

RUNS = ".fastlora-verify"  # in the working folder; ignored by git, never copied
RECORD = "record.json"


def prepare_run_dir(path: Path | None, target: Target) -> Path:
    """Makes the run's folder; git ignores its content. Raises FileError if that can't be done."""
    folder = path if path is not None else Path.cwd() / RUNS / _folder_name(target.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = (folder if path is not None else folder.parent) / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise FileError(folder, f"the run's folder cannot be made: {error.strerror}") from error
    return folder.resolve()


def _folder_name(name: str) -> str:
    """A target's name as that of one folder, whatever stands in it."""
    return re.sub(r"[^\w.+@ -]", "-", name)[:60].strip(". ") or "target"


def record_in(run_dir: Path) -> RunRecord | None:
    """What the last run in this folder found; None if there is none that can be read."""
    try:
        return loads((run_dir / RECORD).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecordError):
        return None


def keep(record: RunRecord, run_dir: Path, also: Path | None) -> RunRecord:
    """Writes the record into the run's folder, and where else it was asked for. Raises FileError."""
    text = dumps(record)
    for path in (run_dir / RECORD, also):
        if path is not None:
            write(path, text)
    return record


def near(path: Path) -> str:
    """A path as the user would write it: relative where it lies below the working folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def write(path: Path, text: str) -> None:
    """Writes a file of the command line. Raises FileError."""
    try:
        save(text, path)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from error
