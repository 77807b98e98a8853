"""What a run record and the measurements give for the entries: docs/reviews-results.json.

{"run": {…}, "baseline": {…},
 "mutants": {NAME: {"status", "how", "failed", "passed", "skipped", "files", "allowed", "figures"}},
 "oracles": {COMMAND: [{"kernel", "name", "value", "limit", "unit", "ok"}]},
 "measures": {NAME: {FIGURE: VALUE}}, "tests": {TEST: {"passed", "failed", "skipped"}}}
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from review_entries import Entry, Round, entries_of, planned

from fastlora_verify.harness.selection import matches
from fastlora_verify.mutations.plan import Plan
from fastlora_verify.reports.record import Figure, MutantRecord, RunRecord, loads

Results = dict[str, Any]
WORDS = {"error": "failed", "failure": "failed", "skipped": "skipped"}
PARTS = ("run", "baseline", "mutants", "oracles", "measures", "tests")


def measure(rounds: Sequence[Round], root: Path) -> Results:
    """Runs every oracle command, measurement and test that an entry names. Minutes."""
    entries = list(entries_of(rounds))
    commands = sorted({entry.oracle for entry in entries if entry.oracle})
    names = sorted({name for entry in entries for name in entry.measure})
    tests = sorted({test for entry in entries for test in entry.tests})
    measured = _run([sys.executable, "-P", "scripts/review_figures.py", *names], root)
    return {
        "oracles": {command: oracle_figures(command, root) for command in commands},
        "measures": json.loads(measured),
        "tests": count_tests(tests, root),
    }


def _run(command: list[str], root: Path) -> str:
    print(shlex.join(command), file=sys.stderr)
    return subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


def oracle_figures(command: str, root: Path) -> list[dict[str, Any]]:
    """Every figure of one oracle command, from the record that it writes."""
    program = str(Path(sys.executable).with_name("fastlora-verify"))
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.json")
        _run([program, *shlex.split(command)[1:], "--json", str(record), "--run-dir", folder], root)
        answers = loads(record.read_text(encoding="utf-8")).oracles
    return [{"kernel": answer.kernel, **_plain(figure)} for answer in answers for figure in answer.figures]


def _plain(figure: Figure) -> dict[str, Any]:
    found = {"name": figure.name, "value": figure.value, "limit": figure.limit, "unit": figure.unit, "ok": figure.ok}
    return {key: value for key, value in found.items() if value not in (None, "")}


def count_tests(tests: Sequence[str], root: Path) -> dict[str, dict[str, int]]:
    """Outcomes of each named test over its parameters."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
        print(shlex.join(command), file=sys.stderr)
        # A failure is a result too, so the exit status says nothing here.
        subprocess.run(command, cwd=root, check=False, stdout=sys.stderr)
        cases = list(ElementTree.parse(report).iter("testcase"))
    # A class name starts at pytest's root, which is the suites' own folder for them: files tell tests apart.
    by_name = {f"{Path(test.partition('::')[0]).stem}::{test.partition('::')[2]}": test for test in tests}
    found: dict[str, Counter[str]] = {test: Counter() for test in tests}
    for case in cases:
        name = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name'].partition('[')[0]}"
        tags = {child.tag for child in case}
        found[by_name[name]][next((WORDS[tag] for tag in WORDS if tag in tags), "passed")] += 1
    return {test: dict(sorted(counts.items())) for test, counts in found.items()}


def condensed(record: RunRecord, measured: Results, rounds: Sequence[Round], plan: Plan, old: Results) -> Results:
    """The results file. Mutants that the record hasn't keep what `old` says, if they are still planned."""
    wanted = {mutant.name for entry in entries_of(rounds) for mutant in planned(entry, plan)}
    new = {mutant.name: mutant for mutant in record.mutants if mutant.name in wanted}
    kept = {name: result for name, result in old.get("mutants", {}).items() if name in wanted}
    sees = {name: _sees(name, rounds, plan) for name in new}
    column = record.columns[0]
    ran = {name: _mutant(mutant, column.id, sees[name]) for name, mutant in new.items()}
    return {
        "run": _about(record),
        "baseline": _counts(column.baseline),
        "mutants": {m.name: {**kept, **ran}[m.name] for m in plan.mutants if m.name in {**kept, **ran}},
        **{part: measured.get(part) or old.get(part, {}) for part in ("oracles", "measures", "tests")},
    }


def _sees(name: str, rounds: Sequence[Round], plan: Plan) -> set[str]:
    return {
        pattern
        for entry in entries_of(rounds)
        if entry.sees and any(mutant.name == name for mutant in planned(entry, plan))
        for pattern in entry.sees
    }


def _about(record: RunRecord) -> dict[str, Any]:
    env = record.environment
    versions = {
        name: getattr(env, name) for name in ("python", "torch", "peft", "bitsandbytes", "transformers", "pytest")
    }
    column = record.columns[0]
    return {"device": column.device, "versions": {name: version for name, version in versions.items() if version}}


def _counts(counts: Any) -> dict[str, int]:
    names = ("passed", "failed", "errors", "skipped")
    return {name: getattr(counts, name) for name in names if counts and getattr(counts, name)}


def _mutant(mutant: MutantRecord, column: str, sees: Iterable[str]) -> dict[str, Any]:
    result = mutant.results[column]
    files = Counter(killer.test.partition("::")[0].rpartition("/")[2] for killer in result.killers)
    found: dict[str, Any] = {"status": result.status, **_counts(result)}
    if result.how and result.how != "assertion":
        found["how"] = result.how
    if files:
        found["files"] = dict(sorted(files.items(), key=lambda item: (-item[1], item[0])))
    if mutant.allowed:
        found["allowed"] = mutant.allowed
    figures = [
        {"kernel": oracle.kernel, **_plain(figure), "name": f"{oracle.oracle}: {figure.name}"}
        for oracle in mutant.oracles
        for figure in oracle.figures
        if any(matches(pattern, f"{oracle.oracle}: {figure.name}") for pattern in sees)
    ]
    return {**found, "figures": figures} if figures else found


def missing(rounds: Sequence[Round], plan: Plan, results: Results) -> list[str]:
    """One sentence for each thing that entries refer to and the results file hasn't."""
    found: dict[str, list[str]] = {}
    for entry in entries_of(rounds):
        for thing in _missing(entry, plan, results):
            found.setdefault(thing, []).append(entry.id)
    lacking = [f"the results have no {part}" for part in PARTS if part not in results]
    return lacking + [f"{', '.join(entries)}: {thing}" for thing, entries in found.items()]


def _missing(entry: Entry, plan: Plan, results: Results) -> Iterator[str]:
    for mutant in planned(entry, plan):
        if mutant.name not in results.get("mutants", {}):
            yield f"no result of {mutant.name}; record it again"
    for part, names in (("oracles", (entry.oracle,)), ("measures", entry.measure), ("tests", entry.tests)):
        for name in filter(None, names):
            if not results.get(part, {}).get(name):
                yield f"no result of {name}; measure it again"
    available = [str(figure["name"]) for figure in figures_of(entry, results)]
    for pattern in entry.figures:
        if available and not any(matches(pattern, name) for name in available):
            yield f"no figure {pattern!r}"


def figures_of(entry: Entry, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All figures of an entry's oracle and measurements, of whatever name."""
    found = list(results.get("oracles", {}).get(entry.oracle, ()))
    for name in entry.measure:
        found += [{"name": key, "value": value} for key, value in results.get("measures", {}).get(name, {}).items()]
    return found


def chosen_figures(entry: Entry, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of them that the entry asks for."""
    return [f for f in figures_of(entry, results) if any(matches(pattern, f["name"]) for pattern in entry.figures)]
