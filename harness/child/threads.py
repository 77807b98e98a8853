"""Whether this process may fork: only the libraries' idle helper threads may exist."""

from __future__ import annotations

import os
import threading
from time import sleep

# Python threads that importing the libraries leaves, by the start of their names. Each sleeps until it is
# given work, and holds no lock while it sleeps.
_IDLE_PYTHON = ("tqdm", "TMonitor", "pymp-", "ThreadPoolExecutor")


def reason_not_to_fork() -> str:
    """Empty, or the thread that forbids it."""
    for thread in threading.enumerate():
        known = any(thread.name.startswith(name) for name in _IDLE_PYTHON)
        if thread is not threading.main_thread() and not (thread.daemon and known):
            return f"importing the libraries left the thread {thread.name!r} running"
    busy = _busy_native_threads()
    return f"importing the libraries left the native thread {busy[0]!r} running" if busy else ""


def _busy_native_threads() -> list[str]:
    """Names of the other native threads that ran between two looks (Linux; elsewhere none)."""
    before = _native_threads()
    if not before:
        return []
    sleep(0.05)
    after = _native_threads()
    return [name for tid, (name, state, ticks) in after.items() if state != "S" or before.get(tid) != after[tid]]


def _native_threads() -> dict[str, tuple[str, str, int]]:
    found: dict[str, tuple[str, str, int]] = {}
    try:
        tids = os.listdir("/proc/self/task")
    except OSError:
        return found
    for tid in tids:
        if int(tid) == os.getpid():
            continue
        try:
            with open(f"/proc/self/task/{tid}/stat", encoding="utf-8") as file:
                head, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        found[tid] = (head.partition("(")[2], fields[0], int(fields[11]) + int(fields[12]))
    return found
