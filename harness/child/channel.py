"""Lines of JSON out of a process whose code may close, patch or kill what it likes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from json import JSONEncoder
from os import write as _write
from typing import Any

HIGH = 200  # far above what code counts on finding free, and above what a careless close loop reaches
LOST = 113  # exit status of a process whose channel is gone

hard_exit = os._exit
_encode = JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=repr).encode


def private_fd(fd: int) -> int:
    """A copy of `fd` with a high number that no subprocess inherits."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)


class Channel:
    """Writes one JSON object a line, each with a single write, so that a kill loses at most the last line.

    `vital`: a process that can't tell its facts any more ends, which the parent reads as a crash. Otherwise the
    line is dropped: a guardian whose parent is gone still has to clean up.
    """

    def __init__(self, fd: int, *, vital: bool) -> None:
        self._fd = fd
        self._vital = vital

    @classmethod
    def to_file(cls, path: str) -> Channel:
        """A channel that appends to `path`."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return cls(private_fd(fd), vital=True)
        finally:
            os.close(fd)

    def close(self) -> None:
        """For a process that has nothing to say here."""
        os.close(self._fd)

    def send(self, record: Mapping[str, Any]) -> None:
        """Writes `record`."""
        data = (_encode(record) + "\n").encode("ascii")
        try:
            while data:
                data = data[_write(self._fd, data) :]
        except OSError:
            if self._vital:
                hard_exit(LOST)
