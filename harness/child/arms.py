"""The arms of a test: its parametrised items, those that differ in the seed alone taken together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SEED = re.compile(r"^seed|(^|_)seeds?$")
_OF_ONE_VALUE = ("skip", "skipif", "xfail")  # marks that a test gives one seed, and not all


@dataclass(frozen=True)
class Arm:
    """Items that differ in nothing but the value of `argument`; one item where no argument is a seed."""

    items: tuple[Any, ...]
    argument: str  # "": none of its arguments is a seed

    @property
    def id(self) -> str:
        """The first item's id: the same in every process that collects the same tests."""
        return str(self.items[0].nodeid)

    @property
    def label(self) -> str:
        """The id with the argument's name where the seed stands."""
        tests = [item.nodeid for item in self.items]
        if not self.argument:
            return self.id
        parts = [test.partition("[")[2].removesuffix("]").split("-") for test in tests]
        values = [str(item.callspec.params[self.argument]) for item in self.items]
        for place in range(min(map(len, parts))):
            if all(part[place] == value for part, value in zip(parts, values, strict=True)):
                words = [*parts[0][:place], self.argument, *parts[0][place + 1 :]]
                return f"{self.id.partition('[')[0]}[{'-'.join(words)}]"
        return self.id

    def at(self, seed: int) -> Any:
        """The item that has this seed, else one whose seed is made this one."""
        if not self.argument:
            return self.items[0]
        for item in self.items:
            if item.callspec.params[self.argument] == seed:
                return item
        plain = [item for item in self.items if not _marked(item)]
        item = (plain or self.items)[0]
        item.callspec.params[self.argument] = seed
        return item


def arms_of(items: Sequence[Any]) -> list[Arm]:
    """The arms of all functions among `items`, in their order."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        argument = _seed_argument(item)
        key = (item.nodeid.partition("[")[0], argument, *_others(item, argument)) if argument else (item.nodeid,)
        groups.setdefault(key, []).append(item)
    return [Arm(tuple(group), _seed_argument(group[0])) for group in groups.values()]


def is_taken(item: Any, argument: str, seed: int) -> bool:
    """Whether the item, set up, was given the seed; True where a fixture makes something of its own of it."""
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs.get(argument, ())  # noqa: B009
    direct = bool(definitions) and definitions[-1].func.__name__ == "get_direct_param_fixture_func"
    given = item.funcargs.get(argument) if direct else item.callspec.params[argument]
    return bool(given == seed)


def _seed_argument(item: Any) -> str:
    params = getattr(getattr(item, "callspec", None), "params", {})
    names = [name for name, value in params.items() if _SEED.search(name) and type(value) is int]
    return "seed" if "seed" in names else next(iter(names), "")


def _others(item: Any, argument: str) -> tuple[Any, ...]:
    """What tells an item from its siblings but for the seed: values, which stacked parametrisations share."""
    mates = _mates(item, argument)  # their values are written anew in each row
    params = sorted(item.callspec.params.items())
    return tuple((name, repr(value) if name in mates else id(value)) for name, value in params if name != argument)


def _mates(item: Any, argument: str) -> set[str]:
    """Arguments that the same `parametrize` gives values to."""
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        if argument in words:
            return set(words)
    return set()


def _marked(item: Any) -> bool:
    return any(mark.name in _OF_ONE_VALUE for mark in getattr(item.callspec, "marks", ()))
