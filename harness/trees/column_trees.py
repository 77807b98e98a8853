"""Trees of columns: revisions, merges, diffs and mixtures of two, laid out in a scratch folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fastlora_verify.harness.errors import GitError
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.columns import HEAD, ColumnSpec, Side, Wanted
from fastlora_verify.harness.trees.git import Repository, Revision
from fastlora_verify.harness.trees.revision import commit_of
from fastlora_verify.harness.trees.scratch_git import ScratchRepository
from fastlora_verify.harness.trees.sides import side_of_tests
from fastlora_verify.harness.trees.tree import Master, add_included, make_master, snapshot

WORKING_TREE = "working tree"
_NAMED = 3  # so many paths are named in a note


@dataclass(frozen=True)
class Origin:
    """Where one side of a tree comes from."""

    name: str  # "working tree", "main", "v1+fix.diff", "HEAD merged onto main"
    commit: str = ""  # where it is exactly one


@dataclass(frozen=True)
class Tree:
    """What one or more columns run: a target whose root is a folder of ours, or the user's own."""

    target: Target
    source: Origin
    tests: Origin
    digest: str = ""  # of all files; "": the user's own folder, not looked at
    notes: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """True if it is the user's tree as it lies there, so that whatever the target names must be in it."""
        return self.source.name == self.tests.name == WORKING_TREE


@dataclass(frozen=True)
class _Laid:
    """One side's whole tree."""

    master: Master
    origin: Origin
    patched: tuple[str, ...] = ()  # paths that a diff changed
    notes: tuple[str, ...] = ()


@contextmanager
def trees_of(
    target: Target, wanted: Wanted, specs: Sequence[ColumnSpec], tests: Sequence[str], without: Path
) -> Iterator[list[Tree]]:
    """The tree of each column; those that had to be made are gone afterwards. Raises GitError and Conflicts.

    `tests` are the test paths that are run, `without` is our run's folder.
    """
    if wanted.is_plain:
        origin = Origin(WORKING_TREE, commit_of(target) or "")
        yield [Tree(target, origin, origin)] * len(specs)
        return
    scratch = Path(tempfile.mkdtemp(prefix="fastlora-verify-trees-")).resolve()
    try:
        trees = Trees(target, wanted, tests, scratch, without)
        pairs = dict.fromkeys((spec.source, spec.tests) for spec in specs)
        made = {(source, own): trees.of(source, own) for source, own in pairs}
        yield [made[spec.source, spec.tests] for spec in specs]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Trees:
    """Lays trees out in the folder `scratch`; the user's files and repository are only read."""

    def __init__(self, target: Target, wanted: Wanted, tests: Sequence[str], scratch: Path, without: Path) -> None:
        self._target = target
        self._wanted = wanted
        self._tests = tests  # paths in the copy, perhaps with a `::` part
        self._scratch = scratch
        self._without = without  # our run's folder
        self._sides: dict[Side, _Laid] = {}
        self._repository: Repository | None = None
        self._scratch_repository: ScratchRepository | None = None

    def of(self, source_side: Side, tests_side: Side) -> Tree:
        """One side's source with the other's tests. Raises GitError, and Conflicts where there is no merged tree."""
        source, tests = self._side(source_side), self._side(tests_side)
        if source_side == tests_side:
            return self._tree(source.master, source, tests, source.notes)
        mixed, strays = self._mixed(source, tests)
        return self._tree(mixed, source, tests, (*source.notes, *tests.notes, *strays))

    def _tree(self, master: Master, source: _Laid, tests: _Laid, notes: Iterable[str]) -> Tree:
        target = replace(self._target, root=master.path, place=(), include=())
        return Tree(target, source.origin, tests.origin, master.digest, tuple(dict.fromkeys(notes)))

    def _side(self, side: Side) -> _Laid:
        if side not in self._sides:
            if side.patch is not None:
                self._sides[side] = self._patched(self._side(Side(side.rev)), side.patch)
            elif side.rev:
                self._sides[side] = self._revision(self._repo().revision(side.rev))
            else:
                self._sides[side] = self._under_review()
        return self._sides[side]

    def _under_review(self) -> _Laid:
        if not (self._wanted.merged_onto or self._wanted.rebased_onto):
            master = make_master(self._target, self._folder(), self._without)
            return _Laid(master, Origin(WORKING_TREE, commit_of(self._target) or ""), (), self._behind())
        made = self._made()
        laid = self._revision(made)
        changed = self._uncommitted()
        notes = (f"{made.name}; {changed} not part of it",) if changed else ()
        return replace(laid, origin=Origin(made.name), notes=(*notes, *laid.notes))

    def _made(self) -> Revision:
        """What a merge or a rebase makes of HEAD. Raises Conflicts."""
        repository, scratch, wanted = self._repo(), self._git(), self._wanted
        head = Revision("HEAD", repository.resolve("HEAD"))
        if wanted.rebased_onto is not None:
            onto = repository.revision(wanted.rebased_onto)
            upstream = repository.revision(wanted.upstream) if wanted.upstream is not None else None
            return Revision(f"{_told(head)} rebased onto {_told(onto)}", scratch.rebased(head, onto, upstream))
        several = [repository.revision(rev) for rev in wanted.merged_onto]
        name = f"{_told(head)} merged onto {', then '.join(map(_told, several))}"
        return Revision(name, scratch.merged(several, head))

    def _behind(self) -> tuple[str, ...]:
        """What a comparison with another revision should know of the working tree."""
        if self._wanted.against is None:
            return ()
        repository, against = self._repo(), self._wanted.against
        head = repository.resolve("HEAD")
        changed = self._uncommitted()
        notes = [f"{HEAD} is the working tree: {head[:9]} and {changed}"] if changed else []
        lacks = repository.missing(head, repository.resolve(against))
        if lacks:
            of = f"{lacks} commit{'' if lacks == 1 else 's'} of {against}"
            notes.append(f"{HEAD} lacks {of}; --merged-onto {against} takes them in")
        return tuple(notes)

    def _uncommitted(self) -> str:
        """`2 uncommitted changes (a.py, b.py)`; empty if there are none."""
        changed = self._repo().uncommitted()
        if not changed:
            return ""
        named = ", ".join(changed[:_NAMED]) + (", …" if len(changed) > _NAMED else "")
        return f"{len(changed)} uncommitted change{'' if len(changed) == 1 else 's'} ({named})"

    def _revision(self, revision: Revision) -> _Laid:
        """A commit's files, with what the target adds to them from elsewhere."""
        repository, top = self._repo(), self._scratch / "top"
        self._git().lay_out(revision.commit, top)
        inner = self._inner(repository)
        if not (top / inner).is_dir():
            raise GitError(f"{revision.name} has no folder {inner}, which is the target's root")
        place = tuple((to, _within(folder, repository.top, top)) for to, folder in self._target.place)
        master = make_master(replace(self._target, root=top / inner, place=place, include=()), self._folder())
        master = add_included(self._target, master)
        shutil.rmtree(top)
        empty = self._git().all_objects.submodules(revision.commit)
        notes = (f"submodules of {revision.name} are left empty: {', '.join(empty)}",) if empty else ()
        return _Laid(master, Origin(revision.name, revision.commit), (), notes)

    def _patched(self, base: _Laid, patch: Path) -> _Laid:
        folder = _copied(base.master, self._folder())
        depth = len(self._inner(self._repo()).parts) if self._is_in_repository() else 0
        changed = self._git().apply(patch, folder, depth)
        origin = Origin(f"{base.origin.name}+{patch.name}")
        return replace(base, master=Master(folder, snapshot(folder)), origin=origin, patched=tuple(changed))

    def _mixed(self, source: _Laid, tests: _Laid) -> tuple[Master, list[str]]:
        """The source's tree with the other's tests in place of its own, and what the diffs meant for the other side."""
        entries = {**source.master.entries, **tests.master.entries}
        is_test = side_of_tests(self._target, entries, self._tests)
        folder = _copied(source.master, self._folder())
        for name, entry in source.master.entries.items():
            if entry.kind != "folder" and is_test(name):
                (folder / name).unlink()
        for name, entry in tests.master.entries.items():
            if entry.kind != "folder" and is_test(name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tests.master.path / name, folder / name, follow_symlinks=False)
        _prune(folder)
        strays = [_stray(source, "source", "tests", [p for p in source.patched if is_test(p)])]
        strays.append(_stray(tests, "tests", "source", [p for p in tests.patched if not is_test(p)]))
        return Master(folder, snapshot(folder)), [note for note in strays if note]

    def _inner(self, repository: Repository) -> Path:
        assert self._target.root is not None  # or there would be no repository
        return self._target.root.resolve().relative_to(repository.top)

    def _is_in_repository(self) -> bool:
        try:
            return bool(self._repo())
        except GitError:
            return False

    def _repo(self) -> Repository:
        if self._repository is None:
            if self._target.root is None:
                problem = "has no root, only placed folders, so it has no revisions; give it target.root"
                raise GitError(f"target {self._target.file} {problem}")
            self._repository = Repository.around(self._target.root)
        return self._repository

    def _git(self) -> ScratchRepository:
        if self._scratch_repository is None:
            of = self._repo() if self._is_in_repository() else None
            self._scratch_repository = ScratchRepository(self._scratch / "git", of)
        return self._scratch_repository

    def _folder(self) -> Path:
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self._scratch / f"tree{sum(1 for _ in self._scratch.glob('tree*'))}"


def _told(revision: Revision) -> str:
    """`main (abc123456)`."""
    short = revision.commit[:9]
    return short if revision.commit.startswith(revision.name) else f"{revision.name} ({short})"


def _within(folder: Path, top: Path, laid: Path) -> Path:
    """Where a placed folder of the same repository lies at a revision; one from elsewhere stays where it is."""
    if not folder.is_relative_to(top):
        return folder
    found = laid / folder.relative_to(top)
    found.mkdir(parents=True, exist_ok=True)  # one that the revision lacks has no files
    return found


def _copied(master: Master, to: Path) -> Path:
    """A tree of the same files; whoever changes one of them puts another in its place."""
    shutil.copytree(master.path, to, symlinks=True, copy_function=_link)
    return to


def _link(source: str, to: str) -> None:
    try:
        os.link(source, to)
    except OSError:  # a file system without hard links
        shutil.copy2(source, to)


def _prune(folder: Path) -> None:
    """Removes folders in which nothing is left."""
    for inner in sorted((path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()), reverse=True):
        if not any(inner.iterdir()):
            inner.rmdir()


def _stray(laid: _Laid, side: str, other: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    return (
        f"{side}={laid.origin.name} also changes {', '.join(paths[:_NAMED])}: not taken, give the diff to {other}= too"
    )
