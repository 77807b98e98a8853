"""The user's repository, read and never written: revisions, files at a revision, what differs between two.

No command here takes a lock, refreshes the index, runs a hook, starts a daemon or fetches what a partial clone lacks.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastlora_verify.harness.errors import GitError

_ENV = {
    "GIT_OPTIONAL_LOCKS": "0",  # `status` leaves the index as it is
    "GIT_ALLOW_PROTOCOL": "none",  # nothing is fetched, a missing object is an error
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "LC_ALL": "C",
}
_QUIET = ("safe.directory=*", f"core.hooksPath={os.devnull}", "core.fsmonitor=false", "core.quotePath=false")


@dataclass(frozen=True)
class Revision:
    """A commit, and what the user calls it."""

    name: str
    commit: str  # its full id


@dataclass(frozen=True)
class Change:
    """A path that differs between two revisions."""

    status: str  # git's letter: A added, D deleted, M modified, R renamed, C copied, T of another type
    path: str  # from the repository's top, with /
    old: str  # where it was before; the same where it wasn't renamed or copied


def run_git(
    folder: Path,
    *arguments: str,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """One git command in `folder`, its output as bytes. Raises GitError only where there is no git to run."""
    # An inherited GIT_DIR would make git look into another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = [word for pair in (*_QUIET, *config) for word in ("-c", pair)]
    try:
        return subprocess.run(
            ["git", *settings, "-C", str(folder), *arguments],
            env={**inherited, **_ENV, **(env or {})},
            input=stdin if stdin is not None else b"",
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise GitError(f"git can't be run ({error.strerror}), and a revision was asked for; install git") from error


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """What a failed command says of it, in one line: its first error, else its last line."""
    lines = [line.strip() for line in os.fsdecode(done.stderr + b"\n" + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
    text = (errors or lines[-1:] or [f"status {done.returncode}"])[0]
    return text.removeprefix("fatal: ").removeprefix("error: ")


def top_of(path: Path) -> Path | None:
    """The top folder of the working tree that holds `path`; None outside of any."""
    done = run_git(path, "rev-parse", "--show-toplevel")
    if done.returncode:
        return None
    return Path(os.fsdecode(done.stdout).removesuffix("\n")).resolve()


@dataclass(frozen=True)
class Repository:
    """A repository of the user's. Paths are given from its top, with /."""

    top: Path

    @classmethod
    def around(cls, path: Path) -> Repository:
        """The repository that `path` lies in. Raises GitError if there is none."""
        top = top_of(path)
        if top is None:
            raise GitError(f"{path} is in no git repository, so it has no revisions")
        return cls(top)

    def resolve(self, rev: str) -> str:
        """The full id of the commit that `rev` names. Raises GitError."""
        done = run_git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
        if done.returncode or not rev:
            raise GitError(
                f"{rev!r} is no revision of {self.top}; give a branch, a tag or a commit that `git log` knows"
            )
        return done.stdout.decode("ascii").strip()

    def revision(self, rev: str) -> Revision:
        """The same with the user's word for it; a whole id is shortened. Raises GitError."""
        commit = self.resolve(rev)
        return Revision(rev[:9] if commit.startswith(rev) else rev, commit)

    def missing(self, rev: str, of: str) -> int:
        """How many commits of `of` the commit `rev` lacks."""
        return int(self._out("rev-list", "--count", f"{rev}..{of}"))

    def subject(self, commit: str) -> str:
        """The first line of a commit's message."""
        text = self._out("log", "-1", "--no-show-signature", "--format=%s", commit)
        return text.decode("utf-8", "replace").strip()

    def file_at(self, rev: str, path: str) -> bytes | None:
        """The content of a file at a revision; None if it isn't there or is no file."""
        done = run_git(self.top, "cat-file", "blob", f"{rev}:{path}")
        return done.stdout if done.returncode == 0 else None

    def blobs(self, rev: str, paths: Sequence[str] = ()) -> dict[str, str]:
        """Ids of the blobs at a revision, by path: of the whole tree, or of the files and folders `paths`."""
        return {path: blob for path, kind, blob in self._tree(rev, paths) if kind == "blob"}

    def submodules(self, rev: str) -> list[str]:
        """Where other repositories are mounted at a revision."""
        return [path for path, kind, _ in self._tree(rev, ()) if kind == "commit"]

    def _tree(self, rev: str, paths: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """(path, kind, id) of all that isn't a folder."""
        out = self._out("ls-tree", "-r", "-z", "--full-tree", rev, "--", *paths)
        for row in filter(None, os.fsdecode(out).split("\0")):
            what, _, path = row.partition("\t")
            _, kind, blob = what.split(" ")
            yield path, kind, blob

    def changes(self, base: str, head: str) -> list[Change]:
        """What differs between two revisions, renames found."""
        out = self._out("diff-tree", "-r", "-z", "-M", "--no-commit-id", "--name-status", base, head)
        words = iter(os.fsdecode(out).split("\0")[:-1])
        found = []
        for status in words:
            old = next(words)
            path = next(words) if status[0] in "RC" else old
            found.append(Change(status[0], path, old))
        return found

    def uncommitted(self) -> list[str]:
        """Paths that differ from HEAD in the index or in the working tree, and untracked ones that aren't ignored."""
        out = self._out("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
        return [row[3:] for row in os.fsdecode(out).split("\0") if row]

    def config(self, name: str) -> str | None:
        """A setting as it applies in this repository."""
        done = run_git(self.top, "config", "--get", name)
        return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None

    def inside(self, name: str) -> Path:
        """A path of the repository's own folder, such as `objects`, wherever a linked working tree keeps it."""
        return (self.top / os.fsdecode(self._out("rev-parse", "--git-path", name)).removesuffix("\n")).resolve()

    def _out(self, *arguments: str) -> bytes:
        done = run_git(self.top, *arguments)
        if done.returncode:
            raise GitError(f"git {arguments[0]} failed in {self.top}: {said(done)}")
        return done.stdout
