"""Which test a word of the command line means."""

from __future__ import annotations

import pytest

from fastlora_verify.harness.errors import NothingToRun, UsageError
from fastlora_verify.harness.sweep.find import Item, meant

FILE = "tests/test_a.py"


def item(test: str, arm: str = "", argument: str = "") -> Item:
    return Item(test=test, arm=arm or test, argument=argument, label=test, select=test.partition("[")[0])


ITEMS = [
    item(f"{FILE}::test_one"),
    *(
        item(f"{FILE}::TestA::test_nf4[{seed}-{d}]", f"{FILE}::TestA::test_nf4[3-{d}]", "seed")
        for seed in (3, 7)
        for d in "xy"
    ),
    item(f"{FILE}::TestA::test_both"),
    item(f"{FILE}::TestB::test_both"),
    item("tests/b/test_a.py::test_two[a/b::c]"),
]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        (f"{FILE}::test_one", ["test_one"]),
        ("test_one", ["test_one"]),
        (f"/somewhere/else/{FILE}::test_one", ["test_one"]),
        ("test_a.py::test_one", ["test_one"]),
        ("test_nf4", ["3-x", "3-y", "7-x", "7-y"]),
        ("TestA::test_nf4[7-y]", ["3-y", "7-y"]),
        ("TestB::test_both", ["TestB"]),
        ("test_two[a/b::c]", ["test_two"]),
        ("test_two", ["test_two"]),
    ],
)
def test_an_id_with_or_without_its_parameters_or_its_end_is_enough(word: str, found: list[str]) -> None:
    items = meant(word, ITEMS, seeded=True)
    assert len(items) == len(found)
    assert all(part in one.test for part, one in zip(found, items, strict=True))


def test_without_seeds_every_item_is_an_arm_of_its_own() -> None:
    assert [one.arm for one in meant("test_nf4[7-y]", ITEMS, seeded=False)] == [f"{FILE}::TestA::test_nf4[7-y]"]
    assert len({one.arm for one in meant("test_nf4", ITEMS, seeded=False)}) == 4


@pytest.mark.parametrize(
    ("word", "error", "says"),
    [
        (
            "test_both",
            UsageError,
            "means 2 tests; give one of them: tests/test_a.py::TestA::test_both, tests/test_a.py",
        ),
        (f"{FILE}::TestA", UsageError, "holds 2 tests"),
        (FILE, UsageError, "holds 4 tests"),
        ("tests", UsageError, "holds 5 tests"),
        ("test_nf5", NothingToRun, "no test test_nf5 among the 5 collected; nearest: tests/test_a.py::TestA::test_nf4"),
        ("ne", NothingToRun, "no test ne among the 5 collected"),
        ("test_two[zz::c]", NothingToRun, "no test test_two[zz::c]; it has tests/b/test_a.py::test_two[a/b::c]"),
        ("test_nf4[9-x]", NothingToRun, "no test test_nf4[9-x]; it has tests/test_a.py::TestA::test_nf4[3-x]"),
    ],
)
def test_several_or_none_is_said_with_names(word: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as failure:
        meant(word, ITEMS, seeded=True)
    assert says in str(failure.value)
