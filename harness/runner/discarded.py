"""Folders that nobody needs any more, removed beside the run: on some file systems that takes longer than a test."""

from __future__ import annotations

import shutil
import threading
from itertools import count
from pathlib import Path

_numbers = count()


def discard(folder: Path) -> None:
    """Takes the folder away at once; what was in it goes later, at the latest with the folder around it."""
    aside = folder.with_name(f"{folder.name}.{next(_numbers)}")
    try:
        folder.rename(aside)
    except OSError:  # it is not there, or may not be moved
        shutil.rmtree(folder, ignore_errors=True)
        return
    threading.Thread(target=shutil.rmtree, args=(aside,), kwargs={"ignore_errors": True}).start()
