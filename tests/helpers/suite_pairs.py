"""Two versions of a suite's files compared; collected by reading them, so that no pytest has to run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from textwrap import dedent

from fastlora_verify.harness.suite_diff.collected import Collection, Item
from fastlora_verify.harness.suite_diff.compare import Compared, compare_suites
from fastlora_verify.harness.suite_diff.places import Side
from fastlora_verify.harness.suite_diff.sources import Sources

FILE = "tests/test_a.py"


def side(files: Mapping[str, str] | str) -> Side:
    """A tree with these files, `test_…` functions of `test_….py` collected without parameters."""
    texts = {path: dedent(text) for path, text in ({FILE: files} if isinstance(files, str) else files).items()}
    sources = Sources.of(texts)
    items = []
    for path in sorted(texts):
        module = sources.module(path) if path.rpartition("/")[2].startswith("test_") else None
        for scope, node in module.scopes.items() if module is not None else ():
            *classes, name = scope.split(".")
            around = all(
                isinstance(module.scopes[".".join(classes[: i + 1])], ast.ClassDef) for i in range(len(classes))
            )
            if name.startswith("test") and not isinstance(node, ast.ClassDef) and around:
                items.append(
                    Item(f"{path}::{'::'.join([*classes, name])}", f"{path}::{'::'.join([*classes, name])}", path)
                )
    return Side(sources, Collection(tuple(items)))


def compared(old: Mapping[str, str] | str, new: Mapping[str, str] | str) -> Compared:
    """What the second has of the first."""
    return compare_suites(side(old), side(new))


def kinds(old: Mapping[str, str] | str, new: Mapping[str, str] | str) -> list[str]:
    """The kinds of the findings, sorted."""
    return sorted(finding.kind for finding in compared(old, new).findings)


def body(statements: str, before: str = "") -> str:
    """A file with one test of these statements."""
    lines = dedent(statements).strip().splitlines()
    return f"{dedent(before)}\n\ndef test_x(out, ref):\n" + "".join(f"    {line}\n" for line in lines)
