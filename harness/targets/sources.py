"""The files of a target as they lie on disk, by their place in the copy."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path, PurePosixPath

from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.source import SourceFile


def on_disk(target: Target, inner: str) -> Path | None:
    """Where the copy's file or folder `inner` comes from; None if the copy won't have it."""
    path = PurePosixPath(inner)
    if path.is_absolute() or ".." in path.parts:
        return None
    for place, folder in target.place:
        if path.is_relative_to(place):
            found = folder / path.relative_to(place)
            if found.exists():
                return found
    if target.root is not None and (target.root / path).exists():
        return target.root / path
    return None


def read_sources(target: Target) -> dict[str, SourceFile]:
    """The modules that mutations look into, instruments included, by dotted name.

    Newlines stay as in the file and its declared encoding is honoured. Raises TargetError where a module
    isn't found or isn't Python.
    """
    sources = {}
    for key, names in (("target.modules", target.modules), ("target.instruments", target.instruments)):
        for name in names:
            sources[name] = _read(target, key, name)
    return sources


def check_tests(target: Target, tests: tuple[str, ...], key: str) -> None:
    """Raises TargetError if a test path, without its `::` part, is nowhere in the copy."""
    for test in tests:
        if on_disk(target, test.partition("::")[0]) is None:
            raise TargetError(target.file, f"{test} is not in the tree", key=key)


def check_copied(target: Target, copy: Path) -> None:
    """Raises TargetError for a module that is on disk and not in the copy: git ignores it."""
    for name in (*target.modules, *target.instruments):
        inner = next((path for path in _candidates(target, name) if _file_on_disk(target, path) is not None), None)
        if inner is not None and not (copy / inner).is_file():
            problem = f"{name}: {inner} is not in the copy, since git ignores it; name it here"
            raise TargetError(target.file, problem, key="target.include")


def _read(target: Target, key: str, name: str) -> SourceFile:
    candidates = _candidates(target, name)
    for inner in candidates:
        file = _file_on_disk(target, inner)
        if file is not None:
            return SourceFile(name, inner, _text(target, key, name, file))
    raise TargetError(target.file, f"module {name} is not in the tree; looked for {', '.join(candidates)}", key=key)


def _candidates(target: Target, name: str) -> list[str]:
    """Where a module may lie in the copy."""
    relative = name.replace(".", "/")
    endings = (f"{relative}.py", f"{relative}/__init__.py")
    return [str(PurePosixPath(root, ending)) for root in target.source_roots for ending in endings]


def _file_on_disk(target: Target, inner: str) -> Path | None:
    file = on_disk(target, inner)
    return file if file is not None and file.is_file() else None


def _text(target: Target, key: str, name: str, file: Path) -> str:
    try:
        text = text_of(file)
        ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        raise TargetError(target.file, f"{name}: {file} cannot be read: {error.strerror}", key=key) from error
    except SyntaxError as error:  # of the code, and of its encoding line
        line = f" at line {error.lineno}" if error.lineno else ""
        raise TargetError(target.file, f"{name}: {file} is not Python: {error.msg}{line}", key=key) from error
    except RecursionError as error:
        raise TargetError(target.file, f"{name}: {file} is nested too deeply to be read", key=key) from error
    except (ValueError, LookupError) as error:  # LookupError: a codec that is none of text, such as rot13
        raise TargetError(target.file, f"{name}: {file} is not text: {error}", key=key) from error
    return text


def text_of(file: Path) -> str:
    """A file's text by the encoding that it declares, newlines as they are.

    Raises OSError, SyntaxError for a wrong encoding line, LookupError and ValueError for what is no text.
    """
    return decoded(file.read_bytes())


def decoded(data: bytes) -> str:
    """Source text by the encoding that it declares, newlines as they are; raises as `text_of` does."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding)


def encoded_as(file: Path, text: str) -> bytes:
    """`text` in the encoding that a file declares; UTF-8 where there is no such file."""
    encoding = "utf-8"
    if file.exists():
        with file.open("rb") as lines:
            encoding, _ = tokenize.detect_encoding(lines.readline)
    return text.removeprefix("\ufeff").encode(encoding)
