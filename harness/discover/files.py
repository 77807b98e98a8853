"""The Python files of a repository: its source roots, its modules, its tests."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from fastlora_verify.harness.targets.sources import text_of
from fastlora_verify.mutations.source import SourceFile

SKIPPED = frozenset({
    ".git", ".hg", ".venv", "venv", "env", "node_modules", "build", "dist", "__pycache__", ".tox", ".nox", ".eggs",
    ".fastlora-verify", "site-packages", "docs", "examples", "benchmarks",
})  # fmt: skip
TESTS = frozenset({"tests", "test", "testing"})


def python_files(root: Path) -> Iterator[Path]:
    """Every Python file under `root` that may be the repository's own, in a fixed order."""
    for path in sorted(root.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            if path.name not in SKIPPED and not path.name.endswith(".egg-info"):
                yield from python_files(path)
        elif path.suffix == ".py" and path.is_file():  # a pipe would be waited for
            yield path


def is_test(root: Path, path: Path) -> bool:
    """Whether a file is one of the tests, by where it lies or by its name."""
    parts = path.relative_to(root).parts
    return bool(TESTS & set(parts[:-1])) or path.name.startswith("test_") or path.name.endswith("_test.py")


def source_root(root: Path) -> str:
    """`src` where modules lie in it, `python` or `lib` where packages do, else the repository itself."""
    src = root / "src"
    if src.is_dir() and any(python_files(src)):
        return "src"
    return next((name for name in ("python", "lib") if _holds_packages(root / name)), ".")


def _holds_packages(folder: Path) -> bool:
    return not (folder / "__init__.py").exists() and any(folder.glob("*/__init__.py"))


def module_name(root: Path, source: str, path: Path) -> str | None:
    """Dotted name of a file under the source root."""
    try:
        parts = list(path.relative_to(root / source).with_suffix("").parts)
    except ValueError:
        return None
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if parts and all(part.isidentifier() for part in parts) else None


def read(root: Path, path: Path, module: str) -> SourceFile:
    """A source file with its newlines kept, by the encoding that it declares.

    Raises UnicodeDecodeError, SyntaxError or LookupError for one that is no text in it.
    """
    return SourceFile(module, path.relative_to(root).as_posix(), text_of(path))


def test_files(root: Path, words: set[str]) -> tuple[str, ...]:
    """Test files that mention one of `words`, relative to the repository."""
    if not words:
        return ()
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, sorted(words))) + r")(\b|_)")
    found = []
    for path in python_files(root):
        collected = path.name.startswith("test_") or path.name.endswith("_test.py")
        if collected and is_test(root, path) and pattern.search(path.read_text("utf-8", errors="replace")):
            found.append(path.relative_to(root).as_posix())
    return tuple(found)


def pytest_options(root: Path) -> dict[str, object]:
    """The repository's own `[tool.pytest.ini_options]`, empty where it has none."""
    path = root / "pyproject.toml"
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}
    options = data.get("tool", {}).get("pytest", {}).get("ini_options", {})
    return options if isinstance(options, dict) else {}


def gpu_marker(root: Path, tests: tuple[str, ...]) -> tuple[str, str]:
    """(marker, doubt): the marker of tests that need a card, from the configuration, else from the tests."""
    markers = pytest_options(root).get("markers", [])
    named = [str(m) for m in markers] if isinstance(markers, list) else str(markers).splitlines()
    for marker in named:
        name, _, text = marker.partition(":")
        if re.search(r"\b(gpu|cuda)\b", f"{name} {text}", re.IGNORECASE):
            return name.split("(")[0].strip(), ""
    for test in tests:
        match = re.search(r"pytest\.mark\.(\w*(?:gpu|cuda)\w*)", (root / test).read_text("utf-8", errors="replace"))
        if match:
            return match.group(1), f"gpu-marker is taken from {test}; no configuration declares it"
    return "gpu", "no marker for tests that need a card was found; gpu-marker is a guess"


def pytest_args(root: Path) -> tuple[str, ...]:
    """Arguments without which a plain run of a few files would fail: a coverage threshold is meant for all."""
    addopts = pytest_options(root).get("addopts", "")
    text = " ".join(map(str, addopts)) if isinstance(addopts, list) else str(addopts)
    return ("--no-cov",) if "--cov" in text else ()
