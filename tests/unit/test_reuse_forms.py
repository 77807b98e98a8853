"""What keys are made of: files in their normal form, tests by their functions, plans by what they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from reference_plan import reference

from fastlora_verify.harness.plain import from_plain, to_plain
from fastlora_verify.harness.plans import Plans
from fastlora_verify.harness.runner import keys
from fastlora_verify.harness.runner.evidence import Case, SuiteFacts
from fastlora_verify.harness.runner.normal import Normal
from fastlora_verify.mutations.plan import Plan, plan_mutants
from fastlora_verify.mutations.registry import MUTATIONS

CODE = 'def f(x):\n    """Text."""\n    y = x + 1\n    return y\n'


@pytest.fixture
def normal(tmp_path: Path) -> Normal:
    return Normal(tmp_path, "1")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("y = x", "# why\n    y = x", True),
        ("Text", "Another", True),
        ("x + 1", "(x  +  1)", True),
        ("x + 1", "x + 2", False),
        ("return y", "return (y,)", False),
    ],
)
def test_only_what_runs_counts(normal: Normal, old: str, new: str, same: bool) -> None:
    assert (normal.code(CODE.encode()) == normal.code(CODE.replace(old, new).encode())) == same


def test_docstrings_count_where_they_are_asked_for(normal: Normal) -> None:
    other = CODE.replace("Text", "Another").encode()
    assert normal.code(CODE.encode(), docs=True) != normal.code(other, docs=True)


def test_watched_lines_are_told_by_their_statements(normal: Normal) -> None:
    moved = CODE.replace("    y =", "    # why\n    y =")
    assert normal.probed(CODE, [3]) == normal.probed(moved, [4])
    assert normal.probed(CODE, [3]) != normal.probed(CODE, [4])


def test_digests_are_kept_for_the_same_version_only(tmp_path: Path, normal: Normal) -> None:
    normal.code(CODE.encode())
    normal.save()
    assert Normal(tmp_path, "1")._known == normal._used
    assert not Normal(tmp_path, "2")._known


def bodies(a: str, **others: str) -> tuple[str, dict[str, str] | None]:
    """What counts for every test of these files, and the statements of `test_a.py::test_one` if they stand apart."""
    files = {"tests/test_a.py": a, **{f"tests/{name}.py": text for name, text in others.items()}}
    facts = SuiteFacts(tests={f"test_a.py::{name}": Case(name, "passed") for name in ("test_one[1::2]", "test_two")})
    found = keys.tests_of(facts, {path: text.encode() for path, text in files.items()}, Normal(Path("/nowhere"), "1"))
    return found.common, found.bodies(["test_a.py::test_one[1::2]"])


TESTS = (
    "LIMIT = 2\n\n\ndef helper():\n    return 1\n\n\ndef test_one():\n    assert 1\n\n\ndef test_two():\n    assert 2\n"
)


@pytest.mark.parametrize(
    ("old", "new", "common", "own"),
    [
        ("assert 1", "assert 3", True, False),
        ("assert 2", "assert 3", True, True),
        ("return 1", "return 3", False, True),  # any test may call it
        ("LIMIT = 2", "LIMIT = 3", False, True),
    ],
)
def test_statements_of_a_test_are_its_own(old: str, new: str, common: bool, own: bool) -> None:
    before, after = bodies(TESTS), bodies(TESTS.replace(old, new))
    assert (before[0] == after[0], before[1] == after[1]) == (common, own)


@pytest.mark.parametrize(
    ("a", "others"),
    [
        (TESTS, {"test_b": "from test_a import test_one\n"}),
        (TESTS, {"conftest": "pytest_plugins = 'tests.test_a'\n"}),
        (TESTS.replace("assert 2", "test_one()"), {}),
    ],
    ids=["imported", "named", "called"],
)
def test_a_test_that_others_may_use_counts_for_all(a: str, others: dict[str, str]) -> None:
    common, own = bodies(a, **others)
    assert own is None
    if others:
        return
    assert bodies(a.replace("assert 1", "assert 3"))[0] != common


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("README.md", True),
        ("docs/a.rst", True),
        ("LICENSE", True),
        ("data.txt", False),
        ("a.json", False),
        ("x", False),
    ],
)
def test_pages_are_for_people(path: str, page: bool) -> None:
    assert keys.is_page(path) == page


@dataclass(frozen=True)
class Some:
    pairs: tuple[tuple[str, int], ...]
    marks: frozenset[int]
    inner: Case | None = None


def test_data_comes_back_as_it_was() -> None:
    some = Some((("a", 1),), frozenset({3, 1}), Case("t", "passed", streams=(("x", "y"),)))
    assert from_plain(Some, to_plain(some)) == some
    with pytest.raises(KeyError):
        from_plain(Some, {"pairs": []})


def test_a_plan_is_made_once_for_the_same_sources(tmp_path: Path) -> None:
    target, sources = reference()
    kernels = target.kernels
    made: list[Plan] = []

    def kept(mutations: int, *, resume: bool = True) -> Plan:
        some = MUTATIONS[:mutations]

        def make() -> Plan:
            made.append(plan_mutants(sources, kernels, (), some))
            return made[-1]

        return Plans(tmp_path, resume=resume).kept(sources, kernels, (), some, make)

    assert kept(2) == kept(2) == made[0]
    assert len(made) == 1
    kept(3)
    assert len(made) == 2
    kept(3, resume=False)
    assert len(made) == 3
