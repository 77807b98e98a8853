"""What a test printed, shortened to what a reader needs of it."""

from __future__ import annotations

import os
import re

MOST = 4000  # characters kept of one test, whatever it prints

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def shortened(text: str, limit: int) -> str:
    """`text` as a terminal would leave it, in at most about `limit` characters: its beginning and its end."""
    plain = "\n".join(_last_written(line) for line in _COLOURS.sub("", text).split("\n")).strip("\n")
    if len(plain) <= limit:
        return plain
    half = limit // 2
    return f"{plain[:half]}\n… {len(plain) - 2 * half:,} characters left out …\n{plain[-half:]}"


def sections_within(sections: list[tuple[str, str]], root: str, limit: int = MOST) -> list[tuple[str, str]]:
    """Each titled text of a test (captured stdout, stderr, log) in its share of `limit`; empty ones are dropped.

    Paths in the copy at `root` become those in the target.
    """
    told = [(title, text.replace(root + os.sep, "")) for title, text in sections if text.strip()]
    share = limit // max(1, len(told))
    return [(title[:80], shortened(text, share)) for title, text in told]


def _last_written(line: str) -> str:
    """What a line shows after its carriage returns: the last state of a progress bar."""
    return line.rstrip("\r").rpartition("\r")[2]
