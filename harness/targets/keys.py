"""Tables of a TOML file, read key by key: every error names file, key, what stands there and what may."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import TargetError


class Keys:
    """One table. Each reader takes its key; `finish` refuses what nothing took.

    `name`, once it is known, tells one of several like tables in the errors.
    """

    name = ""

    def __init__(self, file: Path, where: str, data: Any) -> None:
        if not isinstance(data, Mapping):
            raise TargetError(file, f"found {shown(data)}", key=where, allowed="a table")
        self.file, self.where = file, where
        self._data = dict(data)
        self._taken: list[str] = []

    def text(self, key: str, default: str | None = None) -> str:
        """A string that isn't empty."""
        value = self._take(key, default)
        if not isinstance(value, str) or (not value.strip() and default is None):
            raise self.error(key, f"found {shown(value)}", "a string that is not empty")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string that isn't empty, or None where the key is missing."""
        self._mark(key)
        return self.text(key) if key in self._data else None

    def texts(self, key: str, *, default: Sequence[str] | None = None, some: bool = False) -> tuple[str, ...]:
        """A list of strings that aren't empty; with `some`, at least one."""
        value = self._take(key, None if default is None else list(default))
        rule = "a list of strings" + (", at least one" if some else "")
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, f"found {shown(value)}", rule)
        if some and not value:
            raise self.error(key, "found an empty list", rule)
        return tuple(value)

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of a few words."""
        value = self.text(key)
        if value not in allowed:
            raise self.error(key, f"found {shown(value)}", ", ".join(allowed))
        return value

    def strings(self, key: str) -> dict[str, str]:
        """A table of strings; empty where the key is missing."""
        inner = self._take(key, {})
        if not isinstance(inner, Mapping) or not all(isinstance(value, str) for value in inner.values()):
            raise self.error(key, f"found {shown(inner)}", "a table of strings")
        return dict(inner)

    def tables(self, key: str, *, some: bool = False) -> list[Keys]:
        """A list of tables, `[[key]]` in TOML."""
        value = self._take(key, None if some else [])
        if not isinstance(value, list) or (some and not value):
            raise self.error(key, f"found {shown(value)}", f"one or more [[{key}]] tables")
        return [Keys(self.file, f"{self._path(key)}[{i}]", item) for i, item in enumerate(value)]

    def table(self, key: str) -> Keys:
        """A table that must be there."""
        return Keys(self.file, self._path(key), self._take(key, None))

    def finish(self) -> None:
        """Refuses every key that no reader has asked for."""
        for key in self._data:
            if key not in self._taken:
                near = difflib.get_close_matches(key, self._taken, n=1, cutoff=0.6)
                problem = "unknown key" + (f", did you mean {near[0]!r}?" if near else "")
                raise self.error(key, problem, ", ".join(self._taken))

    def error(self, key: str, problem: str, allowed: str = "") -> TargetError:
        """The error to raise about one key of this table."""
        of = f" of {self.name!r}" if self.name else ""
        return TargetError(self.file, problem, key=self._path(key) + of, allowed=allowed)

    def _take(self, key: str, default: Any) -> Any:
        self._mark(key)
        if key not in self._data and default is None:
            raise self.error(key, "is missing")
        return self._data.get(key, default)

    def _mark(self, key: str) -> None:
        self._taken.append(key)

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key


def shown(value: object) -> str:
    """A value in a message, short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
