"""Files that only spare work are whole or absent, and never a reason to fail."""

from __future__ import annotations

import os
from pathlib import Path

from fastlora_verify.harness.spared import drop_oldest, write_spared


def test_a_file_is_put_in_its_place_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_spared(path, b"one")
    write_spared(path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    write_spared(tmp_path / "file" / "a.json", b"one")
    (tmp_path / "folder.json").mkdir()
    write_spared(tmp_path / "folder.json", b"one")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder.json"]


def test_the_oldest_go(tmp_path: Path) -> None:
    for age, name in enumerate(("c.json", "b.json", "a.json")):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    drop_oldest(tmp_path, 2)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b.json", "c.json"]
    drop_oldest(tmp_path / "missing", 2)
