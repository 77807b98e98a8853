"""Which names have a value at a place of a program, over all paths that lead there."""

from __future__ import annotations

from dataclasses import dataclass

NEVER, PERHAPS, SURELY = 0, 1, 2

Key = tuple[int, str]  # of a scope and a name in it


@dataclass(frozen=True)
class State:
    """Names that have a value on every path to a place, and on some path."""

    sure: frozenset[Key] = frozenset()
    some: frozenset[Key] = frozenset()

    def level(self, key: Key) -> int:
        """NEVER, PERHAPS or SURELY."""
        return SURELY if key in self.sure else PERHAPS if key in self.some else NEVER


Reached = State | None  # None: no path leads there


def join(*states: Reached) -> Reached:
    """Where several paths meet; None where none of them arrives."""
    live = [state for state in states if state is not None]
    if not live:
        return None
    sure, some = live[0].sure, live[0].some
    for state in live[1:]:
        sure, some = sure & state.sure, some | state.some
    return State(sure, some)
