"""Trees of columns are what one gets by hand, and the user's repository is left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from repositories import commit, git, hashes, new_repository
from runner_trees import target_of

from fastlora_verify.harness.errors import GitError
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.column_trees import Tree, trees_of
from fastlora_verify.harness.trees.columns import Wanted, specs_of
from fastlora_verify.harness.trees.scratch_git import Conflicts

BASE = {
    ".gitignore": "built.bin\n",
    "conftest.py": "# base\n",
    "pyproject.toml": "# base\n",
    "src/pkg/__init__.py": "",
    "src/pkg/fast.py": "x = 1\n",
    "src/pkg/gone.py": "g = 1\n",
    "tests/helper.py": "h = 1\n",
    "tests/test_fast.py": "def test_one(): pass\n",
    "tests/test_old.py": "def test_old(): pass\n",
}
HEAD: dict[str, str | None] = {
    "conftest.py": "# head\n",
    "pyproject.toml": "# head\n",
    "src/pkg/fast.py": "x = 2\n",
    "src/pkg/gone.py": None,
    "src/pkg/new.py": "n = 2\n",
    "tests/helper.py": "h = 2\n",
    "tests/test_new.py": "def test_new(): pass\n",
    "tests/test_old.py": None,
}


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A repository with the branches `main` and `change`, the latter checked out."""
    top = new_repository(tmp_path / "repo")
    commit(top, BASE, "base")
    git(top, "checkout", "-q", "-b", "change")
    commit(top, HEAD, "head")
    return target_of(top, "pkg.fast")


@contextmanager
def trees(target: Target, wanted: Wanted) -> Iterator[list[Tree]]:
    specs = specs_of(wanted, ("cpu",))
    with trees_of(target, wanted, specs, target.tests, Path("/nowhere")) as found:
        yield found


def files(tree: Tree) -> dict[str, str]:
    root = tree.target.root
    assert root is not None
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def texts(files: dict[str, str | None], base: dict[str, str] | None = None) -> dict[str, str]:
    whole = {**(base or {}), **files}
    return {path: text for path, text in sorted(whole.items()) if text is not None}


def test_the_usual_three_are_what_one_makes_by_hand(target: Target) -> None:
    assert target.root is not None
    before = hashes(target.root)
    with trees(target, Wanted(against="main")) as (head, old_tests, old_source):
        assert files(head) == texts(HEAD, BASE)
        base_tests = {p: t for p, t in BASE.items() if p.startswith("tests") or p == "conftest.py"}
        assert files(old_tests) == texts({**HEAD, "tests/test_new.py": None, **base_tests}, BASE)
        head_tests = {p: t for p, t in HEAD.items() if p.startswith("tests") or p == "conftest.py"}
        assert files(old_source) == texts(head_tests, BASE)
        main = git(target.root, "rev-parse", "main")
        assert (old_source.source.name, old_source.source.commit) == ("main", main)
        assert old_source.tests.name == "working tree"
        assert old_tests.tests.commit == main
        folder = head.target.root
    assert hashes(target.root) == before
    assert folder is not None and not folder.exists()


def test_what_is_not_committed_is_part_of_the_working_tree(target: Target) -> None:
    assert target.root is not None
    (target.root / "src/pkg/fast.py").write_text("x = 3\n")
    (target.root / "src/pkg/untracked.py").write_text("u = 3\n")
    with trees(target, Wanted(against="main")) as (head, _, old_source):
        assert files(head)["src/pkg/fast.py"] == "x = 3\n"
        assert "src/pkg/untracked.py" in files(head)
        assert files(old_source)["src/pkg/fast.py"] == "x = 1\n"
        assert head.source.commit == ""
        assert any("2 uncommitted changes (src/pkg/fast.py, src/pkg/untracked.py)" in note for note in head.notes)


def test_a_head_that_lacks_commits_of_the_other_says_so(target: Target) -> None:
    assert target.root is not None
    git(target.root, "checkout", "-q", "main")
    commit(target.root, {"README.md": "more\n"})
    git(target.root, "checkout", "-q", "change")
    with trees(target, Wanted(against="main")) as (head, *_):
        assert head.notes == ("head lacks 1 commit of main; --merged-onto main takes them in",)


def test_equal_trees_have_equal_digests_whichever_way_they_came(target: Target) -> None:
    with trees(target, Wanted(("source=head", "source=change,tests=change", "source=main,tests=main"))) as found:
        head, change, main = found
        assert head.digest == change.digest
        assert head.digest != main.digest


def patch(target: Target, files: dict[str, str | None], branch: str = "change") -> Path:
    """A diff of what `files` changes on a branch."""
    assert target.root is not None
    git(target.root, "checkout", "-q", branch)
    commit(target.root, files)
    diff = target.root.parent / "fix.diff"
    diff.write_text(git(target.root, "diff", "HEAD~1", "HEAD") + "\n", encoding="utf-8")
    git(target.root, "reset", "-q", "--hard", "HEAD~1")
    git(target.root, "checkout", "-q", "change")
    return diff


def test_a_diff_is_part_of_its_side_alone(target: Target) -> None:
    diff = patch(target, {"src/pkg/fast.py": "x = 9\n", "tests/helper.py": "h = 9\n"})
    with trees(target, Wanted((f"source=+{diff}", f"tests=+{diff}", f"source=+{diff},tests=+{diff}"))) as found:
        shown = [(files(tree)["src/pkg/fast.py"], files(tree)["tests/helper.py"]) for tree in found]
        assert shown == [("x = 9\n", "h = 2\n"), ("x = 2\n", "h = 9\n"), ("x = 9\n", "h = 9\n")]
        fix = "working tree+fix.diff"
        assert found[0].notes == (f"source={fix} also changes tests/helper.py: not taken, give the diff to tests= too",)
        assert found[1].notes == (f"tests={fix} also changes src/pkg/fast.py: not taken, give the diff to source= too",)
        assert not found[2].notes
        assert found[2].source.commit == ""


def test_a_diff_of_a_revision(target: Target) -> None:
    diff = patch(target, {"src/pkg/gone.py": "g = 9\n"}, "main")
    with trees(target, Wanted((f"source=main+{diff}",))) as (tree,):
        assert files(tree)["src/pkg/gone.py"] == "g = 9\n"
        assert files(tree)["tests/test_new.py"] == HEAD["tests/test_new.py"]
    problem = r"fix\.diff does not apply: src/pkg/gone\.py: No such file"
    with pytest.raises(GitError, match=problem), trees(target, Wanted((f"source=+{diff}",))):
        pass


def test_a_diff_needs_no_repository(tmp_path: Path, target: Target) -> None:
    diff = patch(target, {"src/pkg/fast.py": "x = 9\n"})
    assert target.root is not None
    bare = tmp_path / "bare"
    for path, text in texts(HEAD, BASE).items():
        (bare / path).parent.mkdir(parents=True, exist_ok=True)
        (bare / path).write_text(text)
    with trees(replace(target, root=bare), Wanted((f"source=+{diff}",))) as (tree,):
        assert files(tree)["src/pkg/fast.py"] == "x = 9\n"
    with (
        pytest.raises(GitError, match="is in no git repository"),
        trees(replace(target, root=bare), Wanted(against="v")),
    ):
        pass


def test_a_target_in_a_folder_of_its_repository(tmp_path: Path) -> None:
    top = new_repository(tmp_path / "top")
    commit(top, {"README.md": "r\n", **{f"sub/{path}": text for path, text in BASE.items()}})
    git(top, "checkout", "-q", "-b", "change")
    commit(top, {f"sub/{path}": text for path, text in HEAD.items()})
    target = target_of(top / "sub", "pkg.fast")
    diff = patch(replace(target, root=top), {"sub/src/pkg/fast.py": "x = 9\n"})
    with trees(target, Wanted(("source=main,tests=main", f"source=+{diff}"))) as (main, fixed):
        assert files(main) == texts({**BASE})
        assert files(fixed)["src/pkg/fast.py"] == "x = 9\n"
    git(top, "checkout", "-q", "--orphan", "other")
    git(top, "rm", "-rqf", ".")
    commit(top, {"README.md": "r\n"})
    git(top, "checkout", "-q", "change")
    with pytest.raises(GitError, match="other has no folder sub"), trees(target, Wanted(("source=other",))):
        pass


def test_ignored_files_that_the_target_includes_are_in_every_tree(target: Target) -> None:
    assert target.root is not None
    (target.root / "built.bin").write_text("built\n")
    with trees(replace(target, include=("built.bin",)), Wanted(against="main")) as found:
        assert [files(tree).get("built.bin") for tree in found] == ["built\n"] * 3
    with trees(target, Wanted(against="main")) as found:
        assert ["built.bin" in files(tree) for tree in found] == [False] * 3


def test_placed_folders_of_the_repository_come_from_the_revision(target: Target, tmp_path: Path) -> None:
    assert target.root is not None
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "e.py").write_text("e\n")
    place = (("copied", target.root / "src"), ("other", tmp_path / "elsewhere"))
    with trees(replace(target, place=place), Wanted(("source=main,tests=main",))) as (main,):
        assert files(main)["copied/pkg/fast.py"] == "x = 1\n"
        assert files(main)["other/e.py"] == "e\n"


def test_submodules_are_left_empty_and_it_is_said(target: Target, tmp_path: Path) -> None:
    assert target.root is not None
    inner = new_repository(tmp_path / "inner")
    commit(inner, {"i.py": "i\n"})
    git(target.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "third")
    commit(target.root, {})
    with trees(target, Wanted(("source=change,tests=change",))) as (tree,):
        assert tree.notes == ("submodules of change are left empty: third",)


def test_a_target_of_placed_folders_alone_has_no_revisions(target: Target) -> None:
    assert target.root is not None
    placed = replace(target, root=None, place=(("src", target.root / "src"),))
    with pytest.raises(GitError, match="has no root"), trees(placed, Wanted(against="main")):
        pass


def test_the_merge_is_the_tree_under_review(target: Target) -> None:
    assert target.root is not None
    git(target.root, "checkout", "-q", "main")
    commit(target.root, {"src/pkg/more.py": "m = 1\n"})
    git(target.root, "checkout", "-q", "change")
    (target.root / "src/pkg/fast.py").write_text("x = 3\n")
    head, main = (git(target.root, "rev-parse", "--short=9", name) for name in ("HEAD", "main"))
    before = hashes(target.root)
    with trees(target, Wanted(against="main", merged_onto=("main",))) as (merged, _, old_source):
        assert files(merged) == texts({**HEAD, "src/pkg/more.py": "m = 1\n"}, BASE)
        name = f"HEAD ({head}) merged onto main ({main})"
        assert (merged.source.name, merged.source.commit) == (name, "")
        assert merged.notes == (f"{name}; 1 uncommitted change (src/pkg/fast.py) not part of it",)
        assert files(old_source)["src/pkg/fast.py"] == "x = 1\n"
    assert hashes(target.root) == before


def test_the_rebase_is_the_tree_under_review(target: Target) -> None:
    assert target.root is not None
    git(target.root, "checkout", "-q", "main")
    commit(target.root, {"src/pkg/more.py": "m = 1\n"})
    git(target.root, "checkout", "-q", "change")
    with trees(target, Wanted(rebased_onto="main")) as (rebased,):
        assert files(rebased) == texts({**HEAD, "src/pkg/more.py": "m = 1\n"}, BASE)
        assert " rebased onto main (" in rebased.source.name


def test_conflicts_come_before_anything_is_run(target: Target) -> None:
    assert target.root is not None
    git(target.root, "checkout", "-q", "main")
    commit(target.root, {"src/pkg/fast.py": "x = 7\n", "tests/test_new.py": "other\n"})
    git(target.root, "checkout", "-q", "change")
    before = hashes(target.root)
    with pytest.raises(Conflicts) as caught, trees(target, Wanted(merged_onto=("main",))):
        pass
    found = [(conflict.path, conflict.kind) for conflict in caught.value.conflicts]
    assert found == [("src/pkg/fast.py", "content"), ("tests/test_new.py", "add/add")]
    assert hashes(target.root) == before


def test_a_revision_that_is_not_there(target: Target) -> None:
    for wanted in (Wanted(("source=nothing",)), Wanted(against="nothing"), Wanted(merged_onto=("nothing",))):
        with pytest.raises(GitError, match="'nothing' is no revision of"), trees(target, wanted):
            pass
