"""A record is written whole, and what is no file is written to, never replaced."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from fastlora_verify.harness.recording import save


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    save("one", path)
    save("two", path)
    assert path.read_text() == "two"
    assert [entry.name for entry in path.parent.iterdir()] == ["record.json"]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()), daemon=True)
    reader.start()
    save("text", path)
    reader.join(10)
    assert read == ["text"]
    assert stat.S_ISFIFO(path.stat().st_mode)
