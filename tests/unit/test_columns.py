"""Columns as they are written on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlora_verify.harness.arguments import spread
from fastlora_verify.harness.errors import UnknownDevice, UsageError
from fastlora_verify.harness.trees.columns import ColumnSpec, Side, Wanted, ids_of, specs_of


def parsed(*specs: str, devices: tuple[str, ...] = ("cpu",)) -> tuple[ColumnSpec, ...]:
    return specs_of(Wanted(specs), devices)


def test_without_columns_it_is_the_working_tree_on_each_device_once() -> None:
    specs = specs_of(Wanted(), ("cpu", "cuda", "cpu"))
    assert ids_of(specs) == ["head:cpu", "head:cuda"]
    assert specs[0] == ColumnSpec()


def test_each_part_may_be_missing() -> None:
    assert parsed("source=main") == (ColumnSpec(Side("main")),)
    assert parsed("tests=v1,device=cuda") == (ColumnSpec(Side(), Side("v1"), "cuda"),)
    assert parsed("device=cuda,source=main,tests=main") == (ColumnSpec(Side("main"), Side("main"), "cuda"),)


def test_columns_without_a_device_come_on_every_device_asked_for() -> None:
    specs = parsed("source=main", "tests=main,device=cpu", devices=("cpu", "cuda"))
    assert ids_of(specs) == ["source=main:cpu", "source=main:cuda", "tests=main:cpu"]


def test_the_usual_three() -> None:
    specs = specs_of(Wanted(against="main"), ("cpu",))
    assert ids_of(specs) == ["head:cpu", "tests=main:cpu", "source=main:cpu"]
    assert [spec.is_mixed for spec in specs] == [False, True, True]


def test_a_diff_follows_a_plus_sign_that_may_stand_in_a_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("fix.diff", "a+b.diff", "c,d=1.diff"):
        Path(name).write_text("", encoding="utf-8")
    assert parsed("source=main+fix.diff") == (ColumnSpec(Side("main", Path("fix.diff"))),)
    assert parsed("source=+fix.diff") == (ColumnSpec(Side("", Path("fix.diff"))),)
    assert parsed("source=v2+cpu+fix.diff") == (ColumnSpec(Side("v2+cpu", Path("fix.diff"))),)
    assert parsed("source=main+a+b.diff") == (ColumnSpec(Side("main", Path("a+b.diff"))),)
    assert parsed("source=v2+cu130") == (ColumnSpec(Side("v2+cu130")),)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("main", "'main' is none of source=, tests= and device="),
        ("sources=main", "'sources=main' is none of"),
        ("source=main,sorce=x", "'sorce=x' is none of"),
        ("source=", "source= is empty"),
        ("source=a,source=b", "source= stands there twice"),
        ("source=main+none.diff", "there is no file none.diff"),
        ("", "'' is none of"),
    ],
)
def test_what_is_no_column_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parsed(spec)


def test_a_device_must_be_one() -> None:
    with pytest.raises(UnknownDevice):
        parsed("device=gpu")
    with pytest.raises(UnknownDevice):
        parsed("source=main", devices=("gpu",))


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (Wanted(merged_onto=("a",), rebased_onto="b"), "give one of them"),
        (Wanted(upstream="a"), "give --rebased-onto too"),
        (Wanted(against=""), "--against: the revision is empty"),
        (Wanted(merged_onto=("a", "")), "--merged-onto: the revision is empty"),
    ],
)
def test_options_that_contradict_each_other(wanted: Wanted, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        specs_of(wanted, ("cpu",))


def test_ids_are_readable_stable_and_each_once(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    one, other = tmp_path / "1" / "fix.diff", tmp_path / "2" / "fix.diff"
    for path in (one, other):
        path.parent.mkdir()
        path.write_text("", encoding="utf-8")
    specs = parsed(
        f"source={commit},tests=v1", f"source=main+{one}", f"source=main+{other}", "source=main,tests=main",
        "source=main,tests=main", "source=head", "source=head,tests=v1",
    )  # fmt: skip
    assert ids_of(specs) == [
        "source=012345678 tests=v1:cpu",
        f"source=main+{one}:cpu",
        f"source=main+{other}:cpu",
        "main:cpu",
        "head:cpu",
        "tests=v1:cpu",
    ]


def test_several_revisions_follow_one_option_and_mutations_are_none() -> None:
    words = spread(["mutate", "--merged-onto", "main", "feature/x", "lora-term-dropped*", "--all"])
    assert words == ["mutate", "--merged-onto", "main", "--merged-onto", "feature/x", "lora-term-dropped*", "--all"]
    assert spread(["oracle", "--merged-onto", "main", "node-taken"]) == [
        "oracle",
        "--merged-onto",
        "main",
        "node-taken",
    ]
