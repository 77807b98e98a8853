"""Revisions are read right, and the repository is left byte for byte as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import commit, git, hashes, new_repository

from fastlora_verify.harness.errors import GitError
from fastlora_verify.harness.trees.git import Change, Repository, top_of

TEXT = "".join(f"line {number}\n" for number in range(9))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = new_repository(tmp_path / "top")
    commit(top, {"a.py": TEXT, "sub/b.py": "b = 1\n", "gone.py": "g = 1\n"}, "first")
    git(top, "tag", "v1")
    commit(top, {"a.py": None, "renamed.py": TEXT, "sub/b.py": "b = 2\n", "gone.py": None, "né w.py": "n\n"}, "second")
    return top


def test_the_top_is_found_from_a_folder_inside(repository: Path) -> None:
    assert Repository.around(repository / "sub").top == repository.resolve()


def test_a_folder_in_no_repository_is_said_to_be_none(tmp_path: Path) -> None:
    assert top_of(tmp_path) is None
    with pytest.raises(GitError, match="is in no git repository"):
        Repository.around(tmp_path)


@pytest.mark.parametrize("rev", ["main", "HEAD", "v1", "v1^{commit}", "HEAD~1"])
def test_a_revision_is_resolved_as_git_does(repository: Path, rev: str) -> None:
    assert Repository(repository).resolve(rev) == git(repository, "rev-parse", f"{rev}^{{commit}}")


@pytest.mark.parametrize("rev", ["", "nothing", "--all", "v1..main", "HEAD:a.py", "HEAD^{tree}", "a\nb"])
def test_what_is_no_commit_is_refused(repository: Path, rev: str) -> None:
    with pytest.raises(GitError, match="is no revision of"):
        Repository(repository).resolve(rev)


def test_files_and_blobs_at_a_revision(repository: Path) -> None:
    repo = Repository(repository)
    assert repo.file_at("v1", "sub/b.py") == b"b = 1\n"
    assert repo.file_at("main", "gone.py") is None
    assert repo.file_at("main", "sub") is None
    assert set(repo.blobs("main")) == {"renamed.py", "sub/b.py", "né w.py"}
    assert repo.blobs("v1", ["sub"]) == {"sub/b.py": git(repository, "rev-parse", "v1:sub/b.py")}


def test_changes_tell_renames_and_deletions(repository: Path) -> None:
    assert Repository(repository).changes("v1", "main") == [
        Change("D", "gone.py", "gone.py"),
        Change("A", "né w.py", "né w.py"),
        Change("R", "renamed.py", "a.py"),
        Change("M", "sub/b.py", "sub/b.py"),
    ]


def test_how_two_commits_lie_to_each_other(repository: Path) -> None:
    repo = Repository(repository)
    assert (repo.missing("v1", "main"), repo.missing("main", "v1")) == (1, 0)
    assert repo.subject("v1") == "first"


def test_uncommitted_changes_are_listed_and_nothing_is_written(repository: Path) -> None:
    (repository / ".gitignore").write_text("ignored\n", encoding="utf-8")
    (repository / "ignored").write_text("", encoding="utf-8")
    (repository / "sub" / "b.py").write_text("b = 2\n", encoding="utf-8")  # of another time, with the same content
    (repository / "renamed.py").write_text("changed\n", encoding="utf-8")
    before = hashes(repository)
    assert set(Repository(repository).uncommitted()) == {".gitignore", "renamed.py"}
    assert hashes(repository) == before


def test_the_objects_of_a_linked_working_tree_are_those_of_its_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"), "v1")
    linked = Repository.around(tmp_path / "linked")
    assert linked.inside("objects") == (repository / ".git" / "objects").resolve()
    assert linked.resolve("HEAD") == git(repository, "rev-parse", "v1")
