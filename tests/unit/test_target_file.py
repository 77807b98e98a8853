"""A target file is read whole and checked key by key; errors name file, key and what is allowed."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.targets.sources import check_tests, on_disk, read_sources
from fastlora_verify.harness.targets.target import Allowance
from fastlora_verify.harness.targets.target_file import load_target, package_folder
from fastlora_verify.harness.trees.tree import make_master
from fastlora_verify.mutations.base import KernelRoles

KERNEL = """\
[[kernel]]
name = "k"
kind = "linear"
function = "pkg.k:Function"
entries = ["pkg.k:forward"]
guards = ["pkg.k:guard"]
patcher = "pkg.k:patch"
unpatcher = "pkg.k:unpatch"
node = "FunctionBackward"
"""
TARGET = """\
[target]
name = "mine"
root = "."
source-roots = ["src"]
modules = ["pkg.k"]
tests = ["tests"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "src/pkg").mkdir(parents=True)
    (root / "src/pkg/__init__.py").write_text("")
    (root / "src/pkg/k.py").write_text("x = 1\n")
    (root / "tests").mkdir()
    (root / "tests/test_k.py").write_text("")
    return root


def write(tree: Path, text: str, name: str = "target.toml") -> Path:
    file = tree / name
    file.write_text(text)
    return file


def test_every_key_arrives_in_the_target(tree: Path) -> None:
    python = tree / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    (tree / "src/made.so").touch()
    (tree / "generated").mkdir()
    (tree / "generated/table").touch()
    extra = """\
include = ["src/*.so", "generated"]
instruments = ["pkg"]
pytest-args = ["-p", "no:cov"]
gpu-marker = "card"
python = "./python"
[target.place]
"src/more" = "tests"
[target.env]
A = "1"
"""
    owner = 'owner = ["library.mlp:MLP"]\n'
    allow = '[[allow]]\nmutant = "always@*"\nreason = "behind another guard"\n'
    target = load_target(write(tree, TARGET + extra + KERNEL + owner + allow))
    assert (target.name, target.root, target.source_roots) == ("mine", tree, ("src",))
    assert target.place == (("src/more", tree / "tests"),)
    assert target.include == ("src/*.so", "generated")
    assert (target.modules, target.instruments, target.tests) == (("pkg.k",), ("pkg",), ("tests",))
    assert (target.pytest_args, target.gpu_marker) == (("-p", "no:cov"), "card")
    assert target.env == (("A", "1"),)
    assert target.python == str(tree / "python")
    assert target.kernels == (
        KernelRoles(
            name="k",
            kind="linear",
            function="pkg.k:Function",
            entries=("pkg.k:forward",),
            guards=("pkg.k:guard",),
            helpers=(),
            patcher="pkg.k:patch",
            unpatcher="pkg.k:unpatch",
            node="FunctionBackward",
            owner=("library.mlp:MLP",),
        ),
    )
    assert target.allowances == (Allowance(mutant="always@*", reason="behind another guard"),)


def test_the_default_target_is_the_reference_kernels_and_its_modules_are_found() -> None:
    target = load_target(None)
    assert target.name == "reference"
    sources = read_sources(target)
    assert set(sources) == {*target.modules, *target.instruments}
    linear = sources["fastlora_verify.kernels.linear"]
    assert linear.path == "src/fastlora_verify/kernels/linear.py"
    assert "class FusedLoraLinear" in linear.text
    check_tests(target, target.tests, "target.tests")


def test_a_folder_stands_for_its_own_file_or_for_its_pyproject(tree: Path) -> None:
    nested = (TARGET + KERNEL).replace("[target]", "[tool.fastlora-verify.target]")
    nested = nested.replace("[[kernel]]", "[[tool.fastlora-verify.kernel]]")
    write(tree, "[project]\nname = 'x'\n" + nested, "pyproject.toml")
    assert load_target(tree).name == "mine"
    write(tree, TARGET.replace("mine", "own") + KERNEL, "fastlora-verify.toml")
    assert load_target(tree).name == "own"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("", ""), None),
        (('name = "mine"', ""), r"key target\.name: is missing"),
        (('name = "mine"', "name = 3"), r"key target\.name: found 3; allowed: a string that is not empty"),
        (('name = "mine"', 'name = " "'), r"key target\.name: found ' '"),
        (('tests = ["tests"]', ""), r"key target\.tests: is missing"),
        (
            ('root = "."', 'root = "."\ninclude = "src"'),
            r"key target\.include: found 'src'; allowed: a list of strings",
        ),
        (
            ('root = "."', 'root = "."\ninclude = ["../x"]'),
            r"key target\.include: found '\.\./x'; allowed: .* without \.\.",
        ),
        (
            ('root = "."', 'root = "."\ninclude = ["src/*.so"]'),
            r"key target\.include: nothing is at 'src/\*\.so'; allowed: paths and patterns of files below root",
        ),
        (
            ('root = "."', 'root = "."\ninclude = ["a**"]'),
            r"key target\.include: found 'a\*\*'; allowed: paths and patterns",
        ),
        (
            ('root = "."', 'include = ["src"]\nplace = {"a" = "src"}'),
            r"key target\.include: is relative to root, which is missing",
        ),
        (
            ('node = "FunctionBackward"', 'node = "F"\nowner = ["LlamaMLP"]'),
            r"kernel\[0\]\.owner of 'k': found 'LlamaMLP'; allowed: classes, package\.module:Class",
        ),
        (
            ('tests = ["tests"]', 'tests = "tests"'),
            r"key target\.tests: found 'tests'; allowed: a list of strings",
        ),
        (
            ('tests = ["tests"]', 'tests = ["../x"]'),
            r"key target\.tests: found '\.\./x'; allowed: .* without \.\.",
        ),
        (('tests = ["tests"]', 'tests = ["/x"]'), r"key target\.tests: found '/x'"),
        (('root = "."', 'root = "nowhere"'), r"key target\.root: .*nowhere is not a folder"),
        (('root = "."', ""), r"key target\.root: is missing, and so is place"),
        (
            ("source-roots", "source-root"),
            r"key target\.source-root: unknown key, did you mean 'source-roots'\?; all",
        ),
        (
            ('modules = ["pkg.k"]', 'modules = ["pkg/k"]'),
            r"key target\.modules: found 'pkg/k'; allowed: dotted",
        ),
        (
            ('kind = "linear"', 'kind = "mlp"'),
            r"kernel\[0\]\.kind of 'k': found 'mlp'; allowed: linear, qkv, swiglu-mlp, o",
        ),
        (
            ('function = "pkg.k:Function"', 'function = "Function"'),
            r"kernel\[0\]\.function of 'k': found 'Function'; all",
        ),
        (('"pkg.k:patch"', '"pkg.z:patch"'), r"kernel\[0\]\.patcher of 'k': pkg\.z is not one of target\.modules"),
        (('entries = ["pkg.k:forward"]', "entries = []"), r"kernel\[0\]\.entries of 'k': found an empty list"),
        (('node = "FunctionBackward"', ""), r"kernel\[0\]\.node of 'k': is missing"),
        (
            ('node = "FunctionBackward"', 'node = "F"\nnodes = 1'),
            r"kernel\[0\]\.nodes of 'k': unknown key, did you mean 'node'",
        ),
        (("[[kernel]]", "[kernel]"), r"key kernel: found .*; allowed: one or more \[\[kernel\]\] tables"),
        (("[target]", "[targets]"), r"key target: is missing"),
        (("[target]", "target = 1\n[other]"), r"key target: found 1; allowed: a table"),
        (("[[kernel]]", "[[allow]]\nmutant = 'x'\n[[kernel]]"), r"key allow\[0\]\.reason: is missing"),
        (("[[kernel]]", "[other]\n[[kernel]]"), r"key other: unknown key; allowed: target, kernel, allow"),
        (
            ("[[kernel]]", "[target.env]\nA = 1\n[[kernel]]"),
            r"key target\.env: found \{'A': 1\}; allowed: a table of",
        ),
        (
            ('root = "."', 'python = "nowhere/python"\nroot = "."'),
            r"target\.python: nowhere/python is not an exec",
        ),
        (
            ("[[kernel]]", "[target.place]\n'x' = 'package:no.such'\n[[kernel]]"),
            r"key target\.place\.x: no package 'no\.such' is installed",
        ),
        (
            ("[[kernel]]", "[target.place]\n'x' = 'gone'\n[[kernel]]"),
            r"key target\.place\.x: .*gone is not a folder",
        ),
        (("[target]", "[target"), r"target .*target\.toml: is not TOML: "),
    ],
)
def test_what_is_wrong_is_named(tree: Path, change: tuple[str, str], says: str | None) -> None:
    file = write(tree, (TARGET + KERNEL).replace(*change) if change[0] else TARGET + KERNEL)
    if says is None:
        assert load_target(file).name == "mine"
        return
    with pytest.raises(TargetError, match=says) as caught:
        load_target(file)
    assert str(caught.value).startswith(f"target {file}")
    assert "\n" not in str(caught.value)


def test_a_target_without_tests_can_be_read(tree: Path) -> None:
    assert load_target(write(tree, TARGET.replace('["tests"]', "[]") + KERNEL)).tests == ()


def test_a_copy_has_what_git_ignores_where_it_is_asked_for(tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    for name in ("src/pkg/table.bin", "src/pkg/other.bin", "made/deep/data", "made/__pycache__/data.pyc", "made/x"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    (tree / "made/link").symlink_to("x")
    (tree / ".gitignore").write_text("*.bin\nmade/\n")
    plain = make_master(load_target(write(tree, TARGET + KERNEL)), tree / "../plain")
    assert not any(path.endswith(".bin") or path.startswith("made") for path in plain.entries)
    more = TARGET.replace('root = "."', 'root = "."\ninclude = ["src/*/table.bin", "made"]')
    master = make_master(load_target(write(tree, more + KERNEL)), tree / "../more")
    assert set(master.entries) - set(plain.entries) == {
        "src/pkg/table.bin", "made", "made/deep", "made/deep/data", "made/x", "made/link",
    }  # fmt: skip
    assert (master.path / "made/deep/data").read_text() == "made/deep/data"
    assert (master.path / "made/link").is_symlink()


def test_two_kernels_of_one_name_are_refused(tree: Path) -> None:
    with pytest.raises(TargetError, match="'k' is the name of two kernels"):
        load_target(write(tree, TARGET + KERNEL + KERNEL))


def test_a_file_that_cannot_be_read_is_named(tree: Path) -> None:
    with pytest.raises(TargetError, match=r"missing\.toml: cannot be read: No such file"):
        load_target(tree / "missing.toml")
    (tree / "latin.toml").write_bytes(b"[target]\nname = '\xe9'\n")
    with pytest.raises(TargetError, match=r"latin\.toml: is not UTF-8 \(byte 17\)"):
        load_target(tree / "latin.toml")
    with pytest.raises(TargetError, match=r"has neither fastlora-verify\.toml nor pyproject\.toml"):
        load_target(tree)
    write(tree, "[project]\n", "pyproject.toml")
    with pytest.raises(TargetError, match=r"has no \[tool\.fastlora-verify\] table"):
        load_target(tree)


def test_sources_keep_their_newlines_and_their_encoding(tree: Path) -> None:
    target = load_target(write(tree, TARGET + KERNEL))
    (tree / "src/pkg/k.py").write_bytes(b"# coding: latin-1\r\nx = '\xe9'\r\n")
    assert read_sources(target)["pkg.k"].text == "# coding: latin-1\r\nx = 'é'\r\n"
    (tree / "src/pkg/k.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert read_sources(target)["pkg.k"].text == "x = 1\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"def f(:\n", r"pkg\.k: .*k\.py is not Python: .* at line 1"),
        (b"x = '\xe9'\n", r"pkg\.k: .*k\.py is not Python: invalid or missing enc"),
        (b"# coding: nonsense\n", r"k\.py is not Python: unknown encoding"),
        (b"x = 1\0\n", r"k\.py is not .*null bytes"),
        (
            None,
            r"key target\.modules: module pkg\.k is not in the tree; looked for src/pkg/k\.py, src/pkg/k/__init",
        ),
    ],
)
def test_a_module_that_is_no_python_is_one_line(tree: Path, content: bytes | None, says: str) -> None:
    target = load_target(write(tree, TARGET + KERNEL))
    file = tree / "src/pkg/k.py"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(TargetError, match=says) as caught:
        read_sources(target)
    assert "\n" not in str(caught.value)


def test_a_place_hides_the_same_folder_of_the_root(tree: Path) -> None:
    shutil.copytree(tree / "src/pkg", tree / "elsewhere")
    (tree / "elsewhere/k.py").write_text("y = 2\n")
    target = load_target(write(tree, TARGET + '[target.place]\n"src/pkg" = "elsewhere"\n' + KERNEL))
    assert read_sources(target)["pkg.k"].text == "y = 2\n"
    assert on_disk(target, "tests/test_k.py") == tree / "tests/test_k.py"


def test_a_test_path_that_is_not_in_the_tree_is_refused(tree: Path) -> None:
    target = load_target(write(tree, TARGET + KERNEL))
    check_tests(target, ("tests/test_k.py::TestX::test_y", "tests"), "target.tests")
    with pytest.raises(TargetError, match=r"key target\.tests: tests/test_z\.py::test_a is not in the tree"):
        check_tests(target, ("tests/test_z.py::test_a",), "target.tests")


def test_a_package_is_found_without_importing_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "noisy_parent/inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text("raise AssertionError('imported')\n")
    (inner / "__init__.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_folder("noisy_parent.inner") == inner
    assert package_folder("noisy_parent.other") is None
    assert package_folder("json.decoder") is None
