"""From a folder to a described target."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from fastlora_verify.harness.discover import files
from fastlora_verify.harness.discover.found import Found, FoundKernel
from fastlora_verify.harness.discover.kernels import Reader
from fastlora_verify.harness.errors import NoKernel
from fastlora_verify.mutations.source import SourceFile, TargetSource

HOLDER = re.compile(r"^\s*class\s+\w+\s*\([^)]*\bFunction\b", re.MULTILINE)


def read_repository(root: Path) -> Found:
    """Finds kernels, tests and configuration of the repository at `root`, which is only read.

    Raises NoKernel where no autograd Function with LoRA adapters is applied.
    """
    source_root = files.source_root(root)
    sources, unread = _sources(root, source_root)
    unread += [f"{file.path} {why} and was left out" for file in _holders(sources).values() if (why := _torn(file))]
    kernels = _kernels(sources)
    if not kernels:
        raise NoKernel(root, len(sources), unread)
    modules = _modules_of(kernels, sources)
    words = {k.roles.function.partition(":")[0].rpartition(".")[2] for k in kernels}
    words |= {k.roles.patcher.rpartition(":")[2] for k in kernels if k.roles.patcher}
    tests = files.test_files(root, words)
    marker, doubt = files.gpu_marker(root, tests)
    doubts = [d for d in (doubt, *unread) if d]
    if not tests:
        doubts.append(f"tests: no test file mentions {', '.join(sorted(words))}")
    return Found(
        name=root.resolve().name,
        source_roots=(source_root,),
        modules=modules,
        tests=tests,
        pytest_args=files.pytest_args(root),
        gpu_marker=marker,
        kernels=tuple(kernels),
        doubts=tuple(doubts),
    )


def _sources(root: Path, source_root: str) -> tuple[dict[str, SourceFile], list[str]]:
    """Every module that may hold a kernel, and in words those that could not be read."""
    found: dict[str, SourceFile] = {}
    unread = []
    for path in files.python_files(root):
        module = files.module_name(root, source_root, path)
        if module is None or files.is_test(root, path):
            continue
        try:
            found[module] = files.read(root, path, module)
        except (ValueError, SyntaxError, LookupError):  # not in the encoding that it declares, or in none of text
            unread.append(f"{path.relative_to(root).as_posix()} is not text and was left out")
    return found, unread


def _kernels(sources: dict[str, SourceFile]) -> list[FoundKernel]:
    """Kernels of every group of modules that belong together: those with a Function, and what they import."""
    holders = _holders(sources)
    if not holders:
        return []
    wanted = dict(holders)
    for file in holders.values():
        for name in _imported(file, sources):
            wanted.setdefault(name, sources[name])
    for name, file in sources.items():
        if name not in wanted and ".forward" in file.text and _imported(file, sources) & set(holders):
            wanted[name] = file
    return Reader(TargetSource({name: file for name, file in wanted.items() if not _torn(file)})).kernels()


def _holders(sources: dict[str, SourceFile]) -> dict[str, SourceFile]:
    """The modules that may define a Function with adapters."""
    return {n: f for n, f in sources.items() if HOLDER.search(f.text) and "lora" in f.text.lower()}


def _torn(file: SourceFile) -> str:
    """Why a file is no Python; empty if it is."""
    try:
        ast.parse(file.text)
    except SyntaxError as error:
        return f"is not Python ({error.msg}, line {error.lineno})"
    except (RecursionError, ValueError):
        return "is not Python"
    return ""


def _imported(file: SourceFile, sources: dict[str, SourceFile]) -> set[str]:
    """The target's modules that a file imports names from."""
    try:
        tree = ast.parse(file.text)
    except (SyntaxError, RecursionError, ValueError):
        return set()
    found = set()
    package = file.module.split(".")
    if not file.path.endswith("__init__.py"):
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found |= {n for n in (name, *(f"{name}.{a.name}" for a in node.names)) if n in sources}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name in sources}
    return found


def _modules_of(kernels: list[FoundKernel], sources: dict[str, SourceFile]) -> tuple[str, ...]:
    """The modules that the kernels' roles stand in."""
    scopes = [
        scope
        for k in kernels
        for scope in (
            k.roles.function,
            *k.roles.entries,
            *k.roles.guards,
            *k.roles.helpers,
            k.roles.patcher,
            k.roles.unpatcher,
        )
        if scope
    ]
    return tuple(dict.fromkeys(scope.partition(":")[0] for scope in scopes))
