"""Edits of the command line as mutants: code inserted, text replaced, diffs applied. In memory, never on disk."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fastlora_verify.harness.editing.diff_file import apply_diff
from fastlora_verify.harness.errors import EditError
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations import freehand
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.mutations.edited import BadEditError
from fastlora_verify.mutations.imports import missing_imports
from fastlora_verify.mutations.source import ParsedModule, SourceFile

INSERT, REPLACE, PATCH = "insert", "replace", "patch"


@dataclass(frozen=True)
class Edits:
    """What the command line changes itself. Scopes are written `package.module:outer.inner`."""

    inserts: tuple[tuple[str, str], ...] = ()  # (code, scope)
    replaces: tuple[tuple[str, str, str], ...] = ()  # (old text, new text, scope)
    patches: tuple[Path, ...] = ()  # unified diffs

    def each(self) -> list[Edits]:
        """Every edit alone."""
        inserts = [Edits(inserts=(one,)) for one in self.inserts]
        replaces = [Edits(replaces=(one,)) for one in self.replaces]
        return [*inserts, *replaces, *(Edits(patches=(one,)) for one in self.patches)]

    def __bool__(self) -> bool:
        return bool(self.inserts or self.replaces or self.patches)


def edit_mutants(target: Target, sources: Mapping[str, SourceFile], edits: Edits) -> tuple[Mutant, ...]:
    """A mutant for each edit, in the order insert, replace, patch; the same edit once. Raises EditError."""
    parsed: dict[str, ParsedModule] = {}

    def place(scope: str) -> freehand.Place:
        return _place(sources, parsed, scope)

    found: dict[str, Mutant] = {}
    for mutant in _all(target, sources, edits, place):
        other = found.setdefault(mutant.name, mutant)
        if other.changes != mutant.changes:  # the same text, at another place of the same function
            name = f"{mutant.name.removesuffix(']')}~{len(found)}]"
            found[name] = replace(mutant, name=name)
    return tuple(found.values())


def _all(
    target: Target, sources: Mapping[str, SourceFile], edits: Edits, place: Callable[[str], freehand.Place]
) -> Iterator[Mutant]:
    for code, scope in edits.inserts:
        with _told(f"--insert {_short(code)} --at {scope}"):
            made = freehand.insert(code, place(scope), target.kernels)
            yield replace(made, options=("--insert", code, "--at", scope))
    for old, new, scope in edits.replaces:
        with _told(f"--replace {_short(old)} {_short(new)} --at {scope}"):
            made = freehand.replace(old, new, place(scope), target.kernels)
            yield replace(check_imports(made, sources), options=("--replace", old, new, "--at", scope))
    for path in edits.patches:
        with _told(f"--patch {path}"):
            made = apply_diff(path, target, sources)
            yield replace(check_imports(made, sources), options=("--patch", str(path)))


def check_imports(mutant: Mutant, sources: Mapping[str, SourceFile]) -> Mutant:
    """The mutant itself. Raises BadEditError where another module of the target imports what it takes away."""
    modules = {file.path: name for name, file in sources.items()}
    after = {modules[change.path]: change.source for change in mutant.changes if change.path in modules}
    missing = missing_imports({name: file.text for name, file in sources.items()}, after)
    if missing:
        told = (f"takes {m.name!r} from {m.module}, which {m.importer} imports" for m in missing)
        raise BadEditError("; ".join(told))
    return mutant


@contextmanager
def _told(option: str) -> Iterator[None]:
    """What is wrong with an edit, beside the option that it came by."""
    try:
        yield
    except BadEditError as error:
        raise EditError(option, str(error)) from error


def _place(sources: Mapping[str, SourceFile], parsed: dict[str, ParsedModule], scope: str) -> freehand.Place:
    name, _, inner = scope.partition(":")
    if name not in sources:
        raise BadEditError(f"the target has no module {name!r}; {_near(name, list(sources))}")
    if name not in parsed:
        parsed[name] = ParsedModule(sources[name])
    module = parsed[name]
    if not inner:
        return freehand.Place(module, "", None)
    if inner not in module.scopes:
        raise BadEditError(f"{name} has no function or class {inner!r}; {_near(inner, list(module.scopes))}")
    lines = freehand.lines_called(module, inner)
    if len(lines) > 1:
        at = ", ".join(map(str, lines))
        raise BadEditError(f"{name} has {inner!r} {len(lines)} times (lines {at}); say which by a --patch")
    return freehand.Place(module, inner, module.scopes[inner])


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.3)
    return f"nearest: {', '.join(near)}" if near else f"known: {', '.join(known[:8])}"


def _short(code: str) -> str:
    flat = " ".join(code.split())
    return repr(flat if len(flat) <= 60 else f"{flat[:57]}...")
