"""Tests that are gone and tests that are new: which of them is the same test under another name."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping

from fastlora_verify.harness.suite_diff.sources import Function, Place

NEAR = 0.75  # of two bodies: less is no hint


def moved(gone: Mapping[str, Place | None], new: Mapping[str, Place | None]) -> dict[str, str]:
    """Each test of `gone` whose body and parameters one of `new` has; names, decorators, docstrings don't count."""
    bodies: dict[str, list[str]] = {}
    for name, place in new.items():
        if place is not None and not _is_empty(place.node):
            bodies.setdefault(_body(place.node), []).append(name)
    found = {}
    for name, place in gone.items():
        same = bodies.get(_body(place.node)) if place is not None else None
        if same:
            best = max(same, key=lambda other: (_last(other) == _last(name), _file(other) == _file(name)))
            same.remove(best)
            found[name] = best
    return found


def nearest(place: Place, new: Mapping[str, Place | None]) -> tuple[str, float] | None:
    """The new test that reads most like one that is gone, if any does; with how much alike."""
    text = ast.unparse(place.node.body)  # type: ignore[arg-type]
    best, most = "", NEAR
    for name, other in new.items():
        if other is None:
            continue
        matcher = difflib.SequenceMatcher(None, text, ast.unparse(other.node.body))  # type: ignore[arg-type]
        if matcher.quick_ratio() >= most and (ratio := matcher.ratio()) >= most:
            best, most = name, ratio
    return (best, most) if best else None


def _body(node: Function) -> str:
    return ast.dump(node.args) + "".join(ast.dump(statement) for statement in _statements(node))


def _statements(node: Function) -> list[ast.stmt]:
    first = node.body[0]
    docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return node.body[1:] if docstring else node.body


def _is_empty(node: Function) -> bool:
    return all(isinstance(statement, ast.Pass) for statement in _statements(node))


def _last(name: str) -> str:
    return name.rpartition("::")[2]


def _file(name: str) -> str:
    return name.partition("::")[0]
