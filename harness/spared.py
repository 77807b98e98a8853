"""Files that spare a later run some work: written whole or not at all, and never a reason to fail."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_spared(path: Path, data: bytes) -> None:
    """Puts the data in the file's place. Two runs in one folder may do so at once; without room nothing is kept."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()


def drop_oldest(folder: Path, most: int) -> None:
    """Leaves so many of the folder's JSON files, the newest."""
    for path in sorted(folder.glob("*.json"), key=_age)[most:]:
        with contextlib.suppress(OSError):
            path.unlink()


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:  # another run has dropped it
        return 0.0
