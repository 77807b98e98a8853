"""Tests as pytest collected them, and those of two trees set against each other: ids, arms, marks.

An arm is one set of parameters of a test. An arm of the base goes on in the head under the same id, or under another
id with the same values, or as an arm of a new parameter: `test_x[a]` as `test_x[a-float32]`, where the test has one
parameter more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SKIPPING = ("skip", "skipif", "xfail")

# Values whose text says what they are: numbers, words, dtypes, and lists of these.
_ATOM = r"(?:-?[\d.]+(?:e[+-]?\d+)?|True|False|None|'[^']*'|\"[^\"]*\"|torch\.\w+|<class '[\w.]+'>|<function \S+>)"
_TOLD = re.compile(rf"[\[(]?(?:{_ATOM}(?:, )?)+,?[\])]?")


@dataclass(frozen=True)
class Item:
    """One collected test."""

    test: str  # pytest's id
    function: str = ""  # the id without parameters
    file: str | None = None  # in the copy
    defined: tuple[str, str] | None = None  # file and scope of the function
    param: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)  # of its parameters, as text
    marks: tuple[tuple[str, str], ...] = ()
    selected: bool = True  # False: the target's own pytest arguments leave it out


@dataclass(frozen=True)
class Collection:
    """What pytest collected in one tree."""

    items: tuple[Item, ...]
    errors: tuple[tuple[str, str], ...] = ()  # (file or class that isn't collected, why)
    skipped: tuple[tuple[str, str], ...] = ()  # (file that skips itself, why)
    foreign: tuple[str, ...] = ()  # modules of the target that came from elsewhere than the tree
    failed: str = ""  # why nothing could be collected at all, such as a conftest.py that doesn't import

    @property
    def selected(self) -> int:
        """How many tests would run."""
        return sum(item.selected for item in self.items)

    def functions(self) -> dict[str, list[Item]]:
        """The items by test function, as they were collected."""
        found: dict[str, list[Item]] = {}
        for item in self.items:
            found.setdefault(item.function, []).append(item)
        return found


@dataclass(frozen=True)
class Arms:
    """The arms of one test before and after."""

    kept: tuple[tuple[Item, Item], ...] = ()  # the same id, or the same but for the test's name
    continued: tuple[tuple[Item, Item], ...] = ()
    changed: tuple[tuple[Item, Item], ...] = ()  # the same id for other values
    removed: tuple[Item, ...] = ()
    added: tuple[Item, ...] = ()


def arms(old: Sequence[Item], new: Sequence[Item]) -> Arms:
    """Where each arm of a test goes on."""
    kept, continued, changed, removed = [], [], [], []
    by_param = {item.param: item for item in new}
    used: set[str] = set()
    late: list[Item] = []
    for item in old:
        same = by_param.get(item.param)
        if same is not None and _values(item) == _values(same):
            kept.append((item, same))
            used.add(same.test)
        else:
            late.append(item)
    for item in late:
        twin = _twin(item, [other for other in new if other.test not in used])
        if twin is not None:
            continued.append((item, twin))
            used.add(twin.test)
            continue
        wider = [other for other in new if _widens(item, other)]
        if wider:
            continued.append((item, wider[0]))
            used.add(wider[0].test)
        elif by_param.get(item.param) is not None:
            changed.append((item, by_param[item.param]))
            used.add(by_param[item.param].test)
        else:
            removed.append(item)
    added = [item for item in new if item.test not in used]
    return Arms(tuple(kept), tuple(continued), tuple(changed), tuple(removed), tuple(added))


def _values(item: Item) -> dict[str, str]:
    """The values that can be told by their text."""
    return {name: text for name, text in item.values.items() if _TOLD.fullmatch(text)}


def _twin(item: Item, others: Sequence[Item]) -> Item | None:
    """The arm with the same parameters and values, under another id."""
    if not item.values or len(_values(item)) < len(item.values):
        return None
    return next((other for other in others if other.values == item.values), None)


def _widens(item: Item, other: Item) -> bool:
    """Whether `other` has a parameter more and is otherwise this arm."""
    if not item.values.keys() < other.values.keys():
        return False
    told = _values(item)
    if any(other.values[name] != text for name, text in told.items()):
        return False
    if len(told) == len(item.values):
        return True
    mine, theirs = (Counter((one.param or "").split("-")) for one in (item, other))
    return mine <= theirs


def skips_added(old: Item, new: Item) -> list[tuple[str, str]]:
    """Marks that skip or excuse the test, which it had not."""
    before = Counter(name for name, _ in old.marks if name in SKIPPING)
    found = []
    for name, text in new.marks:
        if name in SKIPPING:
            if before[name]:
                before[name] -= 1
            else:
                found.append((name, text))
    return found


def marker_names(item: Item) -> Counter[str]:
    """Marks that say what a test needs or is; how often each."""
    plain = ("usefixtures", "filterwarnings", *SKIPPING)
    return Counter(name for name, _ in item.marks if name not in plain)
