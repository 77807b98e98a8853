"""docs/reviews.toml as data, and what is wrong with it."""

from __future__ import annotations

import ast
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import Failure
from fastlora_verify.harness.selection import Selection, select
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.mutations.plan import Plan

KINDS = ("edit", "table", "figure", "request")
THREADS = ("swiglu-mlp", "kernel-taken-pin")
PROGRAM = "fastlora-verify"
LISTS = ("mutants", "sees", "figures", "measure", "tests")
TEXTS = ("kind", "what", "theirs", "kernel", "oracle", "applies", "note")


@dataclass(frozen=True)
class Entry:
    """One thing of a review. Fields as docs/reviews.toml explains them."""

    id: str
    kind: str
    what: str
    theirs: str
    kernel: str = ""
    mutants: tuple[str, ...] = ()
    sees: tuple[str, ...] = ()
    oracle: str = ""
    figures: tuple[str, ...] = ()
    measure: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    baseline: bool = False
    applies: str = ""
    note: str = ""

    @property
    def has_command(self) -> bool:
        """Whether a command of ours gives the thing."""
        return bool(self.mutants or self.oracle or self.measure or self.tests or self.baseline)


@dataclass(frozen=True)
class Round:
    """A review or a reply, about one head."""

    id: str
    thread: str
    head: str
    title: str
    entries: tuple[Entry, ...]


def read_rounds(file: Path) -> tuple[Round, ...]:
    """The rounds in order. Raises ValueError for an unknown key or a value of another type."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return tuple(_round(table) for table in data["round"])


def _round(table: dict[str, Any]) -> Round:
    entries = tuple(
        _entry(f"{table['id']}.{n:02}", {"kernel": table["kernel"], **e}) for n, e in enumerate(table["entry"], 1)
    )
    return Round(table["id"], table["thread"], table["head"], table["title"], entries)


def _entry(name: str, table: dict[str, Any]) -> Entry:
    fields: dict[str, Any] = {}
    for key, value in table.items():
        if key in LISTS and isinstance(value, list) and all(isinstance(item, str) for item in value):
            fields[key] = tuple(value)
        elif (key in TEXTS and isinstance(value, str)) or (key == "baseline" and value is True):
            fields[key] = value
        else:
            raise ValueError(f"{name}: {key} = {value!r} is no field of an entry, or of another type")
    return Entry(name, **{"kind": "", "what": "", "theirs": "", **fields})


def entries_of(rounds: Sequence[Round]) -> Iterator[Entry]:
    """All entries in order."""
    for each in rounds:
        yield from each.entries


def planned(entry: Entry, plan: Plan) -> tuple[Mutant, ...]:
    """The mutants that an entry's patterns mean. Raises the command line's own error where one means none."""
    chosen: dict[str, Mutant] = {}
    for pattern in entry.mutants:
        selection = Selection(names=(pattern,), kernels=(entry.kernel,) if entry.kernel else ())
        chosen |= {mutant.name: mutant for mutant in select(plan, selection)}
    return tuple(mutant for mutant in plan.mutants if mutant.name in chosen)


def faults(rounds: Sequence[Round], plan: Plan, root: Path) -> list[str]:
    """One sentence for each entry that leads nowhere. `root` is the repository's."""
    known = {"measure": measurements(root), "oracle": oracles(root)}
    found = [fault for entry in entries_of(rounds) for fault in _faults(entry, plan, root, known)]
    for each in rounds:
        if each.thread not in THREADS or not each.entries:
            found.append(f"{each.id}: thread {each.thread!r} is unknown, or the round has no entry")
    return found


def _faults(entry: Entry, plan: Plan, root: Path, known: dict[str, set[str]]) -> Iterator[str]:
    if entry.kind not in KINDS or not entry.what or not entry.theirs:
        yield f"{entry.id}: kind, what or theirs is missing, or the kind is none of {', '.join(KINDS)}"
    if entry.has_command == bool(entry.applies):
        many = "both a command and a reason" if entry.applies else "neither a command nor a reason"
        yield f"{entry.id}: {many} why it doesn't apply"
    for pattern in entry.mutants:
        try:
            planned(replace(entry, mutants=(pattern,)), plan)
        except Failure as error:
            yield f"{entry.id}: mutants {pattern!r} match nothing planned ({error})"
    for test in entry.tests:
        if not test_exists(test, root):
            yield f"{entry.id}: no test {test}"
    for name in entry.measure:
        if name not in known["measure"]:
            yield f"{entry.id}: scripts/review_figures.py measures no {name}"
    words = shlex.split(entry.oracle)
    if words and (words[:2] != [PROGRAM, "oracle"] or words[2] not in known["oracle"] | {"--kernel"}):
        yield f"{entry.id}: {entry.oracle!r} names no oracle of ours"
    if bool(entry.figures) != bool(entry.oracle or entry.measure) or (entry.sees and not entry.mutants):
        yield f"{entry.id}: figures go with an oracle or a measurement, sees with mutants"


def test_exists(test: str, root: Path) -> bool:
    """Whether `path::name` is a test function of that file."""
    path, _, name = test.partition("::")
    file = root / path
    if not name.startswith("test") or not file.is_file():
        return False
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def measurements(root: Path) -> set[str]:
    """Names that scripts/review_figures.py knows, read without importing it: that would import torch."""
    tree = ast.parse((root / "scripts" / "review_figures.py").read_text(encoding="utf-8"))
    tables = [
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "FIGURES"
    ]
    return {ast.literal_eval(key) for table in tables if isinstance(table, ast.Dict) for key in table.keys if key}


def oracles(root: Path) -> set[str]:
    """Ids of the oracles: each file of the folder that is one says `ID = "…"`."""
    found = set()
    for file in sorted((root / "oracles").glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ID":
                found.add(str(ast.literal_eval(node.value)))
    return found
