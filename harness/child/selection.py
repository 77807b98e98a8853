"""Which of the collected tests are run, and what tells that one test depends on another."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Only:
    """Run these tests, if `collected` is the digest of all tests' ids."""

    tests: frozenset[str]
    collected: str


def digest_of(names: Sequence[str]) -> str:
    """Of test ids, in their order."""
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()


def random_streams() -> str:
    """A digest of the state of Python's, torch's and NumPy's random streams, of those that are loaded."""
    state = hashlib.sha256(repr(random.getstate()).encode())
    torch = sys.modules.get("torch")
    if torch is not None:
        state.update(torch.get_rng_state().numpy().tobytes())
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        state.update(kind.encode() + keys.tobytes() + repr(rest).encode())
    return state.hexdigest()[:16]
