"""Notices which files of the copy a run reads, other than to import them, and whether it starts a process."""

from __future__ import annotations

import linecache
import os
import sys
from types import FrameType
from typing import Any

from fastlora_verify.harness.child.elsewhere import is_import, watch_elsewhere

_WRITES = os.O_WRONLY
_DEPTH = 10
# A line of source that is only shown beside a warning or in a traceback.
_SHOWING = (os.sep + "warnings.py", os.sep + "traceback.py", os.path.join("_pytest", "_code"))


class Reads:
    """What this process reads in the folder `root`, a real path."""

    def __init__(self, root: str) -> None:
        self._root = root + os.sep
        self._found: set[str] = set()
        self._starts = False

    def watch(self) -> None:
        """From now on, to the process's end."""
        watch_elsewhere(self._start, frozenset())
        sys.addaudithook(self._heard)
        getlines = linecache.getlines

        def watched(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
            if not _is_shown(sys._getframe(1)):
                self._read(filename)
            return getlines(filename, module_globals)

        linecache.getlines = watched

    def told(self) -> dict[str, Any]:
        """For the end line: `reads`, relative to the folder, and `starts`, whether a process was started."""
        return {"reads": sorted(self._found), "starts": self._starts}

    def _start(self) -> None:
        self._starts = True

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not args or not isinstance(args[0], str | bytes | os.PathLike):
            return
        if isinstance(args[2], int) and args[2] & _WRITES:
            return
        frame = sys._getframe(1)
        if not is_import(frame) and not _is_shown(frame):
            self._read(os.fsdecode(args[0]))

    def _read(self, path: str) -> None:
        real = os.path.realpath(path)
        if real.startswith(self._root):
            self._found.add(os.path.relpath(real, self._root).replace(os.sep, "/"))


def _is_shown(frame: FrameType | None) -> bool:
    for _ in range(_DEPTH):
        if frame is None:
            return False
        if any(part in frame.f_code.co_filename for part in _SHOWING):
            return True
        frame = frame.f_back
    return False
