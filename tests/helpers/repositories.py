"""Git repositories made in a test."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_IDENTITY = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder: Path, *arguments: str) -> str:
    """Runs git there, untouched by the machine's own settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {**_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", "-C", str(folder), *arguments], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def new_repository(folder: Path) -> Path:
    """An empty repository on the branch `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder: Path, files: Mapping[str, str | None], message: str = "a change") -> str:
    """Writes the files (None: removes one), commits all of the tree, and gives the commit's id."""
    for path, text in files.items():
        if text is None:
            (folder / path).unlink()
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def hashes(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Content, mode and time of last change of every file under `folder`, `.git` and what git ignores included."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        if path.is_file() and not path.is_symlink():
            found[str(path)] = (hashlib.sha256(path.read_bytes()).hexdigest(), info.st_mode, info.st_mtime_ns)
        else:
            found[str(path)] = (os.readlink(path) if path.is_symlink() else "", info.st_mode, 0)
    return found
