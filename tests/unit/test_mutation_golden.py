"""The mutants of the reference kernels, a line each: what a change of a mutation or of a kernel adds, moves or loses.

`FASTLORA_UPDATE_GOLDEN=1` rewrites the list; not in CI, where the list must be as committed.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest
from reference_plan import reference_plan

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "reference-mutants.txt"
UPDATE = "FASTLORA_UPDATE_GOLDEN"


def listing() -> str:
    return "".join(f"{mutant.name}: {mutant.gist}\n" for mutant in reference_plan().mutants)


def may_update() -> bool:
    return os.environ.get(UPDATE) == "1" and not os.environ.get("CI")


def test_the_reference_mutants_are_those_of_the_golden_list() -> None:
    found = listing()
    if may_update():
        GOLDEN.write_text(found, encoding="utf-8")
    kept = GOLDEN.read_text(encoding="utf-8")
    diff = list(difflib.unified_diff(kept.splitlines(), found.splitlines(), "golden", "found", lineterm="", n=0))
    assert not diff, "\n".join([f"{UPDATE}=1 rewrites {GOLDEN.name}", *diff[:40]])


def test_ci_cannot_rewrite_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UPDATE, "1")
    monkeypatch.delenv("CI", raising=False)
    assert may_update()
    monkeypatch.setenv("CI", "true")
    assert not may_update()


def test_every_line_is_one_mutant_and_short_enough_to_read() -> None:
    lines = listing().splitlines()
    assert len(lines) == len(reference_plan().mutants) == len(set(lines))
    assert max(map(len, lines)) <= 400
