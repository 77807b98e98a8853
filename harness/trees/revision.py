"""What was run, in a word: a commit where the tree is exactly one, else a digest of the content."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from fastlora_verify.harness.errors import GitError
from fastlora_verify.harness.targets.listing import files_of
from fastlora_verify.harness.targets.sources import on_disk
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.git import run_git
from fastlora_verify.mutations.source import SourceFile


def digest_of_sources(sources: Mapping[str, SourceFile]) -> str:
    """Of the modules that mutations look into."""
    return _digest((file.path, file.text.encode(errors="surrogateescape")) for file in sources.values())


def digest_of_tests(target: Target, tests: Iterable[str]) -> str:
    """Of the files under the test paths."""
    return _digest(_files(target, tests))


def commit_of(target: Target) -> str | None:
    """HEAD, if the whole target is one clean checkout."""
    if target.root is None or target.place:
        return None
    head = _git(target.root, "rev-parse", "HEAD")
    changed = _git(target.root, "status", "--porcelain", "--", ".")
    return head if head and changed == "" else None


def cpu_model() -> str | None:
    """The processor's name, as the machine gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None) or platform.processor() or platform.machine() or None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = run_git(folder, *arguments)
    except GitError:  # no git here
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None


def _files(target: Target, tests: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for test in tests:
        inner = test.partition("::")[0]
        found = on_disk(target, inner)
        if found is None:
            continue
        if found.is_file():
            yield inner, found.read_bytes()
        else:
            yield from ((f"{inner}/{name}", (found / name).read_bytes()) for name in _regular(found))


def _regular(folder: Path) -> list[str]:
    return [name for name in files_of(folder) if (folder / name).is_file()]


def _digest(files: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for path, data in sorted(files):
        total.update(f"{path}\0{len(data)}\0".encode(errors="surrogateescape") + data)
    return f"sha256:{total.hexdigest()}"
