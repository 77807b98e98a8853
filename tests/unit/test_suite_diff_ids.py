"""Collected tests before and after: arms, marks, what isn't collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fastlora_verify.harness.suite_diff.collected import Collection, Item, arms
from fastlora_verify.harness.suite_diff.compare import Compared, compare_suites
from fastlora_verify.harness.suite_diff.places import Side
from fastlora_verify.harness.suite_diff.sources import Sources

FILE = "tests/test_a.py"


def item(param: str | None = None, *, name: str = "test_x", marks: Sequence[str] = (), **values: str) -> Item:
    function = f"{FILE}::{name}"
    test = function if param is None else f"{function}[{param}]"
    return Item(test, function, FILE, None, param, values, tuple((mark, "") for mark in marks))


def compared(old: Collection, new: Collection) -> Compared:
    nothing = Sources.of({})
    return compare_suites(Side(nothing, old), Side(nothing, new))


def kinds(old: Sequence[Item], new: Sequence[Item]) -> list[str]:
    found = compared(Collection(tuple(old)), Collection(tuple(new)))
    return [finding.kind for finding in found.findings]


def test_the_same_arms_are_kept() -> None:
    both = [item("a", dtype="torch.float32"), item("b", dtype="torch.bfloat16")]
    found = arms(both, both)
    assert len(found.kept) == 2
    assert not (found.continued or found.changed or found.removed or found.added)


def test_an_arm_less_is_removed() -> None:
    old = [item("a", n="1"), item("b", n="2")]
    found = arms(old, old[:1])
    assert [arm.param for arm in found.removed] == ["b"]
    assert kinds(old, old[:1]) == ["arm-removed"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([item()], [item("float32", dtype="torch.float32"), item("bfloat16", dtype="torch.bfloat16")]),
        ([item("a", n="1")], [item("a-float32", n="1", dtype="torch.float32")]),
        ([item("a", n="1")], [item("float32-a", dtype="torch.float32", n="1")]),
        ([item("model0", model="Model()")], [item("model0-float32", model="Model()", dtype="torch.float32")]),
        ([item("dtype0", dtype="torch.float32")], [item("float32", dtype="torch.float32")]),
    ],
    ids=["the first parameter", "one behind", "one in front", "values without a text of their own", "another id"],
)
def test_an_arm_goes_on_under_another_id(old: list[Item], new: list[Item]) -> None:
    found = arms(old, new)
    assert len(found.continued) == len(old)
    assert not found.removed
    assert kinds(old, new) == ["arm-continued"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([item("a", n="1")], [item("b-float32", n="2", dtype="torch.float32")]),
        ([item("a", n="1")], [item("a-float32", m="1", dtype="torch.float32")]),
        ([item("a-b", n="1", m="2")], [item("a", n="1")]),
        ([item("model0", model="Model()")], [item("model1-float32", model="Model()", dtype="torch.float32")]),
        ([item("1", n="1")], [item("2", n="2")]),
        ([item("a", n="1")], [item()]),
    ],
    ids=["another value", "another parameter", "a parameter less", "another object", "another number", "none left"],
)
def test_an_arm_that_is_another_one_does_not(old: list[Item], new: list[Item]) -> None:
    assert len(arms(old, new).removed) == 1
    assert kinds(old, new) == ["arm-removed"]


def test_an_id_that_stands_for_other_values_is_told() -> None:
    old = [item("dtype0", dtype="torch.float32"), item("dtype1", dtype="torch.float16")]
    new = [item("dtype0", dtype="torch.bfloat16"), item("dtype1", dtype="torch.float16")]
    assert kinds(old, new) == ["arm-changed"]


def test_ids_that_were_counted_on_are_the_same_arms() -> None:
    old = [item("dtype0", dtype="torch.float32"), item("dtype1", dtype="torch.float16")]
    new = [item(f"dtype{i}", dtype=f"torch.{name}") for i, name in enumerate(["bfloat16", "float32", "float16"])]
    found = arms(old, new)
    assert [(a.values["dtype"], b.values["dtype"]) for a, b in found.continued] == [
        ("torch.float32", "torch.float32"),
        ("torch.float16", "torch.float16"),
    ]
    assert not (found.removed or found.changed)
    assert [arm.values["dtype"] for arm in found.added] == ["torch.bfloat16"]


def test_values_without_a_text_of_their_own_go_by_id() -> None:
    old, new = [item("m0", model="<Model>")], [item("m0", model="<Model, other>")]
    assert kinds(old, new) == []


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ((), ("skip",), "skip-added"),
        ((), ("skipif",), "skip-added"),
        ((), ("xfail",), "skip-added"),
        (("skipif",), ("skipif", "skipif"), "skip-added"),
        (("skip",), (), "skip-removed"),
        ((), ("gpu",), "marker-changed"),
        (("slow",), (), "marker-changed"),
    ],
)
def test_marks_that_come_and_go(before: tuple[str, ...], after: tuple[str, ...], kind: str) -> None:
    assert kinds([item(marks=before)], [item(marks=after)]) == [kind]


def test_the_same_mark_on_many_arms_is_one_finding() -> None:
    old = [item("a", n="1"), item("b", n="2"), item("c", n="3")]
    (finding,) = compared(
        Collection(tuple(old)), Collection(tuple(replace(one, marks=(("skip", "'no'"),)) for one in old))
    ).findings
    assert finding.tests == tuple(one.test for one in old)
    assert finding.text == f"`{FILE}::test_x[a]` and 2 more: the mark `skip('no')` is new"


def test_what_the_target_s_arguments_leave_out_is_skipped() -> None:
    assert kinds([item()], [replace(item(), selected=False)]) == ["skip-added"]
    assert kinds([replace(item(), selected=False)], [item()]) == ["skip-removed"]


def test_what_does_not_import_is_said_and_not_called_deleted() -> None:
    error = ((FILE, "ImportError: no module named x"),)
    tests = (item(), item(name="test_y"))
    (head,) = compared(Collection(tests), Collection((), errors=error)).findings
    assert head.kind == "not-collected"
    assert head.tests == tuple(one.test for one in tests)
    assert "ImportError" in head.text
    (base,) = compared(Collection((), errors=error), Collection(tests)).findings
    assert base.kind == "not-collected"


def test_a_suite_that_is_not_collected_at_all_is_compared_with_nothing() -> None:
    found = compared(Collection((item(),)), Collection((), failed="ImportError while loading conftest"))
    assert [finding.kind for finding in found.findings] == ["not-collected"]


def test_a_file_that_skips_itself_is_a_new_skip() -> None:
    found = compared(Collection((item(),)), Collection((), skipped=((FILE, "could not import 'bitsandbytes'"),)))
    (finding,) = found.findings
    assert finding.kind == "skip-added"
    assert "skips itself" in finding.text


def test_a_test_whose_function_stands_in_another_file() -> None:
    """As pytest's own collection says: inherited, imported, or wrapped."""
    files = {
        FILE: "from base import Base\n\n\nclass TestX(Base):\n    TOL = 1\n",
        "tests/base.py": "class Base:\n    def test_x(self):\n        assert a < self.TOL\n",
    }
    inherited = Item(f"{FILE}::TestX::test_x", f"{FILE}::TestX::test_x", FILE, ("tests/base.py", "Base.test_x"))
    elsewhere = replace(inherited, defined=None)
    for one in (inherited, elsewhere):
        sides = [
            Side(Sources.of({**files, **changed}), Collection((one,)))
            for changed in (
                {},
                {FILE: files[FILE].replace("TOL = 1", "TOL = 2")},
                {"tests/base.py": "class Base:\n    def test_x(self):\n        pass\n"},
            )
        ]
        assert [finding.kind for finding in compare_suites(sides[0], sides[1]).findings] == ["loosened"]
        assert [finding.kind for finding in compare_suites(sides[0], sides[2]).findings] == ["assertion-removed"]
