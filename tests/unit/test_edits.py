"""Edits of the command line: their options, diffs that fit at one place, files that are new or gone."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import target_of

from fastlora_verify.harness.editing.edit_options import asked, paired
from fastlora_verify.harness.editing.edits import Edits, edit_mutants
from fastlora_verify.harness.editing.own import Own, nothing_left, own_mutants
from fastlora_verify.harness.errors import EditError, FileError, NothingToRun, UsageError
from fastlora_verify.harness.selection import Selection
from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.base import Mutant

SOURCE = "".join(f"def f{n}(x):\n    y = x + {n}\n    return y\n\n\n" for n in range(6))
OTHER = "A = 1\n\n\ndef g(x):\n    return A\n".replace("\n", "\r\n")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    package = tmp_path / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "k.py").write_text(SOURCE)
    (package / "other.py").write_bytes(OTHER.encode())
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_k.py").write_text("def test_k():\n    assert 1 + 1 == 2\n")
    (tmp_path / "notes.txt").write_text("a\n")
    return target_of(tmp_path, "pkg.k")


def made(target: Target, **edits: object) -> tuple[Mutant, ...]:
    return edit_mutants(target, read_sources(target), Edits(**edits))  # type: ignore[arg-type]


def patched(target: Target, diff: str) -> Mutant:
    assert target.root is not None
    path = target.root.parent / "fix.diff"
    path.write_bytes(diff.encode())
    (mutant,) = made(target, patches=(path,))
    return mutant


def diff_of(path: str, before: str, after: str, *, context: int = 3, a: str = "a/", b: str = "b/") -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), a + path, b + path, n=context
    )
    return "".join(lines)


# -- options ----------------------------------------------------------------------------------------------


def test_every_edit_goes_where_the_next_at_says() -> None:
    words = paired(
        [
            "mutate",
            "--insert",
            "return x",
            "--all",
            "--at",
            "m:f",
            "--replace",
            "--a",
            "-b",
            "--at=m:g",
            "--target",
            "t",
        ]
    )
    assert words == [
        "mutate", "--all", "--insert", '["return x", "m:f"]', "--replace", '["--a", "-b", "m:g"]', "--target", "t",
    ]  # fmt: skip
    assert paired(["--insert=a=b", "--insert", "c", "--at", "m"]) == [
        "--insert", '["a=b", "m"]', "--insert", '["c", "m"]',
    ]  # fmt: skip
    found = asked(['["a", "m"]'], ['["o", "n", "m"]'])
    assert found.edits == Edits((("a", "m"),), (("o", "n", "m"),))


def test_reverts_may_stand_alone_beside_against() -> None:
    assert paired(["mutate", "--reverts", "--target", "t"]) == ["mutate", "--reverts", "", "--target", "t"]
    assert paired(["mutate", "--reverts", "v1"]) == ["mutate", "--reverts", "v1"]
    assert paired(["mutate", "--reverts"]) == ["mutate", "--reverts", ""]
    assert asked(reverts="", against="main").reverts == "main"
    assert asked(reverts="v1", against="main").reverts == "v1"
    with pytest.raises(UsageError, match="--reverts names no revision"):
        asked(reverts="")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--insert", "return x"], "--insert 'return x' goes nowhere; put --at"),
        (["--replace", "a", "b", "--at", "m", "--insert", "c"], "--insert 'c' goes nowhere"),
        (["--at", "m:f"], "--at m:f stands for no edit"),
        (["--replace", "a", "b"], "goes nowhere"),
    ],
)
def test_an_edit_without_a_place_and_a_place_without_an_edit_are_told(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        paired(words)


# -- insert and replace -----------------------------------------------------------------------------------


def test_each_edit_is_a_mutant_and_the_same_edit_is_one(target: Target) -> None:
    found = made(
        target,
        inserts=(("return x", "pkg.k:f1"), ("return x", "pkg.k:f2"), ("return x", "pkg.k:f1")),
        replaces=(("x + 1", "x - 1", "pkg.k:f1"),),
    )
    assert [mutant.name.partition("[")[0] for mutant in found] == [
        "insert@pkg.k:f1", "insert@pkg.k:f2", "replace@pkg.k:f1",
    ]  # fmt: skip
    assert found[0].options == ("--insert", "return x", "--at", "pkg.k:f1")


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ("pkg.k:f9", r"--insert 'return x' --at pkg\.k:f9: pkg\.k has no function or class 'f9'; nearest: f"),
        ("pkg.kk:f1", r"the target has no module 'pkg\.kk'; nearest: pkg\.k; nothing was run"),
        ("pkg.k", r"pkg\.k is a module"),
    ],
)
def test_a_scope_that_is_not_there_names_the_nearest(target: Target, scope: str, message: str) -> None:
    with pytest.raises(EditError, match=message):
        made(target, inserts=(("return x", scope),))


def test_a_name_that_two_functions_have_is_no_place(target: Target) -> None:
    assert target.root is not None
    twins = "import typing\n\nif typing:\n    def f(x):\n        return x\nelse:\n    def f(x):\n        return -x\n"
    overloads = "\n\n@typing.overload\ndef g(x: int): ...\n\n\ndef g(x):\n    return x\n"
    (target.root / "src" / "pkg" / "k.py").write_text(twins + overloads)
    with pytest.raises(EditError, match=r"pkg\.k has 'f' 2 times \(lines 4, 7\); say which by a --patch"):
        made(target, inserts=(("return 7", "pkg.k:f"),))
    (mutant,) = made(target, inserts=(("return 7", "pkg.k:g"),))
    assert mutant.source.endswith("def g(x):\n    return 7\n    return x\n")


def test_an_edit_that_fits_only_another_columns_tree_is_left_out_and_the_others_stay(target: Target) -> None:
    edits = Edits(inserts=(("return x", "pkg.k:f9"), ("return x", "pkg.k:f1")))
    selection = Selection(edits=edits, catalogue=False)
    with pytest.raises(EditError):
        own_mutants(target, read_sources(target), selection)
    own = own_mutants(target, read_sources(target), replace(selection, lenient=True))
    assert [mutant.scope for mutant in own.mutants] == ["f1"]
    assert own.left_out is not None
    assert nothing_left(own) is own.left_out
    assert isinstance(nothing_left(Own()), NothingToRun)


# -- diffs ------------------------------------------------------------------------------------------------


def test_a_diff_over_several_files_is_one_mutant(target: Target) -> None:
    after = SOURCE.replace("x + 1", "x - 1").replace("x + 4", "x - 4")
    other = OTHER.replace("return A", "return A + 1")
    tests = "def test_k():\n    assert 1 + 1 == 3\n"
    diff = diff_of("src/pkg/k.py", SOURCE, after) + diff_of("src/pkg/other.py", OTHER, other)
    diff += diff_of("tests/test_k.py", "def test_k():\n    assert 1 + 1 == 2\n", tests)
    mutant = patched(target, diff)
    assert {change.path: change.source for change in mutant.changes} == {
        "src/pkg/k.py": after, "src/pkg/other.py": other, "tests/test_k.py": tests,
    }  # fmt: skip
    assert mutant.name.startswith("patch@pkg.k[")
    assert mutant.gist == "fix.diff: 4 hunks in k.py, other.py, test_k.py"
    assert mutant.diff.count("+++ b/") == 3
    first, second, third = mutant.changes
    assert first.probes.triggered == (7, 22)
    assert first.probes.reached == (7, 22)
    assert second.probes.triggered == (5,)
    assert third.probes.triggered == (2,)


def test_a_hunk_that_prepares_and_then_asks_triggers_where_its_condition_holds(target: Target) -> None:
    after = SOURCE.replace("    y = x + 1\n", "    z = x > 1\n    if z:\n        return 0\n    y = x + 1\n")
    mutant = patched(target, diff_of("src/pkg/k.py", SOURCE, after))
    assert mutant.source.splitlines()[mutant.probes.triggered[0] - 1] == "        return 0"


def test_a_name_says_what_the_diff_changes_and_not_where_it_stands(target: Target) -> None:
    after = SOURCE.replace("x + 1", "x - 1")
    one = patched(target, diff_of("src/pkg/k.py", SOURCE, after))
    short = patched(target, diff_of("src/pkg/k.py", SOURCE, after, context=1))
    assert one.name == short.name == f"patch@pkg.k:f1[{one.name[-6:-1]}]"
    moved = diff_of("src/pkg/k.py", "\n\n" + SOURCE, "\n\n" + after)
    assert patched(target, moved).changes == one.changes  # two lines off, and only one place has them


@pytest.mark.parametrize(("a", "b"), [("a/", "b/"), ("", ""), ("./", "./"), ("i/", "w/"), ("a/sub/", "b/sub/")])
def test_paths_may_begin_as_git_or_diff_writes_them(target: Target, a: str, b: str) -> None:
    after = SOURCE.replace("x + 1", "x - 1")
    assert patched(target, diff_of("src/pkg/k.py", SOURCE, after, a=a, b=b)).source == after


def test_lines_keep_their_ends(target: Target) -> None:
    diff = "--- a/src/pkg/other.py\n+++ b/src/pkg/other.py\n@@ -4,2 +4,3 @@\n def g(x):\n+    x = 1\n     return A\n"
    assert patched(target, diff).source == OTHER.replace("    return A", "    x = 1\r\n    return A")


def test_a_last_line_may_lose_its_newline(target: Target) -> None:
    diff = (
        "--- a/src/pkg/other.py\n+++ b/src/pkg/other.py\n@@ -4,2 +4,2 @@\n def g(x):\n-    return A\n+    return 2\n"
        "\\ No newline at end of file\n"
    )
    assert patched(target, diff).source == OTHER.replace("return A\r\n", "return 2")


def test_what_another_module_of_the_target_imports_cannot_be_taken(target: Target) -> None:
    assert target.root is not None
    users = {
        "user": "from pkg.k import f1\n",
        "relative": "from .k import f1\n",
        "optional": "try:\n    from pkg.k import f1\nexcept ImportError:\n    f1 = None\n",
    }
    diff = diff_of("src/pkg/k.py", SOURCE, SOURCE.replace("def f1(", "def f11("))
    for name, text in users.items():
        (target.root / "src" / "pkg" / f"{name}.py").write_text(text)
        both = replace(target, modules=("pkg.k", f"pkg.{name}"))
        if name == "optional":
            assert patched(both, diff).name.startswith("patch@pkg.k")
        else:
            with pytest.raises(EditError, match=rf"takes 'f1' from pkg\.k, which pkg\.{name} imports"):
                patched(both, diff)
    follows = diff_of("src/pkg/user.py", users["user"], "from pkg.k import f11\n")
    assert len(patched(replace(target, modules=("pkg.k", "pkg.user")), diff + follows).changes) == 2


def test_files_may_be_new_or_gone(target: Target) -> None:
    diff = diff_of("src/pkg/k.py", SOURCE, SOURCE.replace("return y", "from pkg import extra; return extra.Z", 1))
    diff += "--- /dev/null\n+++ b/src/pkg/extra.py\n@@ -0,0 +1 @@\n+Z = 3\n"
    diff += "--- a/src/pkg/other.py\n+++ /dev/null\n@@ -1,5 +0,0 @@\n" + "".join(
        f"-{x}\n" for x in OTHER.split("\r\n")[:5]
    )
    mutant = patched(target, diff)
    assert [(change.path, change.source) for change in mutant.also] == [
        ("src/pkg/extra.py", "Z = 3\n"), ("src/pkg/other.py", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        (
            diff_of("src/pkg/k.py", "a\nb\n", "a\nc\n"),
            r"hunk 1 of src/pkg/k\.py \(line 1\) does not fit: it expects 'a'",
        ),
        (
            "--- a/src/pkg/k.py\n+++ b/src/pkg/k.py\n@@ -200,1 +200,1 @@\n-    return y\n+    return 1\n",
            r"\(line 200\) fits at 6 places: lines 3, 8, 13, 18, 23, 28",
        ),
        (diff_of("src/pkg/nowhere.py", "a\n", "b\n"), r"changes src/pkg/nowhere\.py, which the target does not have"),
        (diff_of("notes.txt", "a\n", "b\n"), r"changes notes\.txt, which is no Python file"),
        ("--- /dev/null\n+++ b/src/pkg/k.py\n@@ -0,0 +1 @@\n+a = 1\n", r"makes src/pkg/k\.py anew"),
        (diff_of("src/pkg/k.py", SOURCE, SOURCE.replace("x + 1", "z + 1")), "brings in the unbound name 'z'"),
        (diff_of("src/pkg/k.py", SOURCE, SOURCE.replace("x + 1", "x +")), "does not compile"),
        (diff_of("src/pkg/k.py", SOURCE, SOURCE.replace("x + 1", "x + 1  # one")), "does not differ"),
    ],
)
def test_a_diff_that_does_not_fit_says_where(target: Target, diff: str, message: str) -> None:
    with pytest.raises(EditError, match=message):
        patched(target, diff)


@pytest.mark.parametrize(
    "text", ["", "hello\n", "@@ -1 +1 @@\n-a\n+b\n", "--- a/k.py\n+++ b/k.py\n@@ -1,5 +1,5 @@\n-a\n"]
)
def test_a_file_that_is_no_diff_is_told(target: Target, text: str) -> None:
    with pytest.raises(FileError, match="unified diff"):
        patched(target, text)


def test_a_diff_that_is_not_there_is_told(target: Target, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read: No such file"):
        made(target, patches=(tmp_path / "no.diff",))
