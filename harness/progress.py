"""Tells a run's progress on stderr: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fastlora_verify.harness.plan import Column
from fastlora_verify.reports.escape import one_line
from fastlora_verify.reports.names import counted

EVERY = 15.0  # s between two lines in a log
LOUD = ("timeout", "crash", "not-viable")


class Tally:
    """How far a column is, and how long the rest will take at the pace so far."""

    def __init__(self, column: str, total: int, done: int, clock: Callable[[], float]) -> None:
        self.column, self.total = column, total
        self._clock, self._known = clock, done
        self._begin: float | None = None
        self.counts: Counter[str] = Counter()

    @property
    def done(self) -> int:
        return self._known + self.counts.total()

    def begin(self) -> None:
        """The first mutant starts now: controls don't count for the pace."""
        if self._begin is None:
            self._begin = self._clock()

    def told(self) -> str:
        """`38 killed, 2 survived, 1 timeout; about 3 min left`."""
        parts = [f"{self.counts[status]} {status}" for status in ("killed", "survived")]
        parts += [f"{n} {status}" for status, n in self.counts.items() if status not in ("killed", "survived")]
        if self._known:
            parts.append(f"{self._known} known from before")
        return ", ".join(parts) + self._left()

    def _left(self) -> str:
        rest, fresh = self.total - self.done, self.counts.total()
        if not rest or not fresh or self._begin is None:
            return ""
        seconds = (self._clock() - self._begin) / fresh * rest
        return f"; about {f'{seconds / 60:.0f} min' if seconds >= 90 else f'{seconds:.0f} s'} left"


class LogProgress:
    """Plain lines: what starts, every survivor at once, and how far it is every now and then."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._tally: Tally | None = None
        self._last = 0.0

    def __enter__(self) -> LogProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def column_started(self, column: Column, mutants: int, done: int) -> None:
        self._tally = Tally(column.id, mutants, done, self._clock)
        known = f", {done} of them known from before" if done else ""
        self._say(f"{column.id}: controls, then {counted(mutants, 'mutant')}{known}")

    def control_done(self, name: str, seconds: float) -> None:
        self._say(f"  control {name}: green ({seconds:.1f} s)")
        if self._tally is not None:
            self._tally.begin()
        self._last = self._clock()

    def mutant_done(self, name: str, column: str, status: str) -> None:
        tally = self._tally
        if tally is None:
            return
        tally.begin()
        tally.counts[status] += 1
        if status == "survived" or status in LOUD:
            self._say(f"  {status}: {one_line(name)} ({column})")
        if self._clock() - self._last >= EVERY or tally.done == tally.total:
            self._last = self._clock()
            self._say(f"{column}: {tally.done}/{tally.total}: {tally.told()}")

    def note(self, text: str) -> None:
        self._say(f"note: {one_line(text, 400)}")

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class BarProgress:
    """A bar a column, with the counts and the rest; survivors stand above it."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[told]}", markup=False),
            console=console or Console(stderr=True),
        )
        self._tally: Tally | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> BarProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def column_started(self, column: Column, mutants: int, done: int) -> None:
        self._tally = Tally(column.id, mutants, done, self._clock)
        self._task = self._bar.add_task(column.id, total=mutants, completed=done, told="controls")

    def control_done(self, name: str, seconds: float) -> None:
        if self._tally is not None:
            self._tally.begin()
        self._update(f"control {name}: green")

    def mutant_done(self, name: str, column: str, status: str) -> None:
        if self._tally is None:
            return
        self._tally.begin()
        self._tally.counts[status] += 1
        if status == "survived" or status in LOUD:
            self._print(f"{status}: {one_line(name)} ({column})")
        self._update(self._tally.told())

    def note(self, text: str) -> None:
        self._print(f"note: {one_line(text, 400)}")

    def _print(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def _update(self, told: str) -> None:
        if self._task is not None and self._tally is not None:
            self._bar.update(self._task, completed=self._tally.done, told=told)


def progress() -> BarProgress | LogProgress:
    """The one that suits stderr."""
    return BarProgress() if sys.stderr.isatty() else LogProgress()
