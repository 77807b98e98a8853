"""Merges, rebases and patches, made beside the user's repository."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from repositories import commit, git, hashes, new_repository

from fastlora_verify.harness.errors import GitError
from fastlora_verify.harness.trees.git import Repository, Revision
from fastlora_verify.harness.trees.scratch_git import Conflicts, ScratchRepository

TEXT = "".join(f"line {number}\n" for number in range(9))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """`main` and `change` both start from one commit."""
    top = new_repository(tmp_path / "top")
    commit(top, {"a.py": TEXT, "b.py": TEXT + "b\n", "sub/c.py": "c = 1\n"}, "first")
    git(top, "branch", "change")
    return top


def on(top: Path, branch: str, files: dict[str, str | None], message: str = "a change") -> str:
    git(top, "checkout", "-q", branch)
    return commit(top, files, message)


def scratch_of(top: Path) -> tuple[ScratchRepository, Repository]:
    repository = Repository.around(top)
    return ScratchRepository(top.parent / "scratch", repository), repository


def conflicts_of(top: Path, *onto: str) -> Conflicts:
    scratch, repository = scratch_of(top)
    with pytest.raises(Conflicts) as caught:
        scratch.merged([repository.revision(name) for name in onto], repository.revision("change"))
    return caught.value


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_commit_is_laid_out_whole_whatever_an_archive_would_leave_out(top: Path) -> None:
    on(top, "main", {".gitattributes": "sub export-ignore\na.py export-subst\n", "a.py": "$Format:%H$\n"})
    scratch, repository = scratch_of(top)
    scratch.lay_out(repository.resolve("main"), top.parent / "tree")
    found = files(top.parent / "tree")
    assert found["a.py"] == "$Format:%H$\n"
    assert set(found) == {".gitattributes", "a.py", "b.py", "sub/c.py"}


def test_a_checkout_looks_as_the_users_own_settings_make_it(top: Path) -> None:
    git(top, "config", "core.autocrlf", "true")
    scratch, repository = scratch_of(top)
    scratch.lay_out(repository.resolve("main"), top.parent / "tree")
    assert (top.parent / "tree" / "sub" / "c.py").read_bytes() == b"c = 1\r\n"


def test_branches_that_fit_are_merged_and_the_repository_stays_as_it_was(top: Path) -> None:
    on(top, "main", {"a.py": TEXT.replace("line 1\n", "main\n")})
    on(top, "change", {"a.py": TEXT.replace("line 8\n", "change\n"), "new.py": "n = 1\n"})
    hook = top / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    git(top, "config", "commit.gpgSign", "true")
    before = hashes(top)
    scratch, repository = scratch_of(top)
    made = scratch.merged([repository.revision("main")], repository.revision("change"))
    scratch.lay_out(made, top.parent / "tree")
    assert files(top.parent / "tree")["a.py"] == TEXT.replace("line 1\n", "main\n").replace("line 8\n", "change\n")
    assert hashes(top) == before
    assert not list(top.parent.rglob("ran"))


def test_the_same_line_changed_twice_is_a_content_conflict(top: Path) -> None:
    on(top, "main", {"a.py": TEXT.replace("line 1\n", "main\n"), "b.py": "other\n"})
    on(top, "change", {"a.py": TEXT.replace("line 1\n", "change\n")})
    found = conflicts_of(top, "main")
    assert found.step == "merging change onto main"
    assert [(conflict.path, conflict.kind) for conflict in found.conflicts] == [("a.py", "content")]


def test_a_file_added_by_both_is_an_add_add_conflict(top: Path) -> None:
    on(top, "main", {"né w.py": "main\n", "sub/new.py": "main\n"})
    on(top, "change", {"né w.py": "change\n", "sub/new.py": "change\n"})
    found = [(conflict.path, conflict.kind) for conflict in conflicts_of(top, "main").conflicts]
    assert found == [("né w.py", "add/add"), ("sub/new.py", "add/add")]


def test_a_file_deleted_here_and_changed_there(top: Path) -> None:
    on(top, "main", {"a.py": None})
    on(top, "change", {"a.py": TEXT + "change\n"})
    (found,) = conflicts_of(top, "main").conflicts
    assert (found.path, found.kind) == ("a.py", "modify/delete")
    assert "deleted in HEAD" in found.text


def test_a_file_renamed_here_and_deleted_there(top: Path) -> None:
    on(top, "main", {"a.py": None, "renamed.py": TEXT})
    on(top, "change", {"a.py": None})
    (found,) = conflicts_of(top, "main").conflicts
    assert (found.path, found.kind) == ("renamed.py", "rename/delete")


def test_several_are_merged_in_order_and_the_step_that_stops_is_named(top: Path) -> None:
    git(top, "branch", "other")
    on(top, "main", {"b.py": "main\n"})
    on(top, "other", {"a.py": TEXT.replace("line 1\n", "other\n")})
    on(top, "change", {"a.py": TEXT.replace("line 1\n", "change\n")})
    found = conflicts_of(top, "main", "other")
    assert found.step == "merging change onto main with other"
    assert [(conflict.path, conflict.kind) for conflict in found.conflicts] == [("a.py", "content")]


def test_histories_without_a_common_commit_are_refused(top: Path) -> None:
    git(top, "checkout", "-q", "--orphan", "alone")
    commit(top, {"x.py": "x\n"})
    scratch, repository = scratch_of(top)
    with pytest.raises(GitError, match="refusing to merge unrelated histories"):
        scratch.merged([repository.revision("main")], repository.revision("alone"))


def squashed(top: Path) -> str:
    """`change` stands on a commit that main has as a squash with one more line; returns that commit."""
    base = on(top, "change", {"new.py": "one\ntwo\n"}, "kernel")
    on(top, "change", {"b.py": "change\n"}, "pin")
    on(top, "main", {"new.py": "one\ntwo\nthree\n"}, "kernel, squashed")
    return base


def test_a_rebase_that_stops_names_commit_path_and_kind(top: Path) -> None:
    base = squashed(top)
    scratch, repository = scratch_of(top)
    with pytest.raises(Conflicts) as caught:
        scratch.rebased(repository.revision("change"), repository.revision("main"))
    assert caught.value.step == f"rebasing change onto main stops at {base[:9]}"
    assert [(conflict.path, conflict.kind) for conflict in caught.value.conflicts] == [("new.py", "add/add")]


def test_a_rebase_without_the_commits_below_it_applies(top: Path) -> None:
    base = squashed(top)
    before = hashes(top)
    scratch, repository = scratch_of(top)
    made = scratch.rebased(repository.revision("change"), repository.revision("main"), Revision("base", base))
    scratch.lay_out(made, top.parent / "tree")
    assert files(top.parent / "tree") == {
        "a.py": TEXT, "b.py": "change\n", "new.py": "one\ntwo\nthree\n", "sub/c.py": "c = 1\n"
    }  # fmt: skip
    assert hashes(top) == before


def test_a_shallow_clone_can_be_merged(top: Path) -> None:
    on(top, "main", {"a.py": "main\n"})
    on(top, "main", {"b.py": "main\n"})
    git(top.parent, "clone", "-q", "--depth=2", f"file://{top}", "shallow")
    shallow = top.parent / "shallow"
    git(shallow, "checkout", "-q", "-b", "change", "HEAD~1")
    commit(shallow, {"c.py": "c\n"})
    scratch, repository = scratch_of(shallow)
    made = scratch.merged([repository.revision("main")], repository.revision("change"))
    scratch.lay_out(made, top.parent / "tree")
    assert set(files(top.parent / "tree")) == {"a.py", "b.py", "c.py", "sub/c.py"}


def patch_of(top: Path, files: dict[str, str | None]) -> Path:
    """A diff of what `files` changes in main."""
    git(top, "checkout", "-q", "main")
    on(top, "main", files)
    diff = top.parent / "fix.diff"
    diff.write_text(git(top, "diff", "HEAD~1", "HEAD") + "\n", encoding="utf-8")
    git(top, "reset", "-q", "--hard", "HEAD~1")
    return diff


def test_a_diff_is_applied_to_what_lies_there(top: Path) -> None:
    diff = patch_of(top, {"a.py": TEXT.replace("line 3\n", "fixed\n"), "new.py": "n\n", "sub/c.py": None})
    scratch, repository = scratch_of(top)
    scratch.lay_out(repository.resolve("main"), top.parent / "tree")
    assert set(scratch.apply(diff, top.parent / "tree")) == {"a.py", "new.py", "sub/c.py"}
    assert files(top.parent / "tree") == {
        "a.py": TEXT.replace("line 3\n", "fixed\n"),
        "b.py": TEXT + "b\n",
        "new.py": "n\n",
    }


def test_a_diff_that_does_not_fit_is_named_with_file_and_line(top: Path) -> None:
    diff = patch_of(top, {"a.py": TEXT.replace("line 3\n", "fixed\n")})
    on(top, "main", {"a.py": "quite\nanother\n"})
    scratch, repository = scratch_of(top)
    scratch.lay_out(repository.resolve("main"), top.parent / "tree")
    with pytest.raises(GitError, match=r"fix\.diff does not apply: patch failed: a\.py:1"):
        scratch.apply(diff, top.parent / "tree")
    diff.write_text("no diff at all\n")
    with pytest.raises(GitError, match=r"fix\.diff does not apply"):
        scratch.apply(diff, top.parent / "tree")


def test_a_diff_applies_in_no_repository_too_and_inside_of_another(top: Path) -> None:
    diff = patch_of(top, {"sub/c.py": "c = 2\n"})
    shutil.copytree(top / "sub", top / "ignored" / "sub")  # a tree of files inside of the user's repository
    ScratchRepository(top.parent / "scratch").apply(diff, top / "ignored")
    assert (top / "ignored" / "sub" / "c.py").read_text() == "c = 2\n"


@pytest.mark.parametrize("cut", ["", "sub/", "[ab]/", "[ab]/sub/"])
def test_a_diff_may_be_told_from_the_top_or_from_the_folder(top: Path, cut: str) -> None:
    diff = patch_of(top, {"sub/c.py": "c = 2\n"})
    diff.write_text(
        re.sub(rf" {cut}" if cut.startswith("[") else cut, " " if cut.startswith("[") else "", diff.read_text())
    )
    scratch, _ = scratch_of(top)
    shutil.copytree(top / "sub", top.parent / "tree")
    assert scratch.apply(diff, top.parent / "tree", depth=1) == ["c.py"]
    assert (top.parent / "tree" / "c.py").read_text() == "c = 2\n"
