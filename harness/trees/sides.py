"""Which files of the copy are the target's own modules, and which belong to its tests."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.tree import Entry

TEST_NAMES = ("test_*.py", "*_test.py", "conftest.py")
_TEST_FOLDERS = ("test", "tests")


def source_side(target: Target, entries: Mapping[str, Entry]) -> Callable[[str], bool]:
    """A function from a path in the copy to whether it is the target's own code.

    Own code is what lies in the packages of the target's modules, apart from its instruments and tests: an
    `assert` in a kernel says as little about the tests as any other exception of the kernel.
    """
    packages = {folder for module in target.modules for folder in _packages(target, module, entries)}
    instruments = {path for name in target.instruments for path in _files(target, name)}
    modules = {path for name in target.modules for path in _files(target, name)}
    tests = [PurePosixPath(test.partition("::")[0]) for test in target.tests]

    def is_source(path: str) -> bool:
        pure = PurePosixPath(path)
        if path in instruments or is_named(pure, TEST_NAMES):
            return False
        if path in modules:
            return True
        if any(pure == test or test in pure.parents for test in tests):
            return False
        return any(str(parent) in packages for parent in pure.parents)

    return is_source


def side_of_tests(target: Target, entries: Mapping[str, Entry], tests: Iterable[str]) -> Callable[[str], bool]:
    """A function from a path in the copy to whether it goes with the tests, helpers and instruments included.

    `tests` are test paths, each perhaps with a `::` part. What is neither here nor on the source's side, such as
    settings and pages, goes with the source.
    """
    is_source = source_side(target, entries)
    instruments = {path for name in target.instruments for path in _files(target, name)}
    folders = {_test_folder(PurePosixPath(test.partition("::")[0]), entries) for test in tests}

    def is_test(path: str) -> bool:
        pure = PurePosixPath(path)
        if is_source(path):
            return False
        return path in instruments or is_named(pure, TEST_NAMES) or bool(folders & {pure, *pure.parents})

    return is_test


def _test_folder(path: PurePosixPath, entries: Mapping[str, Entry]) -> PurePosixPath:
    """The outermost folder called `tests` around a test's path; else the path, or its folder where it is a file's."""
    for folder in reversed([path, *path.parents]):
        if folder.name in _TEST_FOLDERS:
            return folder
    entry = entries.get(str(path))
    inside = entry is not None and entry.kind != "folder" and path.parent != PurePosixPath(".")
    return path.parent if inside else path


def is_named(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    """Whether a file's name is one of these, `*` allowed."""
    return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)


def _files(target: Target, module: str) -> list[str]:
    stem = module.replace(".", "/")
    return [
        str(PurePosixPath(root, name)) for root in target.source_roots for name in (f"{stem}.py", f"{stem}/__init__.py")
    ]


def _packages(target: Target, module: str, entries: Mapping[str, Entry]) -> list[str]:
    """The module's own folder, and those above it as long as they are regular packages."""
    folders = []
    parts = module.split(".")[:-1]
    for root in target.source_roots:
        for length in range(len(parts), 0, -1):
            folder = str(PurePosixPath(root, *parts[:length]))
            if f"{folder}/__init__.py" in entries:
                folders.append(folder)
    return folders
