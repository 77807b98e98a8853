"""When a run that is asked for the verdict alone may end: once a test has failed that kills, however the rest fares.

Whatever could still make the mutant another thing than killed keeps the run going: that nothing has run the mutated
code yet, that a changed file is not imported, that the failure is the mutant's own NameError or its import's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Until:
    """What a killing failure is told by."""

    passed: frozenset[str]  # tests that passed on the unmutated tree: only these can kill
    files: frozenset[str]  # that the mutant changes, relative to the copy
    names: frozenset[str]  # that the mutant brings in: a NameError on one breaks it, and kills nothing
    more: int  # tests that are run after a kill by exception, for one by assertion

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Until | None:
        """What the job says; None: every test is run."""
        until = job.get("until")
        if not until:
            return None
        names = {name: frozenset(until[name]) for name in ("passed", "files", "names")}
        return cls(**names, more=until["more"])


class Stopping:
    """Hears of every test, in their order."""

    def __init__(self, until: Until) -> None:
        self._until = until
        self._reached = False
        self._left: int | None = None  # tests that may still show an assertion; None: nothing has killed yet

    def enough(self, test: Mapping[str, Any], in_memory: Callable[[], Iterable[str]]) -> bool:
        """Whether the run may end after `test`, a line of `facts.py`; `in_memory` tells the copy's files that are."""
        self._reached |= test["reached"]
        if self._left is not None:
            self._left -= 1
        raised = self._killing(test)
        if raised is not None and self._left is None:
            self._left = self._until.more
        if self._left is None or not (self._left <= 0 or self._judges(raised)):
            return False
        return self._reached and self._until.files <= set(in_memory())

    def _killing(self, test: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a test raised that kills; None of any other."""
        failed = any(phase["category"] in ("failed", "error") for phase in test["phases"])
        if not failed or test["test"] not in self._until.passed:
            return None
        raised: Mapping[str, Any] | None = next((p["exception"] for p in test["phases"] if "exception" in p), None)
        return raised if raised is not None and not self._is_broken(raised) else None

    def _is_broken(self, raised: Mapping[str, Any]) -> bool:
        """Whether the mutant may be no code at all, rather than wrong: then its failures kill nothing."""
        at_import = any(path in self._until.files and function == "<module>" for path, _, function in raised["frames"])
        return at_import or ("NameError" in raised["mro"] and bool(self._until.names))

    def _judges(self, raised: Mapping[str, Any] | None) -> bool:
        """Whether a test judged: not the mutated code's own assertion."""
        if raised is None or not raised["judges"]:
            return False
        return not raised["frames"] or raised["frames"][-1][0] not in self._until.files
