"""What a revision had in place of the target's source: read from the user's repository, put back hunk by hunk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath

from fastlora_verify.harness.editing.diff_file import dotted
from fastlora_verify.harness.editing.edits import check_imports
from fastlora_verify.harness.errors import NothingToRun
from fastlora_verify.harness.targets.listing import files_of
from fastlora_verify.harness.targets.sources import decoded, on_disk, text_of
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.git import Repository
from fastlora_verify.harness.trees.sides import source_side
from fastlora_verify.harness.trees.tree import Entry
from fastlora_verify.mutations.base import Mutant, NoSite
from fastlora_verify.mutations.edited import BadEditError
from fastlora_verify.mutations.hunks import REVERTS, Compared, reverts
from fastlora_verify.mutations.source import SourceFile

_ALIKE = 0.6  # of the lines of a file that was renamed


@dataclass(frozen=True)
class Base:
    """The source files of a revision that differ from the working tree's, by their place in the copy."""

    rev: str
    texts: Mapping[str, str]
    others: tuple[NoSite, ...]  # files that have no hunks: gone, new, unreadable


@dataclass(frozen=True)
class _Folder:
    """A folder of the target with its place in the copy and in the repository."""

    place: str
    folder: Path
    repository: Repository
    commit: str

    def files(self) -> dict[str, str]:
        """Blob ids of the revision's Python files, by place in the copy."""
        below = self.folder.relative_to(self.repository.top).as_posix()
        paths = [below] if below != "." else []
        blobs = self.repository.blobs(self.commit, paths)
        return {self.inner(path): blob for path, blob in blobs.items() if path.endswith(".py")}

    def inner(self, path: str) -> str:
        """The place in the copy of a path from the repository's top."""
        return str(PurePosixPath(self.place, (self.repository.top / path).relative_to(self.folder).as_posix()))

    def text(self, inner: str) -> str:
        """The revision's text of a file. Raises ValueError, LookupError or SyntaxError where it is none."""
        real = self.folder / PurePosixPath(inner).relative_to(self.place)
        return decoded(self.repository.file_at(self.commit, real.relative_to(self.repository.top).as_posix()) or b"")


def base_of(target: Target, rev: str) -> Base:
    """What the revision `rev` has otherwise. Raises GitError for no revision and no repository."""
    folders = list(_folders(target, rev))
    before = {inner: (folder, blob) for folder in folders for inner, blob in folder.files().items()}
    now = {inner: path for folder in folders for inner, path in _now(folder)}
    is_source = source_side(target, dict.fromkeys((*before, *now), _ENTRY))
    texts: dict[str, str] = {}
    others: list[NoSite] = []
    gone = {inner for inner in before if is_source(inner) and inner not in now}
    for inner in sorted(inner for inner in now if is_source(inner)):
        try:
            was = inner if inner in before else _renamed(text_of(now[inner]), sorted(gone), before)
            if was is None:
                others.append(_told(inner, f"is new since {rev}: nothing of it to put back"))
                continue
            gone.discard(was)
            folder, blob = before[was]
            if was != inner or blob != _blob(now[inner].read_bytes()):
                texts[inner] = folder.text(was)
        except (OSError, ValueError, LookupError, SyntaxError) as error:
            others.append(_told(inner, f"cannot be compared with {rev}: {error}"))
    others += [_told(inner, f"is gone since {rev}: a whole file is no hunk") for inner in sorted(gone)]
    return Base(rev, texts, tuple(others))


def revert_mutants(
    target: Target, sources: Mapping[str, SourceFile], base: Base
) -> tuple[tuple[Mutant, ...], tuple[NoSite, ...]]:
    """Every hunk put back alone, and what can't be, with the reason."""
    modules = {file.path: name for name, file in sources.items()}
    mutants: list[Mutant] = []
    no_sites = list(base.others)
    for inner, text in base.texts.items():
        file = on_disk(target, inner)
        if file is None:
            continue
        try:
            compared = Compared(modules.get(inner) or dotted(target, inner), inner, text, text_of(file))
            made, others = reverts(compared, target.kernels)
        except SyntaxError as error:
            no_sites.append(_told(inner, f"cannot be compared with {base.rev}: {error.msg}, line {error.lineno}"))
            continue
        no_sites += others
        for mutant in made:
            try:
                mutants.append(replace(check_imports(mutant, sources), options=("--reverts", base.rev)))
            except BadEditError as error:
                no_sites.append(NoSite(mutant.name, ", ".join(mutant.kernels), str(error)))
    return tuple(mutants), tuple(no_sites)


def check_reverts(mutants: tuple[Mutant, ...], no_sites: tuple[NoSite, ...], rev: str) -> None:
    """Raises NothingToRun where no hunk makes a mutant."""
    if mutants:
        return
    reasons = [f"{no.mutation}: {no.reason}" for no in no_sites[:3]]
    why = "; ".join(reasons) or "no source file of the target differs"
    raise NothingToRun(f"nothing to run: no hunk between {rev} and the working tree is a mutant ({why})")


def _folders(target: Target, rev: str) -> Iterator[_Folder]:
    places = [*([("", target.root)] if target.root is not None else []), *target.place]
    for place, folder in places:
        real = folder.resolve()
        repository = Repository.around(real)
        yield _Folder(place, real, repository, repository.resolve(rev))


def _now(folder: _Folder) -> Iterator[tuple[str, Path]]:
    for name in files_of(folder.folder):
        if name.endswith(".py"):
            yield str(PurePosixPath(folder.place, name)), folder.folder / name


def _renamed(text: str, gone: list[str], before: Mapping[str, tuple[_Folder, str]]) -> str | None:
    """The file that went and whose lines these mostly are."""
    best, chosen = _ALIKE, None
    for inner in gone:
        matcher = SequenceMatcher(None, before[inner][0].text(inner).splitlines(), text.splitlines(), autojunk=False)
        if matcher.real_quick_ratio() >= best and matcher.quick_ratio() >= best and matcher.ratio() >= best:
            best, chosen = matcher.ratio(), inner
    return chosen


def _blob(data: bytes) -> str:
    """Git's id of a file's content, where the repository has ids of SHA-1; of another kind it equals none."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _told(inner: str, reason: str) -> NoSite:
    return NoSite(f"{REVERTS}@{inner}", "", reason)


_ENTRY = Entry("file", 0o644, "", 0)
