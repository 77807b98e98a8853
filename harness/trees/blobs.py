"""Which files of a copy make up its source and its tests, each with the hash of its content.

Two runs are of the same tree if these are the same. What lies elsewhere (pages, licences) is left out, and so are
modes and times, which differ between checkouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.sides import side_of_tests, source_side
from fastlora_verify.harness.trees.tree import Entry

_SETTINGS = ("pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg")


@dataclass(frozen=True)
class Blobs:
    """SHA-256 of files' contents by path in the copy; a symbolic link has `link:` and its destination."""

    source: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)


def blobs_of(target: Target, entries: Mapping[str, Entry], tests: tuple[str, ...]) -> Blobs:
    """The two sides of a copy with these entries.

    Tests: what lies in the folders of `tests`, files named as pytest's are, the instruments, pytest's settings.
    Source: the target's own packages, and whatever else lies under its source roots.
    """
    is_source = source_side(target, entries)
    is_test = side_of_tests(target, entries, tests)
    roots = {PurePosixPath(root) for root in target.source_roots}
    source, others = {}, {}
    for name, entry in entries.items():
        if entry.kind not in ("file", "link"):
            continue
        path = PurePosixPath(name)
        content = f"link:{entry.content}" if entry.kind == "link" else entry.content
        if is_source(name):
            source[name] = content
        elif is_test(name) or name in _SETTINGS:
            others[name] = content
        elif roots & set(path.parents) and (path.suffix == ".py" or PurePosixPath(".") not in roots):
            source[name] = content
    return Blobs(source, others)
