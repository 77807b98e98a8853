"""Imports run one way, no folder of ours shadows a distribution, and the page of modules is true."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = "fastlora_verify."
# The parent's folders: each may import those before it.
HARNESS = (
    "harness/targets",
    "harness/trees",
    "harness/discover",
    "harness/editing",
    "harness/runner",
    "harness/suite_diff",
    "harness/sweep",
    "harness/commands",
)
MAY_IMPORT = {
    **{folder: {"harness", "mutations", "reports"} for folder in (*HARNESS, "harness")},
    "harness/discover": {"harness", "mutations"},
    "harness/suite_diff": {"harness", "reports"},
    "harness/child": {"harness/child", "kernels", "oracles"},
    "oracles": {"oracles", "kernels"},
    "kernels": {"kernels"},
    "mutations": {"mutations"},
    "reports": {"reports"},
    "tests/suites": {"kernels", "oracles"},
}
# Libraries that a package must not import: they belong elsewhere, or load torch.
MUST_NOT = {
    **{folder: {"torch", "peft", "bitsandbytes", "transformers", "kernels"} for folder in (*HARNESS, "harness")},
    "harness/child": {"libcst", "mutmut", "pandas", "tabulate", "typer", "rich", "psutil", "tomlkit"},
    "mutations": {"torch", "peft", "bitsandbytes", "transformers", "pytest"},
    "reports": {"torch", "peft", "bitsandbytes", "transformers", "libcst"},
    "oracles": {"libcst", "pytest"},
    "kernels": {"libcst", "pytest"},
}
# The one file of the parent that asks the oracles' package for a dataclass does so without importing torch.
ALLOWED = {("harness/arguments.py", "oracles")}


def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it; type-checking blocks left out."""
    found: set[str] = set()
    stack: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            stack.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        stack.extend(ast.iter_child_nodes(node))
    return found


def wrong_imports(folder: str, path: Path) -> set[str]:
    """Imports of a file that its package may not make."""
    wrong = set()
    later = HARNESS[HARNESS.index(folder) + 1 :] if folder in HARNESS else ()
    for name in imported(path):
        if name.startswith(OURS):
            parts = name.removeprefix(OURS).split(".")
            package = "harness/child" if parts[:2] == ["harness", "child"] else parts[0]
            constants = package == "harness/child" and folder.startswith("harness")  # constants and job formats
            if (
                package not in MAY_IMPORT[folder]
                and not constants
                and (f"{folder}/{path.name}", package) not in ALLOWED
            ):
                wrong.add(name)
            if "/".join(parts[:2]) in later:
                wrong.add(name)
        elif name.partition(".")[0] in MUST_NOT.get(folder, set()):
            wrong.add(name)
    return wrong


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_run_one_way(folder: str) -> None:
    files = sorted((ROOT / folder).glob("*.py"))
    assert files
    assert {path.name: wrong for path in files if (wrong := wrong_imports(folder, path))} == {}


@pytest.mark.parametrize(
    ("folder", "line", "wrong"),
    [
        ("mutations", "import torch", "torch"),
        ("kernels", "from fastlora_verify.oracles.base import Oracle", "fastlora_verify.oracles.base.Oracle"),
        (
            "reports",
            "def f():\n    from fastlora_verify.harness.runner import run",
            "fastlora_verify.harness.runner.run",
        ),
        ("harness/child", "import libcst.matchers", "libcst.matchers"),
        (
            "harness/targets",
            "from fastlora_verify.harness.trees.tree import Entry",
            "fastlora_verify.harness.trees.tree.Entry",
        ),
    ],
)
def test_a_wrong_import_is_seen(tmp_path: Path, folder: str, line: str, wrong: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(line + "\n")
    assert wrong_imports(folder, path) == {wrong}


@pytest.mark.parametrize(
    "arguments", [["-P", "-m", "fastlora_verify.harness.child.environment", "cpu"], ["-P", "-c", "0"]]
)
def test_our_folder_of_kernels_is_not_another_distribution(arguments: list[str]) -> None:
    """`import kernels` in what the tool starts must not find ours: bitsandbytes would run other code."""
    code = "import importlib.util as u; s = u.find_spec('kernels'); print(s.origin if s else '')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert str(ROOT) not in done.stdout
    assert subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True).returncode == 0


def test_every_package_is_packaged() -> None:
    """A package that setuptools isn't told of works in an editable install, and is missing from the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    folders = {settings["package-dir"][package] for package in settings["packages"]}
    ours = ("harness", "kernels", "mutations", "oracles", "reports")
    holding = {path.parent.relative_to(ROOT).as_posix() for name in ours for path in (ROOT / name).rglob("__init__.py")}
    assert holding <= folders
    assert "tests/suites" in folders


def test_tests_are_no_package() -> None:
    assert not (ROOT / "tests" / "__init__.py").exists()


def test_the_page_of_modules_is_true() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "architecture.py"))
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    assert script["page"](text) == text
