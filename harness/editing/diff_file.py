"""A unified diff as one mutant: applied to the target's files in memory, each hunk at exactly one place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from fastlora_verify.harness.errors import FileError
from fastlora_verify.harness.targets.sources import on_disk, text_of
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.base import Mutant
from fastlora_verify.mutations.build import digest
from fastlora_verify.mutations.edited import BadEditError, Label, build_edit
from fastlora_verify.mutations.places import FileEdit, lines_of, spans_of
from fastlora_verify.mutations.source import SourceFile

NOWHERE = "/dev/null"


def apply_diff(path: Path, target: Target, sources: Mapping[str, SourceFile]) -> Mutant:
    """The mutant that a diff's file makes. Raises FileError, or BadEditError where it doesn't fit."""
    patches = read_diff(path)
    edits = [edit for patch in patches for edit in _edits(patch, target, sources)]
    hunks = sum(len(patch) for patch in patches)
    what = "\n".join(
        f"{patch.path}\n{line.line_type}{line.value}" for patch in patches for hunk in patch for line in hunk
        if line.is_added or line.is_removed
    )  # fmt: skip
    names = ", ".join(dict.fromkeys(PurePosixPath(edit.path).name for edit in edits))
    gist = f"{path.name}: {hunks} {'hunk' if hunks == 1 else 'hunks'} in {names}"
    return build_edit(Label("patch", digest(what), gist), edits, target.kernels)


def read_diff(path: Path) -> list[PatchedFile]:
    """The files of a unified diff. Raises FileError."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileError(path, f"is not text in UTF-8: {error}") from error
    try:
        patches = list(PatchSet(lines_of(text)))  # by Python's lines: a form feed ends none
    except UnidiffParseError as error:
        raise FileError(path, f"is not a unified diff: {error}") from error
    if not patches:
        raise FileError(path, "holds no unified diff: no line begins with ---, +++ and @@")
    return patches


def _edits(patch: PatchedFile, target: Target, sources: Mapping[str, SourceFile]) -> Iterator[FileEdit]:
    """One file's edit; of a renamed one, the old file's end and the new one's beginning."""
    old, new = _bare(patch.source_file), _bare(patch.target_file)
    if patch.is_binary_file or not (old or new or "").endswith(".py"):
        raise BadEditError(f"changes {new or old}, which is no Python file: a mutant is one of source")
    inner = None if old is None else _inner(target, old)
    before = None if inner is None else _text(target, inner)
    after = applied(before or "", patch, inner or new or "")
    if new is None:
        yield _edit(target, sources, inner or "", before, None)
        return
    to = inner if inner is not None and new == old else _new(target, new, old, inner)
    if inner is None and on_disk(target, to) is not None:
        raise BadEditError(f"makes {to} anew, which is there already")
    if to != inner and inner is not None:
        yield _edit(target, sources, inner, before, None)
        before = None
    yield _edit(target, sources, to, before, after)


def _edit(
    target: Target, sources: Mapping[str, SourceFile], inner: str, before: str | None, after: str | None
) -> FileEdit:
    module = next((name for name, file in sources.items() if file.path == inner), None) or dotted(target, inner)
    return FileEdit(module, inner, before, after, spans_of(before or "", after or ""))


def dotted(target: Target, inner: str) -> str:
    """What stands for a module's name where the target names none."""
    path = PurePosixPath(inner).with_suffix("")
    roots = [root for root in target.source_roots if path.is_relative_to(root)]
    return ".".join((path.relative_to(roots[0]) if roots else path).parts)


def _bare(name: str) -> str | None:
    """A path without git's a/ and b/, and without what `diff` writes behind a tab."""
    name = name.partition("\t")[0].strip().strip('"')
    return None if name == NOWHERE else re.sub(r"^(?:[abciow]/|\./)", "", name)


def _inner(target: Target, name: str) -> str:
    """The place in the copy of a path as a diff has it: from the copy's top, or from a folder around it."""
    for candidate in _candidates(target, name):
        if (found := on_disk(target, candidate)) is not None and found.is_file():
            return candidate
    raise BadEditError(f"changes {name}, which the target does not have")


def _candidates(target: Target, name: str) -> Iterator[str]:
    """Every place in the copy that a path may mean, the most literal first."""
    parts = PurePosixPath(name).parts
    tails = [PurePosixPath(*parts[start:]) for start in range(len(parts))]
    if target.root is not None:
        yield from map(str, tails[:1])
    for place, folder in target.place:
        for tail in tails:
            if tail.parts and folder.name == tail.parts[0]:
                yield str(PurePosixPath(place, *tail.parts[1:]))
    yield from map(str, tails)


def _new(target: Target, new: str, old: str | None, inner: str | None) -> str:
    """Where a new file goes: as its old name lay in the copy, or from the copy's top."""
    if old is None or inner is None or not old.endswith(inner):
        return new
    return new.removeprefix(old.removesuffix(inner))


def _text(target: Target, inner: str) -> str:
    file = on_disk(target, inner)
    assert file is not None
    try:
        return text_of(file)
    except (OSError, SyntaxError, ValueError, LookupError) as error:
        raise BadEditError(f"changes {inner}, which cannot be read: {error}") from error


def applied(text: str, patch: PatchedFile, inner: str) -> str:
    """A file's text with every hunk in its place. Raises `BadEditError` where one fits nowhere, or at several."""
    lines = lines_of(text)
    newline = "\r\n" if sum(line.endswith("\r\n") for line in lines) * 2 > len(lines) else "\n"
    out: list[str] = []
    cursor = 0
    for number, hunk in enumerate(patch, 1):
        old, new = _sides(hunk, newline)
        stated = hunk.source_start - 1 if hunk.source_length else hunk.source_start
        at = _fit(lines, old, stated, cursor, f"hunk {number} of {inner} (line {hunk.source_start})")
        out += lines[cursor:at]
        out += [lines[at + line] if isinstance(line, int) else line for line in new]
        cursor = at + len(old)
    return "".join([*out, *lines[cursor:]])


def _sides(hunk: Hunk, newline: str) -> tuple[list[str], list[str | int]]:
    """The lines that a hunk expects, and those that it leaves: an expected one by its number, or a new one."""
    old: list[str] = []
    new: list[str | int] = []
    was_added = False
    for line in hunk:
        value = line.value.rstrip("\r\n")
        if line.line_type == "\\" and was_added:  # no newline at the end of the line before
            new[-1] = str(new[-1]).rstrip("\r\n")
        elif line.is_added:
            new.append(value + newline)
        elif line.line_type != "\\":
            new += [len(old)] if line.is_context else []
            old.append(value)
        was_added = line.is_added
    return old, new


def _fit(lines: Sequence[str], old: Sequence[str], stated: int, cursor: int, hunk: str) -> int:
    """Where a hunk's old lines stand: at its own line number, else at the one place that has them."""

    def fits(at: int) -> bool:
        return cursor <= at and [_ended(line) for line in lines[at : at + len(old)]] == old

    if fits(stated):
        return stated
    found = [at for at in range(cursor, len(lines) - len(old) + 1) if old and fits(at)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadEditError(f"{hunk} fits at {len(found)} places: lines {', '.join(str(at + 1) for at in found)}")
    raise BadEditError(f"{hunk} does not fit: {_first_other(lines, old, stated)}")


def _ended(line: str) -> str:
    return line.rstrip("\r\n")


def _first_other(lines: Sequence[str], old: Sequence[str], stated: int) -> str:
    for offset, line in enumerate(old):
        have = lines[stated + offset].strip() if 0 <= stated + offset < len(lines) else "the file's end"
        if have != line.strip():
            return f"it expects {line.strip()!r} at line {stated + offset + 1}, where the target has {have!r}"
    return "its lines stand before those of the hunk above it"
