"""Progress: a bar on a terminal, plain lines in a log, with counts and an estimate that is not made of controls."""

from __future__ import annotations

import io

from rich.console import Console

from fastlora_verify.harness.plan import Column
from fastlora_verify.harness.progress import EVERY, BarProgress, LogProgress

CPU = Column("head:cpu", "cpu")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_says_what_starts_each_survivor_and_now_and_then_how_far_it_is() -> None:
    stream, clock = io.StringIO(), Clock()
    with LogProgress(stream, clock) as log:
        log.column_started(CPU, 40, 4)
        clock.now = 100.0  # the controls' time is not the mutants'
        log.control_done("unmutated", 7.5)
        for number in range(5):
            clock.now += 1.0
            log.mutant_done(f"m{number}@a", "head:cpu", "killed")
        clock.now += EVERY
        log.mutant_done("quiet\n@a", "head:cpu", "survived")
        log.note("a\nnote")
    assert stream.getvalue().splitlines() == [
        "head:cpu: controls, then 40 mutants, 4 of them known from before",
        "  control unmutated: green (7.5 s)",
        "  survived: quiet @a (head:cpu)",
        "head:cpu: 10/40: 5 killed, 1 survived, 4 known from before; about 2 min left",
        "note: a note",
    ]


def test_a_log_tells_the_end_of_a_column_at_once() -> None:
    stream = io.StringIO()
    log = LogProgress(stream, Clock())
    log.column_started(CPU, 2, 0)
    log.mutant_done("a", "head:cpu", "killed")
    log.mutant_done("b", "head:cpu", "timeout")
    assert stream.getvalue().splitlines()[1:] == [
        "  timeout: b (head:cpu)",
        "head:cpu: 2/2: 1 killed, 0 survived, 1 timeout",
    ]


def test_a_terminal_gets_a_bar_with_counts_and_survivors_above_it() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    with BarProgress(console, clock) as bar:
        bar.column_started(CPU, 3, 0)
        bar.control_done("unmutated", 1.0)
        for name, status in (("a[x]", "killed"), ("b[red]", "survived")):
            clock.now += 60.0
            bar.mutant_done(name, "head:cpu", status)
    text = stream.getvalue()
    assert "survived: b[red] (head:cpu)" in text
    assert "2/3" in text
    assert "1 killed, 1 survived; about 60 s left" in text
