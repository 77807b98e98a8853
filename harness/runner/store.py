"""Results as they come: one JSON line each, on disk before the next mutant begins, found again by key.

A key is a digest of everything that the outcome depends on, so that a result is never taken for another tree,
another suite or another version of this runner.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from fastlora_verify.harness.plan import Counts, Killer, MutantOutcome
from fastlora_verify.mutations.base import Mutant

FILE = "results.jsonl"


class Store:
    """The results of one run folder."""

    def __init__(self, run_dir: Path, *, resume: bool = True) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self._path = run_dir / FILE
        if not resume:
            self._path.unlink(missing_ok=True)
        self._known = _read(self._path)
        self._file = self._path.open("ab")

    def get(self, key: str) -> MutantOutcome | None:
        """The outcome that an earlier run stored under `key`."""
        data = self._known.get(key)
        return outcome_from_json(data) if data is not None else None

    def add(self, key: str, outcome: MutantOutcome) -> None:
        """Appends an outcome; it is on disk when this returns."""
        line = json.dumps({"key": key, "outcome": asdict(outcome)}, separators=(",", ":"), default=repr)
        self._file.write(line.encode("utf-8", "surrogatepass") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _read(path: Path) -> dict[str, Any]:
    """Stored outcomes by key. What follows the last newline was cut by a kill and is cut off the file."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole, newline, torn = data.rpartition(b"\n")
    if torn:
        with path.open("r+b") as file:
            file.truncate(len(whole) + len(newline))
    known = {}
    for line in whole.split(b"\n"):
        try:
            record = json.loads(line)
            known[record["key"]] = record["outcome"]
        except (ValueError, KeyError, TypeError):
            continue
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


def mutant_key(column_key: str, mutant: Mutant) -> str:
    """The key of a mutant in the column whose tree, device, tests and versions `column_key` stands for."""
    changes = [(c.path, c.source, c.probes.reached, c.probes.triggered) for c in mutant.changes]
    return digest(column_key, mutant.name, changes, mutant.new_names, mutant.kernels)


@cache
def runner_digest() -> str:
    """A digest of the runner's own code: a result judged by other code is no result."""
    total = hashlib.sha256()
    folder = Path(__file__).resolve().parent.parent
    for path in sorted(folder.rglob("*.py")):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()
