"""Parts of a report that must fit into a number of bytes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A text that can be shortened: `text(n)` shows n of its `size` items and says what it left out."""

    text: Callable[[int], str]
    size: int = 0
    expendable: int = 0  # parts with the greatest number are shortened first, together; 0: never
    keep: int = 0  # so many items stay until every part is down to what it keeps


def fixed(text: str) -> Part:
    """A part that is always shown whole."""
    return Part(lambda _: text)


def fit(parts: Sequence[Part], limit: int) -> str | None:
    """The parts joined by blank lines in at most `limit` bytes of UTF-8, or None if that can't be done.

    The most expendable parts give up items, the longest of them first, until the whole fits; then the next.
    """
    shown = [part.size for part in parts]
    ranks = sorted({part.expendable for part in parts if part.expendable}, reverse=True)
    for rank, keeping in [*((rank, True) for rank in ranks), *((rank, False) for rank in ranks)]:
        if _length(parts, shown) <= limit:
            break
        least = [part.keep if keeping else 0 for part in parts]
        shown = _capped(parts, shown, [part.expendable == rank for part in parts], least, limit)
    return _joined(parts, shown) if _length(parts, shown) <= limit else None


def _capped(
    parts: Sequence[Part], shown: Sequence[int], meant: Sequence[bool], least: Sequence[int], limit: int
) -> list[int]:
    """`shown` with the greatest common bound on the parts meant with which all fit; at least `least` of each."""

    def bounded(bound: int) -> list[int]:
        numbers = zip(shown, meant, least, strict=True)
        return [min(number, max(bound, floor)) if mine else number for number, mine, floor in numbers]

    low, high = 0, max(number for number, mine in zip(shown, meant, strict=True) if mine)
    while low < high:
        middle = (low + high + 1) // 2
        if _length(parts, bounded(middle)) <= limit:
            low = middle
        else:
            high = middle - 1
    return bounded(low)


def _joined(parts: Sequence[Part], shown: Sequence[int]) -> str:
    texts = (part.text(number).strip("\n") for part, number in zip(parts, shown, strict=True))
    return "\n\n".join(text for text in texts if text) + "\n"


def _length(parts: Sequence[Part], shown: Sequence[int]) -> int:
    return len(_joined(parts, shown).encode())
