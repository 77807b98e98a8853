"""Complete lines of a file descriptor, as JSON."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from typing import Any


class Lines:
    """Reads without a buffer that a fork would copy half full: what is read is handed on before the next job."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self.ended = False

    def first(self) -> dict[str, Any]:
        """Waits for the first line."""
        while not self.ended:
            for line in self.read(3600.0):
                return line
        raise SystemExit(0)

    def read(self, seconds: float) -> Iterator[dict[str, Any]]:
        """The lines that are there, or that come within `seconds`."""
        if b"\n" not in self._rest and select.select([self._fd], [], [], seconds)[0]:
            data = os.read(self._fd, 1 << 16)
            self.ended = not data
            self._rest += data
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            yield json.loads(line)
