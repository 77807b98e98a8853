"""Which collected test a word of the command line means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastlora_verify.harness.errors import NothingToRun, UsageError

_NEAREST = 4


@dataclass(frozen=True)
class Item:
    """One collected test, as `child/sweep.py` tells of it."""

    test: str  # pytest's node id
    arm: str  # the id of the first item that differs in the seed alone
    argument: str  # its argument that is a seed
    label: str
    select: str  # the function, as an argument of pytest

    @property
    def function(self) -> str:
        """The id without its parameters."""
        return self.test.partition("[")[0]


def items_in(lines: Iterable[Mapping[str, Any]]) -> list[Item]:
    """The items of the child's answer."""
    return [Item(**item) for line in lines if line["event"] == "items" for item in line["items"]]


def meant(test: str, items: Sequence[Item], *, seeded: bool) -> list[Item]:
    """The items that `test` means: an id, an id without its parameters, or the end of one.

    `seeded`: an arm is one for all its seeds. Otherwise each item is an arm of its own.
    Raises NothingToRun with the nearest ids if there is none, UsageError if it means several tests.
    """
    function, bracket, parameters = test.partition("[")
    named = [item for item in items if _ends(item.function, function)]
    exact = [item for item in named if not bracket or item.test.partition("[")[2] == parameters]
    functions = list(dict.fromkeys(item.function for item in exact))
    if len(functions) > 1:
        precise = [name for name in functions if name == function]
        if not precise:
            raise UsageError(f"{test} means {len(functions)} tests; give one of them: {_some(functions)}")
        exact = [item for item in exact if item.function in precise]
    if not exact:
        _none(test, named, items)
    if not seeded:
        return [replace(item, arm=item.test, argument="", label=item.test) for item in exact]
    arms = {item.arm for item in exact}
    return [item for item in items if item.arm in arms]


def _ends(function: str, word: str) -> bool:
    """One is the other or the end of it, in whole words: a path may be given from anywhere."""
    longer, shorter = sorted((function, word), key=len, reverse=True)
    return longer == shorter or (longer.endswith(shorter) and (longer[: -len(shorter)]).endswith(("/", "::")))


def _none(test: str, named: Sequence[Item], items: Sequence[Item]) -> None:
    below = [item.function for item in items if item.function.startswith((f"{test}::", f"{test.rstrip('/')}/"))]
    if below:
        tests = list(dict.fromkeys(below))
        raise UsageError(f"{test} holds {len(tests)} tests; give one of them: {_some(tests)}")
    if named:  # the test is there, its parameters are not
        raise NothingToRun(f"no test {test}; it has {_some([item.test for item in named])}")
    ids = list(dict.fromkeys(item.function for item in items))
    short = {name.rpartition("::")[2]: name for name in reversed(ids)}
    word = test.partition("[")[0]
    near = difflib.get_close_matches(word, ids, _NEAREST, 0.6)
    near += [short[name] for name in difflib.get_close_matches(word.rpartition("::")[2], list(short), _NEAREST, 0.6)]
    near = list(dict.fromkeys(near))[:_NEAREST]
    raise NothingToRun(f"no test {test} among the {len(ids)} collected" + (f"; nearest: {_some(near)}" if near else ""))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NEAREST} more" if len(names) > _NEAREST else ""
    return ", ".join(names[:_NEAREST]) + more
