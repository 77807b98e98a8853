"""Data of ours as JSON and back, for what one run keeps for the next: the same code writes and reads it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints


def to_plain(value: Any) -> Any:
    """Dataclasses as objects, sets sorted, tuples as lists; everything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _hints(type(value))}
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: Any, data: Any) -> Any:
    """The inverse of `to_plain`, for the annotation `kind`. Raises KeyError, TypeError or ValueError on other data."""
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{name: from_plain(hint, data[name]) for name, hint in _hints(kind).items()})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        kinds = [one for one in arguments if one is not types.NoneType]
        return data if data is None or len(kinds) > 1 else from_plain(kinds[0], data)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(data) if arguments[0] in _PLAIN else tuple(from_plain(arguments[0], item) for item in data)
    if origin is tuple:
        return tuple(from_plain(one, item) for one, item in zip(arguments, data, strict=True))
    if origin is frozenset:
        return frozenset(data)
    if origin is Mapping and arguments[1] not in _PLAIN:
        return {name: from_plain(arguments[1], item) for name, item in data.items()}
    return data


_PLAIN = (str, int, float, bool, Any)


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
