"""Hunks of a change put back alone: which are mutants, what the others lack, which files have none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from repositories import commit, hashes, new_repository
from runner_trees import target_of

from fastlora_verify.harness.editing.own import own_mutants, with_base
from fastlora_verify.harness.editing.reverts import base_of, revert_mutants
from fastlora_verify.harness.errors import GitError, NothingToRun
from fastlora_verify.harness.selection import Selection
from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.base import Mutant, NoSite
from fastlora_verify.mutations.hunks import Compared, reverts

BASE = '''\
"""A kernel."""


def scale(x):
    return x * 2


def forward(x, bias):
    out = x + 1
    out = out * 3
    return out


def count(rows):
    total = 0
    for row in rows:
        total += row
    return total


def old_helper():
    return 3


def count_new(rows):
    """Of the rows."""
    return 3
'''
HEAD = '''\
"""A kernel, and what it does."""


def scale(x):
    if x is None:
        return None
    return x * 2


def forward(x, bias):
    out = x + 2
    out = out * 3
    # the bias is added last

    if bias is not None:
        out = out + bias
    return out


def count(rows):
    amount = 0
    for row in rows:
        amount += row
    return amount


def new_helper():
    return 4


def count_new(rows):
    """Of the rows."""
    return new_helper()
'''


def of(base: str, head: str) -> tuple[list[Mutant], list[NoSite]]:
    return reverts(Compared("m", "src/m.py", base, head), [])


def lines(mutant: Mutant) -> list[str]:
    return [row for row in mutant.diff.splitlines()[2:] if row[0] in "+-"]


def test_each_hunk_is_put_back_alone() -> None:
    mutants, _ = of(BASE, HEAD)
    by_scope = {(mutant.scope, mutant.gist): lines(mutant) for mutant in mutants}
    assert by_scope == {
        ("scale", "put back: (nothing) instead of: if x is None: return None"): [
            "-    if x is None:", "-        return None",
        ],
        ("forward", "put back: out = x + 1 instead of: out = x + 2"): ["-    out = x + 2", "+    out = x + 1"],
        ("forward", "put back: (nothing) instead of: if bias is not None: out = out + bias"): [
            "-    # the bias is added last", "-", "-    if bias is not None:", "-        out = out + bias",
        ],
        ("count_new", "put back: return 3 instead of: return new_helper()"): [
            "-    return new_helper()", "+    return 3",
        ],
        ("count", "2 hunks together, put back: total = 0 total += row return total instead of: "
                  "amount = 0 amount += row return amount"): [
            "-    amount = 0", "+    total = 0", "-        amount += row", "-    return amount",
            "+        total += row", "+    return total",
        ],
    }  # fmt: skip


def test_a_hunk_that_is_nothing_alone_says_why() -> None:
    mutants, not_made = of(BASE, HEAD)
    joint = next(mutant.name for mutant in mutants if mutant.scope == "count")
    whole = f"put back with the hunks that depend on each other it is {joint}"
    assert [(no.mutation.partition("[")[0], no.reason) for no in not_made] == [
        ("reverts@m", "does not differ once comments, docstrings and white space are gone"),
        ("reverts@m:count", f"alone it leaves the name 'amount' unbound in count, where other code reads it; {whole}"),
        ("reverts@m:count", "alone it brings in the unbound name 'total', which has no value there in count; " + whole),
        ("reverts@m:new_helper", "leaves the name 'new_helper' unbound in count_new, where other code reads it"),
    ]


@pytest.mark.parametrize(
    ("base", "head", "scope"),
    [
        (  # a name of the function around
            "def make(f):\n    a = f()\n\n    def run(x):\n        y = x\n        return a(y)\n\n    return run\n",
            "def make(f):\n    b = f()\n\n    def run(x):\n        y = x\n        return b(y)\n\n    return run\n",
            "make",
        ),
        (  # a function's own name
            "def old(x):\n    return x\n\n\ndef run(x):\n    return old(x)\n",
            "def new(x):\n    return x\n\n\ndef run(x):\n    return new(x)\n",
            "",
        ),
    ],
)
def test_what_depends_on_each_other_is_put_back_together(base: str, head: str, scope: str) -> None:
    (mutant,), not_made = of(base, head)
    assert (mutant.source, mutant.scope) == (base, scope)
    assert mutant.gist.startswith("2 hunks together, put back: ")
    assert all(no.reason.endswith(f"it is {mutant.name}") for no in not_made)
    assert len(not_made) == 2


def test_comments_are_no_mutants() -> None:
    mutants, not_made = of("def f():\n    return 1\n", "def f():\n    # why\n    return 1\n\n\n# end\n")
    assert mutants == []
    assert {no.reason for no in not_made} == {"does not differ once comments, docstrings and white space are gone"}


def test_what_triggers_is_the_text_that_is_put_back_or_what_follows_it() -> None:
    mutants, _ = of(BASE, HEAD)
    text = {mutant.gist: (mutant.source.splitlines(), mutant.probes) for mutant in mutants}
    found = {gist: [source[n - 1].strip() for n in probes.triggered] for gist, (source, probes) in text.items()}
    assert found["put back: (nothing) instead of: if x is None: return None"] == ["return x * 2"]
    assert found["put back: out = x + 1 instead of: out = x + 2"] == ["out = x + 1"]
    assert found["put back: (nothing) instead of: if bias is not None: out = out + bias"] == ["return out"]
    assert all(mutant.probes.reached for mutant in mutants if mutant.scope)


def test_the_same_hunk_at_two_places_has_two_names_that_stay() -> None:
    base = "def f(x):\n    a = x\n    b = 1\n    a = x\n    return a, b\n"
    head = "def f(x):\n    a = x + 1\n    b = 1\n    a = x + 1\n    return a, b\n"
    mutants, _ = of(base, head)
    names = [mutant.name for mutant in mutants]
    assert len(set(names)) == 2
    assert all("~" in name for name in names)
    again, _ = of(base + "\n\nZ = 1\n", head + "\n\nZ = 2\n")
    assert names == [mutant.name for mutant in again if mutant.scope == "f"]


def test_newlines_of_the_head_stay() -> None:
    mutants, _ = of("def f():\n    return 1\n", "def f():\r\n    return 2\r\n")
    assert [mutant.source for mutant in mutants] == ["def f():\r\n    return 1\r\n"]


# -- out of a repository ----------------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path: Path) -> Target:
    root = new_repository(tmp_path / "repo")
    first = {
        "src/pkg/__init__.py": "", "src/pkg/k.py": BASE, "src/pkg/gone.py": "def gone():\n    return 'gone'\n",
        "src/pkg/old_name.py": BASE.replace("scale", "other"), "tests/test_k.py": "def test_k():\n    assert 1\n",
        "scripts/run.py": "A = 1\n", "src/pkg/same.py": "A = 1\n",
    }  # fmt: skip
    commit(root, first)
    head = {
        "src/pkg/k.py": HEAD, "src/pkg/gone.py": None, "src/pkg/old_name.py": None,
        "src/pkg/new_name.py": BASE.replace("scale", "other").replace("x + 1", "x + 3"),
        "tests/test_k.py": "def test_k():\n    assert 2\n", "scripts/run.py": "A = 2\n",
    }  # fmt: skip
    commit(root, head)
    (root / "src/pkg/fresh.py").write_text("B = 1\n")  # not even committed
    return target_of(root, "pkg.k")


def test_hunks_of_source_files_are_mutants_and_those_of_tests_are_not(target: Target) -> None:
    assert target.root is not None
    before = hashes(target.root)
    mutants, not_made = revert_mutants(target, read_sources(target), base_of(target, "HEAD~1"))
    assert {mutant.path for mutant in mutants} == {"src/pkg/k.py", "src/pkg/new_name.py"}
    assert {mutant.module for mutant in mutants} == {"pkg.k", "pkg.new_name"}
    assert all(mutant.name.startswith("reverts@pkg.") for mutant in mutants)
    assert mutants[0].options == ("--reverts", "HEAD~1")
    words = {no.mutation: no.reason for no in not_made if "[" not in no.mutation}
    assert words == {
        "reverts@src/pkg/fresh.py": "is new since HEAD~1: nothing of it to put back",
        "reverts@src/pkg/gone.py": "is gone since HEAD~1: a whole file is no hunk",
    }
    assert hashes(target.root) == before


def test_the_working_tree_counts_and_not_the_last_commit(target: Target) -> None:
    assert target.root is not None
    (target.root / "src/pkg/k.py").write_text(BASE.replace("x * 2", "x * 5"))
    mutants, _ = revert_mutants(target, read_sources(target), base_of(target, "HEAD~1"))
    assert [lines(m) for m in mutants if m.path.endswith("k.py")] == [["-    return x * 5", "+    return x * 2"]]


def test_a_target_below_the_repositorys_top(target: Target) -> None:
    assert target.root is not None
    below = replace(target, root=target.root / "src", source_roots=(".",), tests=())
    mutants, _ = revert_mutants(below, read_sources(below), base_of(below, "HEAD~1"))
    assert {mutant.path for mutant in mutants} == {"pkg/k.py", "pkg/new_name.py"}


def test_names_choose_among_reverts(target: Target) -> None:
    selection = with_base(Selection(reverts="HEAD~1", catalogue=False), target)
    every = own_mutants(target, read_sources(target), selection).mutants
    assert len(every) == 6
    one = own_mutants(target, read_sources(target), replace(selection, names=("reverts@pkg.k:scale*",))).mutants
    assert [mutant.scope for mutant in one] == ["scale"]


def test_what_is_no_revision_or_differs_in_nothing_is_told(target: Target, tmp_path: Path) -> None:
    with pytest.raises(GitError, match="'nowhere' is no revision"):
        base_of(target, "nowhere")
    assert target.root is not None
    commit(target.root, {})
    nothing = Selection(reverts="HEAD", catalogue=False)
    with pytest.raises(NothingToRun, match="no hunk between HEAD and the working tree is a mutant"):
        own_mutants(target, read_sources(target), nothing)
    alone = tmp_path / "alone"
    alone.mkdir()
    with pytest.raises(GitError, match="is in no git repository"):
        base_of(replace(target, root=alone), "HEAD")
