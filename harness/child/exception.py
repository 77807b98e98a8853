"""An exception as facts: what it is, whether a test judged by it, which frames of the copy it crossed."""

from __future__ import annotations

import os
import traceback
from types import TracebackType
from typing import Any

import pytest

MESSAGE = 300  # characters
FRAMES = 30

# Instruments whose verdict is an exception of another type than AssertionError.
_VERDICTS = frozenset(
    {
        "torch.autograd.gradcheck.GradcheckError",
        "doctest.DocTestFailure",
        "_pytest.doctest.MultipleDoctestFailures",
    }
)

_judging = (AssertionError, pytest.fail.Exception)
_realpath = os.path.realpath


def exception_fact(error: BaseException, root: str) -> dict[str, Any]:
    """`type`, `mro`, `judges`, `message` (first line), `name` (of a NameError) and `frames` in `root`.

    Frames are `[path relative to root, line, function]`, outermost first; the last FRAMES of them.
    """
    return {
        "type": type(error).__name__,
        "mro": [_full_name(cls) for cls in type(error).__mro__],
        "judges": _judges(error),
        "message": _first_line(error),
        "name": getattr(error, "name", None) if isinstance(error, NameError) else None,
        "frames": _frames(error, root)[-FRAMES:],
    }


def _full_name(cls: type) -> str:
    module = cls.__module__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def _judges(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_judges(inner) for inner in error.exceptions)
    return isinstance(error, _judging) or any(_full_name(cls) in _VERDICTS for cls in type(error).__mro__)


def _first_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as broken:
        text = f"its text raises {type(broken).__name__}"
    lines = text.strip().splitlines()
    return lines[0][:MESSAGE] if lines else ""


def _frames(error: BaseException, root: str) -> list[list[Any]]:
    frames = [
        [path, line, function]
        for filename, line, function in _entries(error.__traceback__)
        if (path := relative(filename, root)) is not None
    ]
    if isinstance(error, SyntaxError) and error.filename:
        path = relative(error.filename, root)
        if path is not None:  # a file that doesn't compile has no frame of its own
            frames.append([path, error.lineno or 0, "<module>"])
    return frames


def _entries(tb: TracebackType | None) -> list[tuple[str, int, str]]:
    entries = []
    for frame, line in traceback.walk_tb(tb):
        code = frame.f_code
        entries.append((code.co_filename, line, getattr(code, "co_qualname", code.co_name)))
    return entries


def relative(filename: str, root: str) -> str | None:
    """`filename` relative to `root`, with forward slashes; None when it lies elsewhere."""
    path = _realpath(os.path.join(root, filename))
    if not path.startswith(root + os.sep):
        return None
    return path[len(root) + 1 :].replace(os.sep, "/")
