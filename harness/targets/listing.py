"""Which files of a folder belong to a target: tracked and untracked ones, the ignored ones only where asked for."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

# Never copied: histories, bytecode, caches, our own runs.
_NEVER = frozenset({".git", ".hg", ".fastlora-verify", "__pycache__"})
# Never copied from a folder that no git lists.
_CACHES = frozenset({".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"})


def files_of(root: Path, without: Path | None = None) -> list[str]:
    """Paths relative to `root`, sorted: regular files and symbolic links; none in the folder `without`."""
    listed = _by_git(root)
    paths = listed if listed else list(_by_walk(root, without))
    kept = {path for path in paths if _NEVER.isdisjoint(Path(path).parts)}
    if without is not None:
        kept = {path for path in kept if not (root / path).is_relative_to(without)}
    return sorted(path for path in kept if _is_file_or_link(root / path))


def included(root: Path, patterns: Iterable[str]) -> list[str]:
    """Paths relative to `root`, sorted, of files that are asked for by name: ignored or not, all below a folder."""
    found: set[str] = set()
    for pattern in patterns:
        for path in root.glob(pattern):
            inner = _by_walk(path, None) if path.is_dir() and not path.is_symlink() else [""]
            found |= {str((path / name).relative_to(root)) for name in inner}
    return sorted(path for path in found if _NEVER.isdisjoint(Path(path).parts) and _is_file_or_link(root / path))


def python_files(root: Path) -> list[str]:
    """Paths relative to `root`, sorted: every Python file but those of environments, caches and histories."""
    return sorted(path for path in _by_walk(root, None) if path.endswith(".py"))


def _by_git(root: Path) -> list[str]:
    """What git lists, nested repositories and submodules opened; nothing outside of a checkout."""
    # An inherited GIT_DIR would make git list another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", str(root)]
    command += ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, env=env, capture_output=True, check=False)
    except OSError:
        return []
    paths: list[str] = []
    for name in os.fsdecode(done.stdout).split("\0") if done.returncode == 0 else []:
        path = root / name
        if name and path.is_dir() and not path.is_symlink():
            paths += [str(Path(name, inner)) for inner in files_of(path)]
        elif name:
            paths.append(name)
    return paths


def _by_walk(root: Path, without: Path | None) -> Iterator[str]:
    for folder, names, files in os.walk(root):
        here = Path(folder)
        links = [name for name in names if (here / name).is_symlink()]
        names[:] = sorted(name for name in names if name not in links and _is_wanted(here / name, without))
        for name in [*files, *links]:
            yield str((here / name).relative_to(root))


def _is_wanted(folder: Path, without: Path | None) -> bool:
    if folder.name in _NEVER | _CACHES or folder == without:
        return False
    return not (folder / "pyvenv.cfg").exists()


def _is_file_or_link(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:  # tracked, but deleted in the working tree
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)
