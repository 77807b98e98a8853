"""Names on the command line and in allowances mean what they say: `*` is the only wildcard."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlora_verify.harness.errors import NothingToRun, UnknownName
from fastlora_verify.harness.selection import Selection, allowance_of, matches, select
from fastlora_verify.harness.targets.target import Allowance, Target
from fastlora_verify.mutations.base import Mutant, NoSite, Probes
from fastlora_verify.mutations.plan import Plan


def mutant(mutation: str, kernels: tuple[str, ...] = ("linear",), what: str = "x.dim() == 2") -> Mutant:
    return Mutant(
        name=f"{mutation}@pkg.k:patch.forward[{what}]",
        mutation=mutation,
        family="delegation",
        kernels=kernels,
        module="pkg.k",
        path="src/pkg/k.py",
        line=1,
        scope="patch.forward",
        source="",
        diff="",
        gist="",
        probes=Probes((), ()),
        new_names=(),
    )


MUTANTS = (mutant("delegates-on-2d"), mutant("delegates-on-2d", ("qkv",), "y"), mutant("delegates-always"))
PLAN = Plan(MUTANTS, (NoSite("bias-dropped", "linear", "it adds none"),), ())


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("*", "anything\nat all", True),
        ("a*c", "abbc", True),
        ("a*c", "abbd", False),
        ("m@p:f[x.dim() == 2]", "m@p:f[x.dim() == 2]", True),
        ("m@p:f[x]", "m@p:fx", False),
        ("a.b", "axb", False),
        ("a?", "ab", False),
        ("(", "(", True),
    ],
)
def test_matches(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), MUTANTS),
        (Selection(names=("delegates-on-2d",)), MUTANTS[:2]),
        (Selection(names=("delegates-*",), kernels=("qkv",)), MUTANTS[1:2]),
        (Selection(names=("delegates-on-2d@pkg.k:patch.forward[x.dim() == 2]",)), MUTANTS[:1]),
        (Selection(names=("delegates-on-2d@patch.forward[y]",)), MUTANTS[1:2]),
        (Selection(names=("delegates-on-2d@*[y]", "delegates-always")), MUTANTS[1:]),
    ],
)
def test_select(selection: Selection, chosen: tuple[Mutant, ...]) -> None:
    assert select(PLAN, selection) == chosen


def test_a_mutants_name_that_none_has_is_unknown_and_the_nearest_are_named() -> None:
    with pytest.raises(UnknownName, match=r"nearest: delegates-on-2d@pkg\.k:patch\.forward\[y\]"):
        select(PLAN, Selection(names=("delegates-on-2d@pkg.k:patch.forward[z]",)))


def test_an_empty_selection_says_why() -> None:
    with pytest.raises(NothingToRun, match="the 3 mutants of the names given are of other kernels or families"):
        select(PLAN, Selection(kernels=("swiglu",)))
    with pytest.raises(NothingToRun, match=r"bias-dropped has no site in linear \(it adds none\)"):
        select(Plan((), PLAN.no_sites, ()), Selection(names=("bias-dropped",)))


def test_the_first_allowance_that_matches_gives_the_reason() -> None:
    allowances = (
        Allowance("delegates-on-2d@patch.forward[y]", "short"),
        Allowance("delegates-on-2d@pkg.*", "long"),
    )
    target = Target(
        name="t",
        file=Path("t.toml"),
        root=None,
        place=(),
        source_roots=("src",),
        modules=(),
        instruments=(),
        tests=(),
        pytest_args=(),
        gpu_marker="gpu",
        env=(),
        python=None,
        kernels=(),
        allowances=allowances,
    )
    assert [allowance_of(m.name, target) for m in MUTANTS] == ["long", "short", None]
