"""Notices what probes can't see: new processes, and source files that are read as text."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from typing import Any

STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"})


def watch_elsewhere(notice: Callable[[], object], paths: frozenset[str]) -> None:
    """Calls `notice` when a process is started or one of `paths` (real paths) is opened or read by `linecache`."""
    _watch_events(notice, paths)
    _watch_lines(notice, paths)
    _watch_spawning(notice)


def _watch_events(notice: Callable[[], object], paths: frozenset[str]) -> None:
    names = frozenset(os.path.basename(path) for path in paths)

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event in STARTS:
            notice()
        elif event == "open" and args and isinstance(args[0], str | bytes):
            path = os.fsdecode(args[0])
            if os.path.basename(path) in names and os.path.realpath(path) in paths:
                notice()

    sys.addaudithook(heard)


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
