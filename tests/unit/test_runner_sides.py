"""Whose code raised: the target's own or its tests'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import target_of

from fastlora_verify.harness.trees.sides import side_of_tests, source_side
from fastlora_verify.harness.trees.tree import Entry

FILE = Entry("file", 0o644, "", 0)
PACKAGES = ("src/pkg/__init__.py", "src/pkg/utils/__init__.py", "src/space/kernels/__init__.py")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("src/pkg/utils/fast.py", True),
        ("src/pkg/utils/other.py", True),
        ("src/pkg/other.py", True),
        ("src/pkg/deep/er/other.py", True),
        ("src/elsewhere.py", False),
        ("src/space/kernels/k.py", True),
        ("src/space/kernels/helper.py", True),
        ("src/space/oracles/instruments.py", False),
        ("src/space/suites/x.py", False),
        ("src/pkg/instruments.py", False),
        ("src/pkg/test_inside.py", False),
        ("src/pkg/conftest.py", False),
        ("src/pkg/checks/inner.py", False),
        ("tests/helpers.py", False),
        ("tests/test_k.py", False),
        ("tests/module_in_tests.py", True),
        ("conftest.py", False),
    ],
)
def test_the_packages_of_the_modules_are_source_and_tests_and_instruments_are_not(path: str, source: bool) -> None:
    target = replace(
        target_of(Path("/nowhere"), "pkg.utils.fast", "space.kernels.k", "tests.module_in_tests"),
        source_roots=("src", "."),
        instruments=("pkg.instruments",),
        tests=("tests", "src/pkg/checks", "src/pkg/x.py::Test"),
    )
    is_source = source_side(target, dict.fromkeys(PACKAGES, FILE))
    assert is_source(path) is source


@pytest.mark.parametrize(
    ("path", "with_tests"),
    [
        ("tests/deep/test_fast.py", True),
        ("tests/helpers.py", True),  # beside the folder of the test that was named
        ("tests/data/x.json", True),
        ("src/space/oracles/instruments.py", True),
        ("conftest.py", True),
        ("checks/helper.py", True),
        ("src/pkg/test_inside.py", True),
        ("src/pkg/other.py", False),
        ("pyproject.toml", False),
        ("README.md", False),
    ],
)
def test_helpers_and_instruments_go_with_the_tests(tmp_path: Path, path: str, with_tests: bool) -> None:
    target = replace(
        target_of(tmp_path, "pkg.utils.fast", "space.kernels.k"), instruments=("space.oracles.instruments",)
    )
    entries = dict.fromkeys(
        (*PACKAGES, "tests/deep/test_fast.py", "checks/test_other.py", "src/pkg/test_inside.py"), FILE
    )
    tests = ("tests/deep/test_fast.py::test_one", "checks/test_other.py", "src/pkg/test_inside.py")
    assert side_of_tests(target, entries, tests)(path) is with_tests
