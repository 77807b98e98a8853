"""Keeps docs/reviews.md true: the two reviews, entry by entry, beside what our commands give.

    scripts/reviews.py --measure ORACLES.json                     runs the oracles, measurements and tests named
    scripts/reviews.py --record RUN.json [--oracles ORACLES.json]  condenses them and writes the page
    scripts/reviews.py --check                                     1 if the page or an entry is stale

RUN.json is a run record: `fastlora-verify mutate --all --json RUN.json`. A record of some mutants only, or no
--oracles, leaves the rest of docs/reviews-results.json as it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from review_entries import Round, faults, read_rounds
from review_page import page
from review_results import condensed, measure, missing

from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.mutations.plan import Plan, plan_mutants
from fastlora_verify.reports.record import loads

ROOT = Path(__file__).parent.parent
SHOWN = 40


@dataclass(frozen=True)
class Files:
    """Where things lie. `root` has the tests and measurements that entries name."""

    root: Path
    entries: Path
    results: Path
    page: Path


HERE = Files(
    ROOT,
    ROOT / "docs" / "reviews.toml",
    ROOT / "docs" / "reviews-results.json",
    ROOT / "docs" / "reviews.md",
)


def plan_reference() -> Plan:
    """All mutants of the reference kernels."""
    target = load_target(None)
    return plan_mutants(read_sources(target), target.kernels, target.instruments)


def check(files: Files, plan: Plan) -> list[str]:
    """Everything that is stale or leads nowhere, a sentence each; empty if the page is true."""
    rounds = read_rounds(files.entries)
    wrong = faults(rounds, plan, files.root)
    if wrong:
        return wrong
    results = json.loads(files.results.read_text(encoding="utf-8"))
    wrong = missing(rounds, plan, results)
    if not wrong and files.page.read_text(encoding="utf-8") != page(rounds, plan, results):
        wrong = [f"{files.page.name} is not what {files.entries.name} and {files.results.name} give"]
    return wrong


def write(files: Files, rounds: Sequence[Round], plan: Plan, results: dict[str, Any]) -> None:
    """The results file, a line a mutant so that differences can be read, and the page."""
    lines = []
    for part, content in results.items():
        if isinstance(content, dict) and part not in ("run", "baseline"):
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
            lines.append(f" {json.dumps(part)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(part)}: {json.dumps(content)}")
    files.results.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    files.page.write_text(page(rounds, plan, results), encoding="utf-8")


def record(files: Files, plan: Plan, run: Path, oracles: Path | None) -> list[str]:
    """Takes a run record in and writes results and page; returns what is still missing."""
    rounds = read_rounds(files.entries)
    wrong = faults(rounds, plan, files.root)
    if wrong:
        return wrong
    old = json.loads(files.results.read_text(encoding="utf-8")) if files.results.exists() else {}
    measured = json.loads(oracles.read_text(encoding="utf-8")) if oracles else {}
    results = condensed(loads(run.read_text(encoding="utf-8")), measured, rounds, plan, old)
    write(files, rounds, plan, results)
    return missing(rounds, plan, results)


def main(arguments: Sequence[str]) -> int:
    """0, or 1 with the faults on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, metavar="ORACLES.json")
    parser.add_argument("--record", type=Path, metavar="RUN.json")
    parser.add_argument("--oracles", type=Path, metavar="ORACLES.json")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    wrong: list[str] = []
    if options.measure:
        measured = measure(read_rounds(HERE.entries), ROOT)
        options.measure.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    if options.record:
        wrong = record(HERE, plan_reference(), options.record, options.oracles)
    if options.check:
        wrong = check(HERE, plan_reference())
    for fault in wrong[:SHOWN]:
        print(fault, file=sys.stderr)
    if wrong[SHOWN:]:
        print(f"and {len(wrong) - SHOWN} more", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
