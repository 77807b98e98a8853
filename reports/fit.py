"""Parts of a report that must fit into a number of bytes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A text that can be shortened: `text(n)` shows n of its `size` items and says what it left out."""

    text: Callable[[int], str]
    size: int = 0
    expendable: int = 0  # parts with the greatest number are shortened first; 0: never
    keep: int = 0  # so many items stay until every part is down to what it keeps


def fixed(text: str) -> Part:
    """A part that is always shown whole."""
    return Part(lambda _: text)


def fit(parts: Sequence[Part], limit: int) -> str | None:
    """The parts joined by blank lines in at most `limit` bytes of UTF-8, or None if that can't be done.

    The most expendable part gives up items until the whole fits, then the next one.
    """
    shown = [part.size for part in parts]
    order = sorted((i for i, part in enumerate(parts) if part.expendable), key=lambda i: -parts[i].expendable)
    for index, least in [*((i, min(parts[i].keep, parts[i].size)) for i in order), *((i, 0) for i in order)]:
        if _length(parts, shown) <= limit:
            break
        shown[index] = _most(parts, shown, index, least, limit)
    return _joined(parts, shown) if _length(parts, shown) <= limit else None


def _most(parts: Sequence[Part], shown: Sequence[int], index: int, least: int, limit: int) -> int:
    """The greatest number of items of one part with which all fit; `least` if none does."""
    low, high = least, max(least, shown[index])
    while low < high:
        middle = (low + high + 1) // 2
        if _length(parts, [*shown[:index], middle, *shown[index + 1 :]]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _joined(parts: Sequence[Part], shown: Sequence[int]) -> str:
    texts = (part.text(number).strip("\n") for part, number in zip(parts, shown, strict=True))
    return "\n\n".join(text for text in texts if text) + "\n"


def _length(parts: Sequence[Part], shown: Sequence[int]) -> int:
    return len(_joined(parts, shown).encode())
