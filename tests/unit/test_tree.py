"""Scratch copies: what is copied, and that a copy always comes back to its master."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import target_of

from fastlora_verify.harness.targets.listing import files_of
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.tree import Copy, Master, make_master, snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "user"
    for name, text in {
        "src/pkg/__init__.py": "",
        "src/pkg/kernel.py": "x = 1\n",
        "src/pkg/run.sh": "#!/bin/sh\n",
        "tests/test_kernel.py": "def test(): pass\n",
        "data/deep/numbers.txt": "1 2 3\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "src/pkg/run.sh").chmod(0o755)
    (root / "data/deep/numbers.txt").chmod(0o444)
    (root / "link.txt").symlink_to("data/deep/numbers.txt")
    (root / "away").symlink_to(root / "data")
    return root


@pytest.fixture
def master(root: Path, tmp_path: Path) -> Master:
    return make_master(target_of(root), tmp_path / "master")


@pytest.fixture
def copy(master: Master, tmp_path: Path) -> Copy:
    return Copy(master, tmp_path / "w0")


def git(root: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-C", str(root), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_outside_of_git_everything_is_copied_but_caches_and_environments(root: Path) -> None:
    for name in ("src/__pycache__/x.pyc", ".fastlora-verify/run/a", ".git/HEAD", ".pytest_cache/a", "env/pyvenv.cfg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("no")
    (root / "here").mkdir()
    (root / "here" / "results").write_text("ours")
    os.mkfifo(root / "pipe")
    shutil.rmtree(root / ".git")  # an empty one would still be found by git
    assert files_of(root, root / "here") == [
        "away",
        "data/deep/numbers.txt",
        "link.txt",
        "src/pkg/__init__.py",
        "src/pkg/kernel.py",
        "src/pkg/run.sh",
        "tests/test_kernel.py",
    ]


def test_in_git_tracked_and_untracked_files_are_copied_not_ignored_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".gitignore").write_text("*.log\n")
    git(root, "init", "-q")
    git(root, "add", "src", ".gitignore")
    (root / "run.log").write_text("ignored")
    (root / "new ü.py").write_text("untracked")
    (root / "src/pkg/run.sh").unlink()
    nested = root / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "inner.py").write_text("in a repository of its own")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert files_of(root) == [
        ".gitignore",
        "away",
        "data/deep/numbers.txt",
        "link.txt",
        "nested/inner.py",
        "new ü.py",
        "src/pkg/__init__.py",
        "src/pkg/kernel.py",
        "tests/test_kernel.py",
    ]


def test_a_folder_that_git_ignores_is_copied_whole(root: Path) -> None:
    git(root, "init", "-q")
    (root / ".gitignore").write_text("tree/\n")
    (root / "tree").mkdir()
    (root / "tree" / "a.py").write_text("")
    assert files_of(root / "tree") == ["a.py"]


def test_places_are_put_over_the_root(root: Path, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    (extra / "__pycache__").mkdir(parents=True)
    (extra / "__pycache__" / "m.pyc").write_bytes(b"")
    (extra / "kernel.py").write_text("x = 2\n")
    target: Target = replace(target_of(root), place=(("src/pkg", extra), ("other/place", extra)))
    master = make_master(target, tmp_path / "m")
    assert (master.path / "src/pkg/kernel.py").read_text() == "x = 2\n"
    assert (master.path / "other/place/kernel.py").read_text() == "x = 2\n"
    assert (master.path / "src/pkg/__init__.py").exists()
    assert not list(master.path.rglob("*.pyc"))
    only = make_master(replace(target, root=None), tmp_path / "m2")
    assert [name for name, entry in sorted(only.entries.items()) if entry.kind == "file"] == [
        "other/place/kernel.py",
        "src/pkg/kernel.py",
    ]


def test_a_link_into_the_users_tree_leads_into_the_copy(root: Path, copy: Copy) -> None:
    (copy.path / "away" / "deep" / "new.txt").write_text("written through the link")
    assert not (root / "data" / "deep" / "new.txt").exists()
    assert (copy.path / "data" / "deep" / "new.txt").exists()
    assert (copy.path / "link.txt").read_text() == "1 2 3\n"


def test_modes_and_times_are_copied(root: Path, copy: Copy) -> None:
    for name in ("src/pkg/run.sh", "data/deep/numbers.txt"):
        ours, theirs = (copy.path / name).stat(), (root / name).stat()
        assert (ours.st_mode, ours.st_mtime_ns) == (theirs.st_mode, theirs.st_mtime_ns)


def test_an_untouched_copy_needs_no_repair(copy: Copy) -> None:
    assert copy.restore() == []


def changed(path: Path) -> None:
    (path / "src/pkg/kernel.py").write_text("x = 2\n")


def changed_with_the_old_time(path: Path) -> None:
    file = path / "src/pkg/kernel.py"
    before = file.stat()
    file.write_text("x = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def removed(path: Path) -> None:
    shutil.rmtree(path / "data")


def added(path: Path) -> None:
    (path / "src/pkg/sub").mkdir()
    (path / "src/pkg/sub/new.py").write_text("")
    (path / "src/pkg/sub").chmod(0o000)


def made_a_folder(path: Path) -> None:
    (path / "src/pkg/kernel.py").unlink()
    (path / "src/pkg/kernel.py").mkdir()
    (path / "src/pkg/kernel.py/inner").write_text("")


def made_a_link(path: Path) -> None:
    shutil.rmtree(path / "src")
    (path / "src").symlink_to("data")


def redirected(path: Path) -> None:
    (path / "link.txt").unlink()
    (path / "link.txt").symlink_to("src/pkg/kernel.py")


def locked(path: Path) -> None:
    (path / "src/pkg/kernel.py").chmod(0o000)
    (path / "src/pkg").chmod(0o500)


def shared_the_inode(path: Path) -> None:
    os.link(path / "src/pkg/kernel.py", path.parent / "outside.py")


def piped(path: Path) -> None:
    (path / "src/pkg/kernel.py").unlink()
    os.mkfifo(path / "src/pkg/kernel.py")


DAMAGES = (
    changed,
    changed_with_the_old_time,
    removed,
    added,
    made_a_folder,
    made_a_link,
    redirected,
    locked,
    shared_the_inode,
    piped,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_every_damage_is_repaired(copy: Copy, master: Master, damage: Callable[[Path], None]) -> None:
    damage(copy.path)
    assert copy.restore()
    assert snapshot(copy.path).keys() == master.entries.keys()
    for name, entry in snapshot(copy.path).items():
        assert (entry.kind, entry.mode, entry.content) == (
            master.entries[name].kind,
            master.entries[name].mode,
            master.entries[name].content,
        )
    assert all(info.st_nlink == 1 for info in map(os.lstat, copy.path.rglob("*")) if not stat.S_ISDIR(info.st_mode))
    assert copy.restore() == []


def test_a_touched_file_is_told_unchanged_and_gets_its_time_back(copy: Copy, master: Master) -> None:
    (copy.path / "src/pkg/kernel.py").touch()
    assert copy.restore() == []
    time = (copy.path / "src/pkg/kernel.py").stat().st_mtime_ns
    assert time == master.entries["src/pkg/kernel.py"].mtime_ns


def test_a_mutant_is_written_beside_shared_inodes_and_keeps_the_mode(copy: Copy, master: Master) -> None:
    outside = copy.path.parent / "outside.sh"
    os.link(copy.path / "src/pkg/run.sh", outside)
    copy.write("src/pkg/run.sh", b"mutant\r\n")
    copy.write("link.txt", b"not through the link")
    copy.write("src/new/file.py", b"a file that the master lacks")
    assert (copy.path / "src/pkg/run.sh").read_bytes() == b"mutant\r\n"
    assert stat.S_IMODE((copy.path / "src/pkg/run.sh").stat().st_mode) == 0o755
    assert outside.read_text() == "#!/bin/sh\n"
    assert (copy.path / "data/deep/numbers.txt").read_text() == "1 2 3\n"
    outside.unlink()
    assert sorted(copy.restore()) == ["link.txt", "src/new", "src/new/file.py", "src/pkg/run.sh"]
    assert (master.path / "src/pkg/run.sh").read_text() == "#!/bin/sh\n"


def test_the_master_does_not_follow_the_user(root: Path, copy: Copy) -> None:
    (root / "src/pkg/kernel.py").write_text("edited meanwhile\n")
    changed(copy.path)
    copy.restore()
    assert (copy.path / "src/pkg/kernel.py").read_text() == "x = 1\n"


def test_the_digest_depends_on_paths_contents_and_modes_alone(root: Path, tmp_path: Path) -> None:
    def digest(name: str) -> str:
        return make_master(target_of(root), tmp_path / name).digest

    first = digest("m1")
    os.utime(root / "src/pkg/kernel.py", (1, 1))
    assert digest("m2") == first
    (root / "src/pkg/kernel.py").chmod(0o755)
    second = digest("m3")
    assert second != first
    (root / "src/pkg/kernel.py").write_text("x = 3\n")
    third = digest("m4")
    (root / "src/pkg/kernel.py").rename(root / "src/pkg/kernels.py")
    assert len({first, second, third, digest("m5")}) == 4


@pytest.mark.parametrize(
    ("original", "text", "data"),
    [
        (b"x = 1\r\n", "x = 2\r\n", b"x = 2\r\n"),
        ("# ü\n".encode(), "# ü2\n", "# ü2\n".encode()),
        (b"# -*- coding: latin-1 -*-\n# \xfc\n", "# -*- coding: latin-1 -*-\n# ü2\n", None),
        (b"\xef\xbb\xbfx = 1\n", "x = 2\n", b"\xef\xbb\xbfx = 2\n"),
        (b"\xef\xbb\xbfx = 1\n", "\ufeffx = 2\n", b"\xef\xbb\xbfx = 2\n"),
    ],
    ids=["crlf", "utf-8", "latin-1", "bom", "bom in the text"],
)
def test_a_mutant_has_the_encoding_of_its_file(
    root: Path, tmp_path: Path, original: bytes, text: str, data: bytes | None
) -> None:
    (root / "src/pkg/kernel.py").write_bytes(original)
    master = make_master(target_of(root), tmp_path / "m")
    wanted = data if data is not None else text.encode("latin-1")
    assert master.encode("src/pkg/kernel.py", text) == wanted
