"""A scratch repository beside the user's: trees of revisions laid out, merged, rebased and patched there.

It borrows the user's objects (`objects/info/alternates`), so nothing is cloned and nothing is written into the user's
repository: what a merge makes lies in the scratch folder and goes with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

from fastlora_verify.harness.errors import GitError
from fastlora_verify.harness.trees.git import Repository, Revision, run_git, said

_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "fastlora-verify"), ("EMAIL", "fastlora-verify@localhost"), ("DATE", "@0 +0000"))
}
# What the user's own settings may add: signatures, prompts, squashes, remembered resolutions.
_PLAIN = (
    "commit.gpgSign=false",
    "merge.verifySignatures=false",
    "merge.ff=true",
    "rerere.enabled=false",
    "rebase.autoSquash=false",
    "rebase.autoStash=false",
    "rebase.updateRefs=false",
    "rebase.rebaseMerges=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
)
_NEWLINES = ("core.autocrlf", "core.eol", "core.symlinks", "core.fileMode")  # how a checkout of the user's looks
_STAGES = {"123": "content", "23": "add/add", "12": "modify/delete", "13": "modify/delete"}
_SAID = re.compile(r"^CONFLICT \((?P<kind>[^)]+)\): (?P<text>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Conflict:
    """A path that git can't merge."""

    path: str  # from the repository's top
    kind: str  # git's word: "content", "add/add", "modify/delete", "rename/delete"…
    text: str = ""  # git's sentence


class Conflicts(Exception):  # noqa: N818 - it is a finding, not an error
    """A merge or a rebase that stops; `step` says at what."""

    def __init__(self, step: str, conflicts: tuple[Conflict, ...]) -> None:
        super().__init__(step)
        self.step, self.conflicts = step, conflicts


class ScratchRepository:
    """A repository of our own in `folder`, which must not exist yet; `of` lends its objects."""

    def __init__(self, folder: Path, of: Repository | None = None) -> None:
        self._folder = folder
        self._git_dir = folder / ".git"
        self.all_objects = Repository(folder)  # the user's and what was made here
        folder.mkdir(parents=True)
        self._settings: tuple[str, ...] = _PLAIN
        form = "sha1" if of is None else _object_format(of)
        self._must("init", "-q", "--template=", f"--object-format={form}", where=folder)
        if of is not None:
            self._borrow(of)

    def _borrow(self, of: Repository) -> None:
        info = self._git_dir / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "alternates").write_bytes(os.fsencode(f"{of.inside('objects')}\n"))
        shallow = of.inside("shallow")
        if shallow.is_file():
            (self._git_dir / "shallow").write_bytes(shallow.read_bytes())
        values = ((name, of.config(name)) for name in _NEWLINES)
        self._settings += tuple(f"{name}={value}" for name, value in values if value is not None)

    def lay_out(self, commit: str, to: Path) -> None:
        """Writes all files of a commit into the new folder `to`. No file of it is left out, as an archive would."""
        to.mkdir(parents=True)
        index = {"GIT_INDEX_FILE": str(self._folder / f"index-{to.name}")}
        self._must("read-tree", "--reset", "-u", commit, where=to, env=index)

    def merged(self, onto: Sequence[Revision], head: Revision) -> str:
        """The first of `onto` with the others merged into it one by one, then `head`.

        Returns the commit made. Raises Conflicts, and GitError where git won't merge for another reason.
        """
        first, *others = onto
        self._checkout(first)
        name = first.name
        for other in (*others, head):
            message = f"{other.name} merged onto {name}"
            done = self._run("merge", "--no-ff", "--no-edit", "--no-verify", "-q", "-m", message, other.commit)
            if done.returncode:
                raise self._stopped(f"merging {other.name} onto {name}", done)
            name = f"{name} with {other.name}"
        return self._head()

    def rebased(self, head: Revision, onto: Revision, upstream: Revision | None = None) -> str:
        """`head` rebased onto another commit, without its commits up to `upstream` (default: `onto`).

        Returns and raises as `merged` does.
        """
        self._checkout(head)
        since = upstream or onto
        words = ("-q", "--no-verify", "--no-autosquash", "--empty=drop", "--onto", onto.commit, since.commit)
        done = self._run("rebase", *words)
        if done.returncode:
            stopped = self._out("rev-parse", "--verify", "-q", "REBASE_HEAD")
            at = f" at {stopped[:9]}" if stopped else ""
            raise self._stopped(f"rebasing {head.name} onto {onto.name} stops{at}", done)
        return self._head()

    def apply(self, patch: Path, to: Path, depth: int = 0) -> list[str]:
        """Applies a diff to the files in `to`, which no index knows; returns the paths it names.

        Its paths are from a top that lies `depth` folders above `to`, or from `to` itself, with git's a/ and b/ before
        them or without. Raises GitError with file and line of what doesn't fit.
        """
        try:
            text = patch.read_bytes()
        except OSError as error:
            raise GitError(f"{patch} cannot be read: {error.strerror}") from error
        problem = ""
        for strip in dict.fromkeys((depth + 1, 1, depth, 0)):
            words = ("apply", "--whitespace=nowarn", f"-p{strip}")
            done = self._run(*words, "-", where=to, stdin=text)
            if not done.returncode:
                rows = os.fsdecode(self._run(*words, "--numstat", "-z", "-", where=to, stdin=text).stdout).split("\0")
                return [row.split("\t", 2)[2] for row in rows if row.count("\t") >= 2]
            problem = problem or said(done)
        raise GitError(f"{patch} does not apply: {problem}")

    def _checkout(self, revision: Revision) -> None:
        self._must("checkout", "-q", "-f", "--detach", revision.commit)

    def _head(self) -> str:
        return self._out("rev-parse", "HEAD")

    def _stopped(self, step: str, done: CompletedProcess[bytes]) -> Conflicts | GitError:
        stages: dict[str, str] = {}
        listed = self._run("ls-files", "-u", "-z")
        for row in filter(None, os.fsdecode(listed.stdout).split("\0")):
            what, _, path = row.partition("\t")
            stages[path] = stages.get(path, "") + what[-1]
        if not stages:
            return GitError(f"{step} failed: {said(done)}")
        texts = [(found["kind"], found["text"]) for found in _SAID.finditer(os.fsdecode(done.stdout + done.stderr))]
        return Conflicts(step, tuple(_conflict(path, found, texts) for path, found in stages.items()))

    def _must(self, *arguments: str, where: Path | None = None, env: dict[str, str] | None = None) -> None:
        done = self._run(*arguments, where=where, env=env)
        if done.returncode:
            raise GitError(f"git {arguments[0]} failed in a scratch folder: {said(done)}")

    def _out(self, *arguments: str) -> str:
        return os.fsdecode(self._run(*arguments).stdout).strip()

    def _run(
        self, *arguments: str, where: Path | None = None, env: dict[str, str] | None = None, stdin: bytes | None = None
    ) -> CompletedProcess[bytes]:
        place = where or self._folder
        own = {"GIT_DIR": str(self._git_dir), "GIT_WORK_TREE": str(place), **_IDENTITY, **(env or {})}
        return run_git(place, *arguments, config=self._settings, env=own, stdin=stdin)


def _object_format(of: Repository) -> str:
    done = run_git(of.top, "rev-parse", "--show-object-format")
    return done.stdout.decode("ascii").strip() if done.returncode == 0 else "sha1"


def _conflict(path: str, stages: str, texts: Iterable[tuple[str, str]]) -> Conflict:
    """Git's own word for a path where it says one; else what the stages left in the index amount to."""
    named = re.compile(rf"(?<![\w./-]){re.escape(path)}(?!\.?[\w/-])")
    for kind, text in texts:
        if named.search(text):
            return Conflict(path, kind, text)
    return Conflict(path, _STAGES.get(stages, "rename"))
