"""Results as they come: one JSON line each, on disk before the next mutant begins, found again by key.

A key is a digest of everything that the outcome depends on, so that a result is never taken for another tree,
another suite or another version of this runner.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from fastlora_verify.harness.plan import Counts, Killer, MutantOutcome

FILE = "results.jsonl"
_NARROW = b',"narrow":"'
_KEYS = re.compile(rb'\{"key":"([0-9a-f]+)"(?:,"narrow":"([0-9a-f]+)")?,"outcome":')  # its outcome is read if asked


class Store:
    """The results of one run folder."""

    def __init__(self, run_dir: Path, *, resume: bool = True) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self._path = run_dir / FILE
        known = _read(self._path)
        self._known = known if resume else {}
        self.has_narrow = any(_NARROW in line for line in self._known.values())
        self._file = self._path.open("ab")

    def get(self, key: str) -> MutantOutcome | None:
        """The outcome that an earlier run stored under `key`, its narrow one or the other."""
        line = self._known.get(key)
        try:
            return outcome_from_json(json.loads(line)["outcome"]) if line is not None else None
        except (ValueError, KeyError, TypeError):
            return None

    def add(self, key: str, outcome: MutantOutcome, narrow: str | None = None) -> None:
        """Appends an outcome; it is on disk when this returns."""
        keys = {"key": key, **({"narrow": narrow} if narrow else {})}
        line = json.dumps({**keys, "outcome": asdict(outcome)}, separators=(",", ":"), default=repr)
        self._file.write(line.encode("utf-8", "surrogatepass") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _read(path: Path) -> dict[str, bytes]:
    """Stored lines by their keys. What follows the last newline was cut by a kill and is cut off the file."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole, newline, torn = data.rpartition(b"\n")
    if torn:
        with path.open("r+b") as file:
            file.truncate(len(whole) + len(newline))
    known: dict[str, bytes] = {}
    for line in whole.split(b"\n"):
        found = _KEYS.match(line)
        if found is not None:
            known |= {key.decode(): line for key in found.groups() if key}
    return known


def outcome_from_json(data: Mapping[str, Any]) -> MutantOutcome:
    """The inverse of `dataclasses.asdict`."""
    fields = dict(data)
    fields["counts"] = Counts(**data["counts"])
    fields["killers"] = tuple(Killer(**killer) for killer in data["killers"])
    for name in ("reached_tests", "differences"):
        fields[name] = tuple(tuple(item) for item in data[name])
    for name in ("skipped_here", "oracles"):
        fields[name] = tuple(data[name])
    return MutantOutcome(**fields)


def digest(*parts: object) -> str:
    """SHA-256 of the JSON of `parts`."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def runner_digest() -> str:
    """A digest of the runner's own code: a result judged by other code is no result."""
    total = hashlib.sha256()
    folder = Path(__file__).resolve().parent.parent
    for path in sorted(folder.rglob("*.py")):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()
