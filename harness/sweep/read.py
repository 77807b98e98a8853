"""Records of sweeps among the files of a command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fastlora_verify.harness.errors import FileError, UsageError
from fastlora_verify.reports.record import RecordError
from fastlora_verify.reports.sweep_record import SweepRecord, from_json, is_sweep


def read_sweeps(paths: Sequence[Path]) -> list[SweepRecord]:
    """The sweeps in these files; none if none of them is one. Raises UsageError where only some are, FileError."""
    found = [(path, data) for path in paths if is_sweep(data := _data(path))]
    if found and len(found) < len(paths):
        other = next(path for path in paths if path not in {path for path, _ in found})
        raise UsageError(f"{found[0][0]} is the record of a sweep and {other} is none; show them one at a time")
    return [_sweep(path, data) for path, data in found]


def _data(path: Path) -> object:
    """A file's JSON; None where it has none, which whoever reads it as a run record says."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _sweep(path: Path, data: object) -> SweepRecord:
    try:
        return from_json(data)
    except RecordError as error:
        raise FileError(path, f"cannot be read as the record of a sweep: {error}") from error
