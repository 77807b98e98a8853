"""Which runs a record is of: one, a shard of one, or several that were merged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunOrigin:
    """One of the runs that a merged record is made of."""

    file: str
    tool_version: str
    command: tuple[str, ...]
    started_at: str
    seconds: float
    columns: tuple[str, ...]  # ids in the merged record
    shard: str = ""  # "2/3" where it was one of a run's shards


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Part `number` of `of` of a run's mutants: dealt round, so the parts are even, and the same on every machine."""

    number: int  # from 1
    of: int
    names: tuple[str, ...]  # of all mutants of the run, those of the other shards too, in the plan's order

    @property
    def part(self) -> tuple[str, ...]:
        """Its own mutants, perhaps none."""
        return self.names[self.number - 1 :: self.of]

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"
