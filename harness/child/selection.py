"""Which of the collected tests are run, and what tells that one test depends on another."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Only:
    """Run these tests, if `collected` is the digest of all tests' ids."""

    tests: frozenset[str]
    collected: str
    backwards: bool = False  # the last first
    listed: tuple[str, ...] = ()  # the order in which they are run; empty: the suite's

    def in_order(self, items: Sequence[Any]) -> list[Any]:
        """Those of pytest's items that are run."""
        chosen = [item for item in items if item.nodeid in self.tests]
        places = {test: place for place, test in enumerate(self.listed)}
        chosen.sort(key=lambda item: places.get(item.nodeid, len(places)))
        return chosen[::-1] if self.backwards else chosen


def digest_of(names: Sequence[str]) -> str:
    """Of test ids, in their order."""
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()


def random_streams() -> list[str]:
    """Digests of the states of Python's, torch's and NumPy's random streams, empty for one that isn't loaded."""
    states = [repr(random.getstate()).encode(), b"", b""]
    torch = sys.modules.get("torch")
    if torch is not None:
        states[1] = torch.get_rng_state().numpy().tobytes()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        states[2] = kind.encode() + keys.tobytes() + repr(rest).encode()
    return [hashlib.sha256(state).hexdigest()[:16] for state in states]


def stir(name: str) -> None:
    """Puts the random streams into states that depend on the test alone."""
    seed = int(hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16)
    random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)  # not torch.manual_seed: a card is none of our business
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(seed)
