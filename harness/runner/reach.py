"""Which tests can see a change of a function: those that ran it on the unmutated tree.

Running only these must not change a verdict. So whatever a test may see without running the function counts for every
test: module and class level, what runs once a process, what ran while no test did, or in a test that leaves something
behind; and a test that starts a process or reads a source as text is always run. Tests that depend on others are
found by a control, see `dependence.py`.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from fastlora_verify.harness.child.probe import ELSEWHERE, FIRST
from fastlora_verify.harness.plan import Counts
from fastlora_verify.harness.runner.dependence import Chain, drawn_along
from fastlora_verify.harness.runner.evidence import Case, SuiteFacts
from fastlora_verify.harness.runner.jobs import Chosen
from fastlora_verify.harness.trees.tree import Master

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Reach:
    """What each test ran, of the functions of the files that mutants change."""

    sources: Mapping[str, str]  # by path in the copy
    baseline: SuiteFacts  # of the run with the map
    parts: tuple[SuiteFacts, ...] = ()  # of runs of some tests only: what one finds made by another, it makes itself
    chains: tuple[Chain, ...] = ()  # tests that draw random numbers from where others left off
    usual: frozenset[str] = frozenset()  # what unmutated runs leave behind as well, by name

    def chosen(self, changes: Mapping[str, str | None]) -> Chosen | None:
        """The tests to run for mutated files, by path; None: all of them."""
        if self.baseline.early:
            return None
        wanted: set[int] = {ELSEWHERE}
        for path, mutated in changes.items():
            seen = self._seen_by(path, mutated)
            if seen is None:
                return None
            wanted |= seen
        runs = (self.baseline, *self.parts)
        tests = {test for run in runs for test, case in run.tests.items() if case.ran & wanted}
        tests |= drawn_along(self.chains, tests)
        return Chosen(tuple(test for test in self.baseline.tests if test in tests), self.baseline.collected_digest)

    def _seen_by(self, path: str, mutated: str | None) -> set[int] | None:
        """The marks of the functions that a file's change is in; None where more than they can see it."""
        if path not in self.sources or mutated is None:  # new, or gone
            return None
        changed = changed_functions(self.sources[path], mutated)
        if changed is None:
            return None
        marks = self._marks[path]
        wanted: set[int] = set()
        for name in changed:
            if name not in marks or marks[name] & self._shared:
                return None
            wanted |= marks[name]
        return wanted

    @cached_property
    def _shared(self) -> frozenset[int]:
        """The marks of functions whose running may show in a test that doesn't run them.

        They ran while no test did; or in a test that changed what later ones may see; or a test ran them only where
        none had before it, so that what they make is kept.
        """
        found = set(self.baseline.ran_outside)
        for name, case in self.baseline.tests.items():
            found |= case.ran if case.leaves else set()
            for part in self.parts:
                found |= part.tests[name].ran - case.ran if name in part.tests else set()
        return frozenset(found)

    @cached_property
    def _marks(self) -> dict[str, dict[str, set[int]]]:
        """The marks of each file's functions, by dotted name."""
        found: dict[str, dict[str, set[int]]] = {path: {} for path in self.sources}
        index = FIRST
        for path, text in self.sources.items():
            for name, _ in functions(ast.parse(text)):
                found[path].setdefault(name, set()).add(index)
                index += 1
        return found


def mapped_lines(sources: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """The lines of every function's first statement, in the order of the marks."""
    return {
        path: tuple(node.body[0].lineno for _, node in functions(ast.parse(text))) for path, text in sources.items()
    }


def sources_of(master: Master, paths: Sequence[str]) -> dict[str, str]:
    """The files that mutants change, as text; none if our Python can't parse one."""
    found = {}
    for path in paths:
        try:
            found[path] = master.decode(path)
            ast.parse(found[path])
        except (SyntaxError, ValueError):
            return {}
    return found


def first_statements(source: bytes) -> tuple[int, ...]:
    """The line of each function's first statement; none if our Python can't parse the target's."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return tuple(function.body[0].lineno for function in functions)


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, FunctionNode]]:
    """Every function with its dotted name, outer before inner."""
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, FunctionNode | ast.ClassDef):
            inner = f"{prefix}.{node.name}" if prefix else node.name
        if isinstance(node, FunctionNode):
            yield inner, node
        yield from functions(node, inner)


def changed_functions(before: str, after: str) -> tuple[str, ...] | None:
    """The functions whose own statements differ; None where more than that differs, or more than one call sees it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the target's own text: Python says it where the text is run
            old, new = _differing(before, after)
    except SyntaxError:
        return None
    if _form(old) != _form(new):
        return None
    olds, news = _bodies(old), _bodies(new)
    changed = [name for name in olds if olds[name] != news.get(name)]
    nodes = dict(functions(old))
    if any(_is_factory(nodes[name]) or _is_cached(nodes[name]) for name in changed):
        return None
    return tuple(changed) or None


def _differing(before: str, after: str) -> tuple[ast.Module, ast.Module]:
    """Both modules without the top-level statements that are the same text in both: the most of a large file."""
    old, new = _parsed(before), _parsed(after)
    if len(old) == len(new):
        pairs = [(one, other) for one, other in zip(old, new, strict=True) if one[1] != other[1]]
        old, new = [one for one, _ in pairs], [other for _, other in pairs]
    return ast.Module([one for one, _ in old], []), ast.Module([one for one, _ in new], [])


@lru_cache(maxsize=16)
def _parsed(source: str) -> list[tuple[ast.stmt, str]]:
    """The top-level statements, each with its lines, decorators included."""
    lines = re.split(r"\r\n|\r|\n", source)  # as Python counts them
    found = []
    for node in ast.parse(source).body:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        found.append((node, "\n".join(lines[first - 1 : node.end_lineno])))
    return found


def _bodies(tree: ast.Module) -> dict[str, tuple[Any, ...]]:
    """Each function's own statements, those of functions inside it left out."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, node in functions(tree):
        found[name] = (*found.get(name, ()), _form(node.body))
    return found


def _form(node: Any) -> Any:
    """What runs when a node does, as something that is equal for equal code: functions without their statements."""
    if isinstance(node, list):
        return tuple(map(_form, node))
    if not isinstance(node, ast.AST):
        return repr(node)
    left_out = "body" if isinstance(node, FunctionNode) else ""
    return type(node).__name__, *(_form(value) for name, value in ast.iter_fields(node) if name != left_out)


def _is_factory(node: FunctionNode) -> bool:
    """Makes functions or classes: its result outlives the call that a test makes."""
    inner = (n for statement in node.body for n in ast.walk(statement))
    return any(isinstance(n, FunctionNode | ast.ClassDef | ast.Lambda) for n in inner)


def _is_cached(node: FunctionNode) -> bool:
    return any("cache" in ast.dump(decorator) for decorator in node.decorator_list)


# -- the counts of the whole suite ------------------------------------------------------------------------


def completed(facts: SuiteFacts, baseline: SuiteFacts) -> SuiteFacts:
    """The facts of a run of chosen tests, as those of the whole suite: a test that wasn't run is as it was."""
    if facts.recollected or not facts.ended or facts.collected_digest != baseline.collected_digest:
        return facts
    if facts.collected.keys() - baseline.collected.keys():  # a file that could not be collected, or skipped itself
        return facts
    tests: dict[str, Case] = {}
    added: dict[str, int] = {}
    for name, case in baseline.tests.items():
        if name in facts.tests:
            tests[name] = facts.tests[name]
            continue
        tests[name] = replace(case, reached=False, triggered=False)
        added[case.category] = added.get(case.category, 0) + 1
    tests |= {name: case for name, case in facts.tests.items() if name not in tests}
    counts = facts.counts
    total = Counts(
        passed=counts.passed + added.get("passed", 0),
        failed=counts.failed,
        errors=counts.errors,
        skipped=counts.skipped + added.get("skipped", 0),
        xfailed=counts.xfailed + added.get("xfailed", 0),
        xpassed=counts.xpassed + added.get("xpassed", 0),
    )
    return replace(facts, tests=tests, counts=total)
