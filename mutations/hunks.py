"""Reverts: each hunk of a change put back alone, to see which of the author's own fixes the tests hold.

A hunk is a run of lines that differ. One that is nothing by itself, such as half of a renamed variable, is told with
the reason, and put back together with the other hunks of its function where that works.
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
    old, new = file.old, lines_of(file.head)
    mutants: list[tuple[Hunk, Mutant]] = []
    failed: list[tuple[Hunk, BadEditError]] = []
    for hunk in hunks_of(old, new):
        try:
            mutants.append((hunk, _put_back(file, old, new, [hunk], kernels)))
        except BadEditError as error:
            failed.append((hunk, error))
    named = _unique([(new, hunk, mutant) for hunk, mutant in mutants])
    joint = {scope: _joint(file, old, new, scope, kernels) for scope in dict.fromkeys(h.scope for h, _ in failed)}
    no_sites = [
        NoSite(
            f"{REVERTS}@{_place(file, hunk.scope)}[{_what(old, new, [hunk])}]",
            ", ".join(touched(kernels, _file_edit(file, old, new, [hunk]), hunk.scope)),
            _reason(error, joint[hunk.scope]),
        )
        for hunk, error in failed
    ]
    whole = [j for scope, j in joint.items() if j is not None and _is_needed(scope, failed)]
    return [*named, *whole], no_sites


def hunks_of(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """The runs of lines that differ."""
    base, head = "".join(old), "".join(new)
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            text, lines, start, end = (head, new, c, d) if c < d else (base, old, a, b)
            found.append(Hunk((a, b), (c, d), scope_at(text, size(lines[:start]), size(lines[:end]))))
    return found


def _put_back(
    file: Compared, old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk], kernels: Sequence[KernelRoles]
) -> Mutant:
    before, after = _text(old, [h.old for h in hunks]), _text(new, [h.new for h in hunks])
    gist = f"put back: {_short(before)} instead of: {_short(after)}"
    label = Label(REVERTS, _what(old, new, hunks), gist, hunks[0].scope)
    return build_edit(label, [_file_edit(file, old, new, hunks)], kernels)


def _file_edit(file: Compared, old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk]) -> FileEdit:
    """The head with the base's lines in those places."""
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
    return FileEdit(file.module, file.path, file.head, "".join([*out, *new[cursor:]]), tuple(spans))


def _joint(
    file: Compared, old: Sequence[str], new: Sequence[str], scope: str, kernels: Sequence[KernelRoles]
) -> Mutant | None:
    """All hunks of one function put back together; None where that is no mutant either."""
    several = [hunk for hunk in hunks_of(old, new) if hunk.scope == scope]
    if not scope or len(several) < 2:
        return None
    try:
        mutant = _put_back(file, old, new, several, kernels)
    except BadEditError:
        return None
    return replace(mutant, gist=f"{len(several)} hunks together, {mutant.gist}")


def _is_needed(scope: str, failed: Sequence[tuple[Hunk, BadEditError]]) -> bool:
    """Whether a hunk of the function says something and can't stand alone."""
    return any(hunk.scope == scope and not error.is_same for hunk, error in failed)


def _reason(error: BadEditError, joint: Mutant | None) -> str:
    if joint is None or error.is_same:
        return str(error)
    return f"alone it {error}; put back with the other hunks of its function it is {joint.name}"


def _what(old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk]) -> str:
    return digest(f"{_text(old, [h.old for h in hunks])}\n->\n{_text(new, [h.new for h in hunks])}")


def _text(lines: Sequence[str], ranges: Sequence[tuple[int, int]]) -> str:
    return "".join(line for start, end in ranges for line in lines[start:end])


def _short(text: str) -> str:
    flat = " ".join(" ".join(line for line in text.splitlines() if not line.lstrip().startswith("#")).split())
    if not flat:
        return "(nothing)"
    return flat if len(flat) <= _GIST else f"{flat[: _GIST - 1]}…"


def _place(file: Compared, scope: str) -> str:
    return f"{file.module}:{scope}" if scope else file.module


def _unique(mutants: Sequence[tuple[Sequence[str], Hunk, Mutant]]) -> list[Mutant]:
    """Where the same lines are put back at two places of a function, what stands before tells them apart."""
    count = Counter(mutant.name for _, _, mutant in mutants)
    return [
        replace(mutant, name=f"{mutant.name[:-1]}~{digest(''.join(new[: hunk.new[0]]))}]")
        if count[mutant.name] > 1
        else mutant
        for new, hunk, mutant in mutants
    ]
