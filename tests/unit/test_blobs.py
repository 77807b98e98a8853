"""What makes up a tree's source and its tests: by content, whatever the checkout's modes and times."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import copy_of, target_of

from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.blobs import blobs_of
from fastlora_verify.harness.trees.tree import Entry, make_master
from fastlora_verify.reports.trees import digest_of


def entries(*paths: str) -> dict[str, Entry]:
    return {path: Entry("file", 0o644, f"hash of {path}", 0) for path in paths}


def sides(target: Target, *paths: str, tests: tuple[str, ...] = ("tests",)) -> tuple[set[str], set[str]]:
    found = blobs_of(target, entries(*paths), tests)
    return set(found.source), set(found.tests)


SRC = target_of(Path("/nowhere"), "pkg.kernel")


def test_packages_are_source_and_what_tests_use_is_tests() -> None:
    source = {"src/pkg/__init__.py", "src/pkg/kernel.py", "src/pkg/data.json", "src/beside.py", "src/other/x.py"}
    tests = {"tests/test_a.py", "tests/helpers/h.py", "tests/data/x.bin", "conftest.py", "pyproject.toml", "tox.ini"}
    pages = {"README.md", "docs/page.py", "LICENSE", "setup.py"}
    assert sides(SRC, *source, *tests, *pages) == (source, tests)


def test_one_test_file_brings_the_whole_folder_of_tests() -> None:
    files = {"src/pkg/__init__.py", "src/pkg/kernel.py", "tests/gpu/test_a.py", "tests/helpers.py"}
    assert sides(SRC, *files, tests=("tests/gpu/test_a.py::test_x",))[1] == {"tests/gpu/test_a.py", "tests/helpers.py"}


def test_of_modules_at_the_root_every_python_file_counts() -> None:
    flat = replace(SRC, source_roots=(".",), modules=("kernel",))
    source, tests = sides(flat, "kernel.py", "helper.py", "notes.txt", "test_kernel.py", tests=("test_kernel.py",))
    assert source == {"kernel.py", "helper.py"}
    assert tests == {"test_kernel.py"}


def test_tests_inside_the_package_are_tests() -> None:
    files = ("src/pkg/__init__.py", "src/pkg/kernel.py", "src/pkg/tests/test_a.py", "src/pkg/tests/util.py")
    source, tests = sides(replace(SRC, tests=("src/pkg/tests",)), *files, tests=("src/pkg/tests",))
    assert source == {"src/pkg/__init__.py", "src/pkg/kernel.py"}
    assert tests == {"src/pkg/tests/test_a.py", "src/pkg/tests/util.py"}


@pytest.mark.parametrize("change", ["nothing", "mode", "content", "new"])
def test_the_digest_follows_content_and_not_the_checkout(tmp_path: Path, change: str) -> None:
    root = copy_of("all-killed", tmp_path)
    other = Path(shutil.copytree(root, tmp_path / "elsewhere"))
    (other / "README.md").write_text("another page")
    if change == "mode":
        (other / "src/calc.py").chmod(0o755)
    elif change == "content":
        with (other / "src/calc.py").open("a") as file:
            file.write("\n")
    elif change == "new":
        (other / "src/more.py").write_text("")
    digests = []
    for number, folder in enumerate((root, other)):
        target = target_of(folder, "calc")
        master = make_master(target, tmp_path / f"m{number}")
        found = blobs_of(target, master.entries, target.tests)
        assert "tests/test_calc.py" in found.tests
        digests.append((digest_of(found.source), digest_of(found.tests)))
    assert (digests[0][0] == digests[1][0]) is (change in ("nothing", "mode"))
    assert digests[0][1] == digests[1][1]
