"""Numbers in what tests print, by the words before them: `ratio 1.23`, `peft=33376`, `('output', 1.0)`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median

from fastlora_verify.reports.sweep_record import Distribution

MOST = 24  # labels

_NUMBER = re.compile(r"(?<![\w.#])(?<!\w[-\[])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]*[^\W\dx×]|[.\d])")
_LABEL = re.compile(r"([^\W\d][\w .*/%-]*?)[\"')\]]*\s*(?:[:=,]|->)?\s*[\[({]*$")
_LONGEST = 60  # characters of a label


def labelled(text: str) -> dict[str, list[float]]:
    """Every number with a label, in the order in which they are printed."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        end = 0
        for match in _NUMBER.finditer(line):
            label = _LABEL.search(line[end : match.start()])
            end = match.end()
            if label is not None and len(label.group(1)) <= _LONGEST:
                found.setdefault(label.group(1).strip(), []).append(float(match.group()))
    return found


def highest(texts: Iterable[str], labels: Iterable[str]) -> tuple[float | None, str]:
    """The highest number under one of these labels, and its label."""
    found = labelled("\n".join(texts))
    values = [(value, label) for label in labels for value in found.get(label, ())]
    return max(values, key=lambda pair: pair[0]) if values else (None, "")


def distributions(runs: Sequence[tuple[int, Iterable[str]]]) -> tuple[Distribution, ...]:
    """Of (number, texts) of runs: the labels that each of them has, with the spread of all their values."""
    told = [(number, labelled("\n".join(texts))) for number, texts in runs]
    if len(told) < 2:
        return ()
    common = [label for label in told[0][1] if all(label in found for _, found in told[1:])]
    spread = []
    for label in common:
        values = [(value, number) for number, found in told for value in found[label]]
        if all(value == number for value, number in values):  # it prints its seed
            continue
        highest, at = max(values, key=lambda pair: pair[0])
        numbers = [value for value, _ in values]
        spread.append(
            Distribution(label=label, lowest=min(numbers), median=median(numbers), highest=highest, highest_at=at)
        )
    return tuple(spread[:MOST])
