"""Settings of pytest that differ between two trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlora_verify.harness.suite_diff.settings import changed_settings

PROJECT = '[tool.pytest.ini_options]\naddopts = "-q"\nxfail_strict = true\nmarkers = ["gpu"]\n'
INI = "[pytest]\naddopts = -q\n  -x\nfilterwarnings = error\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("pyproject.toml", PROJECT, PROJECT, []),
        ("pyproject.toml", PROJECT, PROJECT.replace("true", "false"), ["xfail_strict (pyproject.toml)"]),
        ("pyproject.toml", PROJECT, PROJECT.replace('["gpu"]', '["gpu", "slow"]'), []),
        ("pyproject.toml", PROJECT, "[tool]", ["addopts (pyproject.toml)", "xfail_strict (pyproject.toml)"]),
        ("pyproject.toml", "", PROJECT.replace("= true", "="), []),
        ("pytest.ini", INI, INI.replace("  -x", "    -x"), []),
        ("pytest.ini", INI, INI.replace("error", "ignore"), ["filterwarnings (pytest.ini)"]),
        ("setup.cfg", "[tool:pytest]\naddopts = -q\n", "[tool:other]\n", ["addopts (setup.cfg)"]),
        ("setup.cfg", "[pytest]\naddopts = -q\n", "[pytest]\n", []),
        ("tox.ini", "no section", "[pytest]\naddopts = %(x\n", ["addopts (tox.ini)"]),
    ],
)
def test_settings_with_other_values(tmp_path: Path, file: str, old: str, new: str, changed: list[str]) -> None:
    for name, text in (("base", old), ("head", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    assert changed_settings(tmp_path / "base", tmp_path / "head") == changed


def test_trees_without_settings(tmp_path: Path) -> None:
    assert changed_settings(tmp_path, tmp_path) == []
