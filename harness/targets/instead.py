"""What the command line says in place of a target's own: its interpreter, its tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastlora_verify.harness.errors import NothingToRun, PythonError
from fastlora_verify.harness.targets.sources import check_tests, on_disk
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.targets.target_file import find_executable


def with_python(target: Target, python: str | None) -> Target:
    """The target with the interpreter of the command line. Raises PythonError if there is no such file."""
    if python is None:
        return target
    found = find_executable(python, Path.cwd())
    if found is None:
        raise PythonError(python, "is not an executable file")
    return replace(target, python=found)


def inner_tests(target: Target, tests: Sequence[str]) -> tuple[str, ...]:
    """The command line's test paths, in the copy. They may be given as they lie on disk, too.

    Raises TargetError for one that is nowhere, NothingToRun where neither the command line nor the target has any.
    """
    inner = tuple(_inner_test(target, test) for test in tests)
    if not (inner or target.tests):
        raise NothingToRun(f"nothing to run: {target.file} names no tests; fill its key target.tests, or give --tests")
    check_tests(target, inner or target.tests, "--tests" if inner else "target.tests")
    return inner


def _inner_test(target: Target, test: str) -> str:
    path, colons, rest = test.partition("::")
    if on_disk(target, path) is not None:
        return test
    folders = [*target.place, *([("", target.root)] if target.root is not None else [])]
    real = Path(path).resolve()
    for inner, folder in folders:
        if real.is_relative_to(folder) and real.exists():
            relative = (Path(inner) / real.relative_to(folder)).as_posix()
            return f"{relative}{colons}{rest}"
    return test
