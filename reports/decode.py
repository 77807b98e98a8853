"""JSON data into dataclasses, checked against their annotations."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class RecordError(ValueError):
    """The data is not a run record that this version reads; the message is one sentence."""


def decode(kind: Any, value: Any, where: str) -> Any:
    """`value` as an instance of the annotation `kind`; `where` names the place in messages.

    Knows dataclasses, `tuple[T, ...]`, `Mapping[str, T]`, `T | None`, unions of scalars, Literal and scalars.
    A name that the dataclass lacks is ignored: a later release with the same schema version may add some.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if origin in (types.UnionType, Union):
        return _decode_union(arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise RecordError(f"{where} is {value!r}, allowed: {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        items = enumerate(_list(value, where))
        return tuple(decode(arguments[0], item, f"{where}[{i}]") for i, item in items)
    if origin is Mapping:
        return {key: decode(arguments[1], item, f"{where}.{key}") for key, item in _dict(value, where).items()}
    return _decode_scalar(kind, value, where)


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    data, got = _dict(value, where), {}
    for name, hint, is_required in _fields(kind):
        if name in data:
            got[name] = decode(hint, data[name], f"{where}.{name}")
        elif is_required:
            raise RecordError(f"{where} has no {name!r}")
    return kind(**got)


@cache
def _fields(kind: type[Any]) -> list[tuple[str, Any, bool]]:
    """Name, annotation, and whether it must be there. A record has thousands of instances of few kinds."""
    hints = get_type_hints(kind)
    return [
        (one.name, hints[one.name], one.default is MISSING and one.default_factory is MISSING) for one in fields(kind)
    ]


def encode(value: Any) -> Any:
    """Dataclasses as dicts, down to the last, as `dataclasses.asdict` gives them, and in a third of the time."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if is_dataclass(kind):
        return {name: encode(getattr(value, name)) for name, _, _ in _fields(kind)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return kind(map(encode, value))
    return value


_SCALARS = frozenset({str, int, float, bool, types.NoneType})


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    rest = [kind for kind in kinds if kind is not types.NoneType]
    if value is None and len(rest) < len(kinds):
        return None
    if len(rest) == 1:
        return decode(rest[0], value, where)
    if type(value) not in rest:
        raise RecordError(f"{where} is {value!r}, not of type {' or '.join(kind.__name__ for kind in rest)}")
    return value


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise RecordError(f"{where} is {value!r}, not of type {kind.__name__}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise RecordError(f"{where} is not a list")
    return list(value)


def _dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RecordError(f"{where} is not an object")
    return value
