"""pytest's own settings in a tree, where pytest looks for them."""

from __future__ import annotations

import configparser
import tomllib
from pathlib import Path

_INI = (("pytest.ini", "pytest"), (".pytest.ini", "pytest"), ("tox.ini", "pytest"), ("setup.cfg", "tool:pytest"))
_UNIMPORTANT = {"markers", "testpaths", "minversion"}  # names, and places that a target names itself


def changed_settings(base: Path, head: Path) -> list[str]:
    """Names of settings that the two trees have with other values, each with its file."""
    one, other = _settings(base), _settings(head)
    names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    return [f"{name} ({file})" for file, name in names]


def _settings(root: Path) -> dict[tuple[str, str], str]:
    found = {}
    for file, section in _INI:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(root / file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        if parser.has_section(section):
            found.update({(file, name): " ".join(value.split()) for name, value in parser.items(section)})
    found.update(_of_project(root / "pyproject.toml"))
    return {key: value for key, value in found.items() if key[1] not in _UNIMPORTANT}


def _of_project(path: Path) -> dict[tuple[str, str], str]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("pytest", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, AttributeError):
        return {}
    options = {**table.pop("ini_options", {}), **table} if isinstance(table, dict) else {}
    return {(path.name, name): repr(value) for name, value in options.items()}
