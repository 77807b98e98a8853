"""What is installed, as a digest that kept results depend on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastlora_verify.harness.child.environment import installed


def test_a_library_edited_in_place_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    layer = tmp_path / "peft" / "tuners" / "layer.py"
    layer.parent.mkdir(parents=True)
    layer.write_text("scaling = 1\n")
    before = installed()["installed"]
    assert installed()["installed"] == before
    layer.write_text("scaling = 22\n")
    assert installed()["installed"] != before


def test_what_python_writes_by_itself_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "peft" / "__pycache__").mkdir(parents=True)
    before = installed()["installed"]
    (tmp_path / "peft" / "__pycache__" / "layer.py").write_text("compiled")
    assert installed()["installed"] == before
