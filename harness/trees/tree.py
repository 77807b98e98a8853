"""Scratch copies of a target: made from one master, written, checked against it and restored.

The user's tree is read once, into the master. Nothing ever runs in the master; each worker's copy is made
from it and restored from it, so that what the user does to the tree meanwhile changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlora_verify.harness.targets.listing import files_of, included
from fastlora_verify.harness.targets.sources import encoded_as, text_of
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.base import Changed

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """What stands at a path of the master."""

    kind: str  # "file" | "link" | "folder"
    mode: int  # permission bits
    content: str  # SHA-256 of a file, destination of a link
    mtime_ns: int


@dataclass(frozen=True)
class Master:
    """The pristine copy and its snapshot."""

    path: Path
    entries: Mapping[str, Entry]

    @property
    def digest(self) -> str:
        """SHA-256 of all paths, modes and contents; times don't count."""
        total = hashlib.sha256()
        for path, entry in sorted(self.entries.items()):
            total.update(f"{path}\0{entry.kind}\0{entry.mode:o}\0{entry.content}\n".encode(errors="surrogateescape"))
        return total.hexdigest()

    def encode(self, path: str, text: str) -> bytes:
        """`text` in the encoding that the file at `path` declares; UTF-8 where there is no such file."""
        return encoded_as(self.path / path, text)

    def edits(self, changes: Iterable[Changed]) -> dict[str, bytes | None]:
        """What a mutant's files become in a copy; None: they go."""
        return {
            change.path: self.encode(change.path, change.source) if change.source is not None else None
            for change in changes
        }

    def decode(self, path: str) -> str:
        """The text of the file at `path`, by the encoding that it declares."""
        return text_of(self.path / path)


def make_master(target: Target, path: Path, without: Path | None = None) -> Master:
    """Copies the target into the new folder `path`; `without` (our run folder) is left out."""
    path.mkdir(parents=True)
    if target.root is not None:
        _gather(target.root, path, files_of(target.root.resolve(), without))
        _gather(target.root, path, included(target.root.resolve(), target.include))
    for place, source in target.place:
        _gather(source, path / place, files_of(source.resolve(), without))
    return Master(path, snapshot(path))


def add_included(target: Target, master: Master) -> Master:
    """The copy with those files of the target's `include` that it lacks, such as built ones that no revision holds."""
    if target.root is None or not target.include:
        return master
    names = included(target.root.resolve(), target.include)
    _gather(target.root, master.path, [name for name in names if name not in master.entries])
    return Master(master.path, snapshot(master.path))


def _gather(source: Path, to: Path, names: Iterable[str]) -> None:
    root = source.resolve()
    to.mkdir(parents=True, exist_ok=True)
    for name in names:
        destination = to / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        if destination.is_symlink() or destination.exists():
            destination.unlink()
        if (root / name).is_symlink():
            destination.symlink_to(_inside(root, name))
        else:
            shutil.copy2(root / name, destination)
            destination.chmod(stat.S_IMODE(destination.stat().st_mode) | stat.S_IRUSR)


def _inside(root: Path, name: str) -> str:
    """A link's destination; one that leads into the user's tree by an absolute path leads into the copy."""
    aim = os.readlink(root / name)
    if os.path.isabs(aim) and Path(aim).is_relative_to(root):
        return os.path.relpath(aim, (root / name).parent)
    return aim


def snapshot(path: Path) -> dict[str, Entry]:
    """Every file, link and folder under `path`, by its relative path."""
    return {name: _entry(path / name, info) for name, info in _walk(path)}


def _entry(path: Path, info: os.stat_result) -> Entry:
    kind = _kind(info)
    content = ""
    if kind == "link":
        content = os.readlink(path)
    elif kind == "file":
        content = _hash(path)
    return Entry(kind, stat.S_IMODE(info.st_mode), content, info.st_mtime_ns)


class Copy:
    """One worker's scratch copy."""

    def __init__(self, master: Master, path: Path) -> None:
        shutil.copytree(master.path, path, symlinks=True)
        self.path = Path(os.path.realpath(path))
        self._master = master
        self._ordered = sorted(master.entries.items())  # folders before what is in them
        self._seen = {name: _signature(info) for name, info in _walk(self.path)}

    def write(self, path: str, data: bytes) -> None:
        """Makes `data` the content of the file at `path`; through no link, into no shared inode."""
        destination = self.path / path
        mode = self._master.entries[path].mode if path in self._master.entries else 0o644
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _writable(destination.parent):
            _remove(destination)
            destination.write_bytes(data)
            destination.chmod(mode)

    def delete(self, path: str) -> None:
        """Takes the file at `path` away."""
        _remove_in(self.path, path)

    def restore(self) -> list[str]:
        """Makes the copy equal to the master again; the paths that weren't.

        A file whose inode, size, mode and both times are as last seen is unchanged: no process can set the
        time of the last status change. Everything else is compared by content.
        """
        found = dict(_walk(self.path, open_folders=True))
        repaired = [name for name in sorted(found, reverse=True) if name not in self._master.entries]
        for name in repaired:
            _remove_in(self.path, name)
        for name, entry in self._ordered:
            info = found.get(name)
            if info is not None and self._seen.get(name) == _signature(info):
                continue
            if self._repair(name, entry, info):
                repaired.append(name)
            self._seen[name] = _signature((self.path / name).lstat())
        return repaired

    def _repair(self, name: str, entry: Entry, info: os.stat_result | None) -> bool:
        path = self.path / name
        changed = info is None or _differs(path, entry, info)
        if changed and not (entry.kind == "folder" and info is not None and _kind(info) == "folder"):
            _remove_in(self.path, name)
            _copy_one(self._master.path / name, path, entry)
        if entry.kind != "link":
            path.chmod(entry.mode)
        if entry.kind == "file":
            os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
        return changed

    def remove(self) -> None:
        """Deletes the copy."""
        _remove(self.path)


def _copy_one(source: Path, to: Path, entry: Entry) -> None:
    with _writable(to.parent):
        if entry.kind == "folder":
            to.mkdir()
        elif entry.kind == "link":
            to.symlink_to(entry.content)
        else:
            shutil.copyfile(source, to)


def _differs(path: Path, entry: Entry, info: os.stat_result) -> bool:
    if _kind(info) != entry.kind or (entry.kind != "link" and stat.S_IMODE(info.st_mode) != entry.mode):
        return True
    if entry.kind == "link":
        return os.readlink(path) != entry.content
    return entry.kind == "file" and (info.st_nlink > 1 or _hash(path) != entry.content)


def _signature(info: os.stat_result) -> tuple[int, ...]:
    if _kind(info) == "folder":  # its times change with every file made in it
        return (info.st_mode, info.st_ino)
    return (info.st_mode, info.st_ino, info.st_nlink, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _kind(info: os.stat_result) -> str:
    if stat.S_ISDIR(info.st_mode):
        return "folder"
    if stat.S_ISLNK(info.st_mode):
        return "link"
    return "file" if stat.S_ISREG(info.st_mode) else "other"


def _walk(root: Path, *, open_folders: bool = False) -> Iterator[tuple[str, os.stat_result]]:
    """Everything under `root` with its lstat; folders before what is in them, never through a link.

    `open_folders` makes folders accessible that a test has closed; their entries keep the mode found.
    """
    queue = [""]
    while queue:
        folder = queue.pop()
        for item in os.scandir(root / folder):
            name = os.path.join(folder, item.name)
            info = item.stat(follow_symlinks=False)
            yield name, info
            if stat.S_ISDIR(info.st_mode):
                if open_folders and info.st_mode & 0o700 != 0o700:
                    os.chmod(root / name, stat.S_IMODE(info.st_mode) | 0o700)
                queue.append(name)


def _hash(path: Path) -> str:
    total = hashlib.sha256()
    mode = path.lstat().st_mode
    if not mode & stat.S_IRUSR:
        path.chmod(stat.S_IMODE(mode) | stat.S_IRUSR)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Lends the owner the right to write into a folder that was copied as read-only."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    closed = mode & 0o700 != 0o700
    if closed:
        folder.chmod(mode | 0o700)
    try:
        yield
    finally:
        if closed:
            folder.chmod(mode)


def _remove_in(root: Path, name: str) -> None:
    path = root / name
    if path.is_symlink() or path.exists():
        with _writable(path.parent):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path, onerror=_open_and_retry)
    elif path.exists():
        path.unlink()


def _open_and_retry(function: Callable[[str], Any], path: str, _: object) -> None:
    for folder in (os.path.dirname(path), path):
        if not os.path.islink(folder):
            os.chmod(folder, 0o700)
    if function in (os.scandir, os.open, os.lstat):
        shutil.rmtree(path)
    else:
        function(path)
