"""A folder that is discarded is gone at once, and what was in it soon."""

from __future__ import annotations

import threading
from pathlib import Path

from fastlora_verify.harness.runner.discarded import discard


def test_a_discarded_folder_is_gone_and_its_place_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    for round_ in range(3):
        folder.mkdir()
        (folder / "deep").mkdir()
        (folder / "deep/file").write_text(str(round_))
        discard(folder)
        assert not folder.exists()
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        if not thread.daemon:
            thread.join(5)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_discarded_already(tmp_path: Path) -> None:
    discard(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
