"""What an earlier run found that holds here too: a column's controls, and outcomes of its mutants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from fastlora_verify.harness.plain import from_plain, to_plain
from fastlora_verify.harness.plan import KILLED, NOT_VIABLE, Events, MutantOutcome, RunOptions
from fastlora_verify.harness.runner.controls import Controlled
from fastlora_verify.harness.runner.executor import Executor
from fastlora_verify.harness.runner.jobs import Chosen
from fastlora_verify.harness.runner.keys import Keys, Read, Tests
from fastlora_verify.harness.runner.store import Store, digest
from fastlora_verify.harness.runner.warm import Limits
from fastlora_verify.harness.spared import drop_oldest, write_spared
from fastlora_verify.mutations.base import Mutant

FOLDER = "controls"
_MOST = 24  # columns whose controls are kept


@dataclass(frozen=True)
class Found:
    """What must be known of a column before a mutant of it is judged."""

    controlled: Controlled
    oracles: tuple[Mapping[str, Any], ...]  # on the unmutated kernels
    oracle_limits: Limits | None
    read: Read  # what else of the tree it all depends on


class Reuse:
    """The kept results of one column of `paths`, the files that mutants change."""

    def __init__(self, store: Store, keys: Keys, options: RunOptions, paths: Sequence[str], changed: Sequence[str]):
        self._store = store
        self._keys = keys
        raising = [(path, keys.source(source)) for path, source in options.raising_sources]
        key = digest(keys.tree, list(paths), list(changed), raising, options.several, options.beside)
        self._file = options.run_dir / FOLDER / f"{key}.json"
        self._mode = options.mode
        self._tests: Tests | None = None

    def controls(self, sources: Mapping[str, str]) -> Found | None:
        """What the controls gave on a tree that is the same as far as it counts; `sources` are today's."""
        try:
            found: Found = from_plain(Found, json.loads(self._file.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not self._keys.holds(found.read):
            return None
        reach = found.controlled.reach
        if reach is None:
            return found
        return replace(found, controlled=replace(found.controlled, reach=replace(reach, sources=sources)))

    def keep_controls(self, found: Found) -> None:
        """Writes what the controls gave; the oldest of many go."""
        controlled = found.controlled
        if controlled.reach is not None:
            controlled = replace(controlled, reach=replace(controlled.reach, sources={}))
        text = json.dumps(to_plain(replace(found, controlled=controlled)), separators=(",", ":"), default=repr)
        write_spared(self._file, text.encode("utf-8", "surrogatepass"))
        drop_oldest(self._file.parent, _MOST)

    def exact(self, mutants: Iterable[Mutant], found: Found) -> dict[str, MutantOutcome]:
        """Outcomes of mutants for which nothing changed that counts."""
        kept = {mutant.name: self._store.get(self._exact(mutant, found)) for mutant in mutants}
        return {name: outcome for name, outcome in kept.items() if outcome is not None}

    def narrow(self, mutants: Iterable[Mutant], found: Found) -> dict[str, MutantOutcome]:
        """Outcomes of mutants for which only tests changed that cannot see them; kept anew for this tree."""
        reach = found.controlled.reach
        if reach is None or not self._store.has_narrow:
            return {}
        outcomes = {}
        for mutant in mutants:
            only = reach.chosen({change.path: change.source for change in mutant.changes})
            key = self._narrow(mutant, found, only)
            outcome = self._store.get(key) if key is not None else None
            if outcome is not None:
                outcomes[mutant.name] = outcome
                self.add(mutant, outcome, found, only)
        return outcomes

    def add(self, mutant: Mutant, outcome: MutantOutcome, found: Found, only: Chosen | None) -> None:
        """Keeps an outcome that running these tests gave; None: all of them."""
        lasting = outcome.status in (KILLED, NOT_VIABLE)  # a survivor, or trouble of the machine's, is run again
        self._store.add(self._exact(mutant, found), outcome, self._narrow(mutant, found, only) if lasting else None)

    def _exact(self, mutant: Mutant, found: Found) -> str:
        return self._keys.exact(mutant, self._asked(found), found.read)

    def _asked(self, found: Found) -> str:
        """The mode, and the tests whose failures kill nothing."""
        return json.dumps([self._mode, sorted(found.controlled.baseline.flaky)])

    def _narrow(self, mutant: Mutant, found: Found, only: Chosen | None) -> str | None:
        if only is None:
            return None
        if self._tests is None:
            self._tests = self._keys.tests(found.controlled.baseline)
        return self._keys.narrow(mutant, self._asked(found), found.read, self._tests, only.tests)


def prepared(found: Found, pool: Executor, events: Events) -> bool:
    """Makes the pool what the controls left it as; False where children aren't started as they were then, or there."""
    controlled = found.controlled
    if pool.elsewhere or (controlled.mode == "fork") != pool.forks:
        return False
    if controlled.hosted:
        problem = pool.host(controlled.baseline.libraries)
        if problem:
            events.note(f"every mutant's tests are collected anew: {problem}")
    return True


def told(known: Sized, all_: Sized, *, controls: bool) -> tuple[str, ...]:
    """The note for the reader of the report; `controls` if they were run."""
    also = "" if controls else ", and so are the controls"
    same = "nothing that could change them did"
    if known:
        return (f"{len(known)} of {len(all_)} results are those of an earlier run{also}: {same}",)
    return () if controls else (f"the controls are those of an earlier run: {same}",)
