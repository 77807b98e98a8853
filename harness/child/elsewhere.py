"""Notices what probes can't see: new processes, and source files that are read as text."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_LOADER = "<frozen importlib._bootstrap_external>"
_REWRITING = os.path.join("_pytest", "assertion", "rewrite.py")
STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"})


def watch_elsewhere(notice: Callable[[], object], paths: frozenset[str]) -> None:
    """Calls `notice` when a process is started or one of `paths` (real paths) is opened or read by `linecache`."""
    _watch_events(notice, paths)
    _watch_lines(notice, paths)
    _watch_spawning(notice)


def watch_runs(notice: Callable[[str], object], paths: frozenset[str]) -> None:
    """Calls `notice` with each of `paths` (real paths) whose module is run, be it gone from memory later or not."""
    names = frozenset(os.path.basename(path) for path in paths)

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event == "exec":
            path = getattr(args[0], "co_filename", "")
            if os.path.basename(path) in names and (real := os.path.realpath(path)) in paths:
                notice(real)

    sys.addaudithook(heard)


def _watch_events(notice: Callable[[], object], paths: frozenset[str]) -> None:
    names = frozenset(os.path.basename(path) for path in paths)

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event in STARTS:
            notice()
        elif event == "open" and args and isinstance(args[0], str | bytes):
            path = os.fsdecode(args[0])
            if os.path.basename(path) in names and os.path.realpath(path) in paths and not is_import(sys._getframe(1)):
                notice()

    sys.addaudithook(heard)


def is_import(frame: FrameType | None) -> bool:
    """Whether a file is read to be run as a module: Python's own loader, or pytest's, which rewrites assertions."""
    for _ in range(4):
        if frame is None:
            return False
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if (name == "get_data" and file == _LOADER) or (name == "_rewrite_test" and file.endswith(_REWRITING)):
            return True
        frame = frame.f_back
    return False


def _watch_lines(notice: Callable[[], object], paths: frozenset[str]) -> None:
    """`inspect.getsource` reads a file once and then from a cache, which opens nothing."""
    getlines = linecache.getlines

    def watched(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        if os.path.realpath(filename) in paths:
            notice()
        return getlines(filename, module_globals)

    linecache.getlines = watched


def _watch_spawning(notice: Callable[[], object]) -> None:
    """`multiprocessing` starts its processes below `subprocess`, without an audit event."""
    try:
        import _posixsubprocess
    except ImportError:
        return
    module: Any = _posixsubprocess
    fork_exec = module.fork_exec

    def watched(*args: Any) -> Any:
        notice()
        return fork_exec(*args)

    module.fork_exec = watched
