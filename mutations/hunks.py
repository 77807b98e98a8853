"""Reverts: each hunk of a change put back alone, to see which of the author's own fixes the tests hold.

A hunk is a run of lines that differ. One that is nothing by itself, such as half of a renamed variable, is told with
the reason, and put back together with those that depend on it where that works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from fastlora_verify.mutations.base import KernelRoles, Mutant, NoSite
from fastlora_verify.mutations.build import digest
from fastlora_verify.mutations.edited import BadEditError, Label, build_edit, touched
from fastlora_verify.mutations.places import FileEdit, Span, lines_of, scope_at, size

REVERTS = "reverts"
_GIST = 90  # signs of each side


@dataclass(frozen=True)
class Hunk:
    """Lines of the base and the lines of the head that stand in their place, by number."""

    old: tuple[int, int]
    new: tuple[int, int]
    scope: str  # the innermost function or class around it


@dataclass(frozen=True)
class Compared:
    """One file at both ends of a change."""

    module: str
    path: str
    base: str
    head: str

    @property
    def old(self) -> list[str]:
        """The base's lines, ending as the head's do."""
        newline = "\r\n" if self.head.count("\r\n") * 2 > self.head.count("\n") else "\n"
        lines = (line.rstrip("\r\n") + newline if line.endswith(("\r", "\n")) else line for line in lines_of(self.base))
        return list(lines)


def reverts(file: Compared, kernels: Sequence[KernelRoles]) -> tuple[list[Mutant], list[NoSite]]:
    """A mutant for each hunk, and each hunk that is none alone, with the reason. Raises SyntaxError of the base."""
    ends = _Ends(file, file.old, lines_of(file.head), kernels)
    mutants: list[tuple[Hunk, Mutant]] = []
    failed: list[tuple[Hunk, BadEditError]] = []
    for hunk in hunks_of(ends.old, ends.new):
        try:
            mutants.append((hunk, ends.put_back([hunk], hunk.scope)))
        except BadEditError as error:
            failed.append((hunk, error))
    named = _unique([(ends.new, hunk, mutant) for hunk, mutant in mutants])
    dependent = [hunk for hunk, error in failed if not error.is_same]
    joint = {hunk: _joint(ends, hunk, dependent, [h for h, _ in mutants]) for hunk in dependent}
    no_sites = [_no_site(ends, hunk, error, joint.get(hunk)) for hunk, error in failed]
    whole = {mutant.name: mutant for mutant in joint.values() if mutant is not None}
    return [*named, *whole.values()], no_sites


def hunks_of(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """The runs of lines that differ."""
    base, head = "".join(old), "".join(new)
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            text, lines, start, end = (head, new, c, d) if c < d else (base, old, a, b)
            found.append(Hunk((a, b), (c, d), scope_at(text, size(lines[:start]), size(lines[:end]))))
    return found


@dataclass(frozen=True)
class _Ends:
    """Both ends of a file, as lines."""

    file: Compared
    old: Sequence[str]
    new: Sequence[str]
    kernels: Sequence[KernelRoles]

    def put_back(self, hunks: Sequence[Hunk], scope: str) -> Mutant:
        """The mutant that has the base's lines in those places. Raises `BadEditError`."""
        before, after = _text(self.old, [h.old for h in hunks]), _text(self.new, [h.new for h in hunks])
        gist = f"put back: {_short(before)} instead of: {_short(after)}"
        return build_edit(Label(REVERTS, self.what(hunks), gist, scope), [self.edit(hunks)], self.kernels)

    def what(self, hunks: Sequence[Hunk]) -> str:
        """A digest of what changes."""
        return digest(f"{_text(self.old, [h.old for h in hunks])}\n->\n{_text(self.new, [h.new for h in hunks])}")

    def edit(self, hunks: Sequence[Hunk]) -> FileEdit:
        """The head with the base's lines in those places."""
        old, new = self.old, self.new
        out: list[str] = []
        spans = []
        cursor = 0
        for hunk in hunks:
            out += new[cursor : hunk.new[0]]
            lines = old[slice(*hunk.old)]
            start = size(out)
            spans.append(Span((size(new[: hunk.new[0]]), size(new[: hunk.new[1]])), (start, start + size(lines))))
            out += lines
            cursor = hunk.new[1]
        after = "".join([*out, *new[cursor:]])
        return FileEdit(self.file.module, self.file.path, self.file.head, after, tuple(spans))


def _joint(ends: _Ends, hunk: Hunk, dependent: Sequence[Hunk], others: Sequence[Hunk]) -> Mutant | None:
    """A hunk put back with those that depend on others as it does; in its function, else in those around it, else in
    the file. None where that is no mutant either.
    """
    parts = hunk.scope.split(".") if hunk.scope else []
    for depth in range(len(parts), -1, -1):
        scope = ".".join(parts[:depth])
        near = [h for h in dependent if _is_in(h.scope, scope)]
        every = sorted([*near, *(h for h in others if _is_in(h.scope, scope))], key=lambda h: h.new)
        for several in (near, every) if scope else (near,):
            if len(several) > 1:
                try:
                    mutant = ends.put_back(several, scope)
                except BadEditError:
                    continue
                return replace(mutant, gist=f"{len(several)} hunks together, {mutant.gist}")
    return None


def _is_in(scope: str, around: str) -> bool:
    return not around or scope == around or scope.startswith(f"{around}.")


def _no_site(ends: _Ends, hunk: Hunk, error: BadEditError, joint: Mutant | None) -> NoSite:
    place = f"{ends.file.module}:{hunk.scope}" if hunk.scope else ends.file.module
    kernels = touched(ends.kernels, ends.edit([hunk]), hunk.scope)
    reason = str(error)
    if joint is not None:
        reason = f"alone it {error}; put back with the hunks that depend on each other it is {joint.name}"
    return NoSite(f"{REVERTS}@{place}[{ends.what([hunk])}]", ", ".join(kernels), reason)


def _text(lines: Sequence[str], ranges: Sequence[tuple[int, int]]) -> str:
    return "".join(line for start, end in ranges for line in lines[start:end])


def _short(text: str) -> str:
    flat = " ".join(" ".join(line for line in text.splitlines() if not line.lstrip().startswith("#")).split())
    if not flat:
        return "(nothing)"
    return flat if len(flat) <= _GIST else f"{flat[: _GIST - 1]}…"


def _unique(mutants: Sequence[tuple[Sequence[str], Hunk, Mutant]]) -> list[Mutant]:
    """Where the same lines are put back at two places of a function, what stands before tells them apart."""
    count = Counter(mutant.name for _, _, mutant in mutants)
    return [
        replace(mutant, name=f"{mutant.name[:-1]}~{digest(''.join(new[: hunk.new[0]]))}]")
        if count[mutant.name] > 1
        else mutant
        for new, hunk, mutant in mutants
    ]
