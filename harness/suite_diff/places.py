"""From a collected test to its function in the source, and what that function's meaning hangs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastlora_verify.harness.suite_diff.collected import Collection, Item
from fastlora_verify.harness.suite_diff.sources import FUNCTIONS, Module, Place, Sources


@dataclass(frozen=True)
class Side:
    """One tree's suite: its sources and what pytest collected there."""

    sources: Sources
    collection: Collection


def place_of(sources: Sources, items: Sequence[Item]) -> Place | None:
    """The function of a test; None where it is no Python of the tree."""
    item = items[0]
    if item.defined is not None:
        module = sources.module(item.defined[0])
        node = module.scopes.get(item.defined[1]) if module is not None else None
        if module is not None and isinstance(node, FUNCTIONS):
            return Place(module, item.defined[1], node, item.defined[1].rpartition(".")[0])
    module = sources.module(item.file) if item.file is not None else None
    if module is None:
        return None
    *classes, name = item.function.split("::")[1:] or [""]
    if classes:
        return sources.method(module, ".".join(classes), name)
    return sources.function(module, name)


def owner_of(sources: Sources, items: Sequence[Item]) -> tuple[Module, str] | None:
    """The class that a test is collected in."""
    item = items[0]
    module = sources.module(item.file) if item.file is not None else None
    classes = item.function.split("::")[1:-1]
    return (module, ".".join(classes)) if module is not None and classes else None


def changed_files(old: Sources, new: Sources) -> frozenset[str]:
    """Paths whose text isn't the same on both sides."""
    differ = set(old.paths ^ new.paths)
    for path in old.paths & new.paths:
        try:
            if old.read(path) != new.read(path):
                differ.add(path)
        except (OSError, ValueError, LookupError, SyntaxError):
            differ.add(path)
    return frozenset(differ)


def modules_of(sources: Sources, place: Place, items: Sequence[Item]) -> list[Module]:
    """The files that a test is collected from and defined in, and their conftest.py files."""
    file = items[0].file
    collected = sources.module(file) if file is not None else None
    own = [place.module, *([collected] if collected is not None else [])]
    return [*own, *(conftest for module in own for conftest in sources.conftests(module.path))]


def leans_on(sources: Sources, modules: Sequence[Module], paths: frozenset[str]) -> bool:
    """Whether one of the files is one of `paths`, or imports one of these from the tree."""
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        current = waiting.pop()
        if current.path in seen:
            continue
        seen.add(current.path)
        if current.path in paths:
            return True
        there = (sources.imported(current, name) for name in current.imports)
        waiting += [found[0] for found in there if found is not None]
    return False
