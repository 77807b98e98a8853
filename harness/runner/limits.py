"""What a run of the tests may use before it is killed, from what the unmutated suite used."""

from __future__ import annotations

from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.runner.judge import End
from fastlora_verify.harness.runner.warm import Limits

_START_SECONDS = 120.0  # what a new interpreter may need before the first test
_FOLLOWED = 4.0  # times a mutant's limits: following lines alone can take five times the suite's CPU time


def limits_of(options: RunOptions, end: End) -> Limits:
    """A mutant's limits, from the unmutated suite."""
    return Limits(
        wall=max(options.wall_floor, options.wall_factor * end.seconds),
        cpu=max(options.cpu_floor, options.cpu_factor * end.cpu_seconds),
        memory=options.memory_limit,
    )


def plain_limits(limits: Limits) -> Limits:
    """The same for a plain pytest, which imports the libraries itself."""
    return Limits(limits.wall + _START_SECONDS, limits.cpu + _START_SECONDS, limits.memory)


def followed_limits(limits: Limits) -> Limits:
    """The same for a run whose lines are followed, which no mutant's is."""
    return Limits(_FOLLOWED * limits.wall, _FOLLOWED * limits.cpu, limits.memory)
