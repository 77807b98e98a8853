"""An oracle's answers on a changed kernel against those on the unchanged one, figure by figure. Pure data.

Of a kernel that is only described nothing is declared: its unchanged figures are what a changed one is held to. A
figure is a difference where

- it is an objection, and the unchanged one is none;
- the unchanged kernel was measured there, and the changed one is not: it hands back, or does not get so far;
- a call of the matrix went through the unchanged kernel and goes elsewhere, or came to something else again;
- it exceeds the unchanged one by more than the figure's own `drift` (0: it is not the same);
- both are objections, and it is worse by a tenth.

A call that only the changed kernel takes is none by itself: whether it takes it rightly, the numbers say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastlora_verify.harness.child.answers import NODE

Answer = Mapping[str, Any]
WORSE = 1.1
FLOOR = 1e-13
"""What float64's own rounding makes of some hundred terms: a figure under it is as good as 0."""


def compared(unchanged: Sequence[Answer], changed: Sequence[Answer]) -> tuple[Answer, ...]:
    """The changed kernels' answers, `ok` False where there is a difference, and `compared` set."""
    before = {(answer["oracle"], answer["kernel"]): answer for answer in unchanged}
    return tuple(
        _compared(before[answer["oracle"], answer["kernel"]], answer)
        if (answer["oracle"], answer["kernel"]) in before
        else answer
        for answer in changed
    )


def _compared(before: Answer, after: Answer) -> Answer:
    old, new = _by_key(before), _by_key(after)
    told = {key: _difference(key, old, new, after) for key in {**new, **old}}  # what is there before what is missing
    red = {key: text for key, text in told.items() if text}
    if not red and after.get("ok") is False and before.get("ok") is not False and not new:
        red = {"": str(after.get("summary"))}  # the oracle itself raised
    figures = [dict(figure, ok=False) if _key(figure) in red else figure for figure in after.get("figures", ())]
    if red:
        more = f" (and {len(red) - 1} more)" if len(red) > 1 else ""
        return {**after, "ok": False, "summary": next(iter(red.values())) + more, "figures": figures, "compared": True}
    said = any(_is_measured(figure) for figure in old.values())
    summary = "as the unmutated kernel" if said else after.get("summary", "")
    return {**after, "ok": True if said else None, "summary": summary, "compared": True}


def has_figures(answer: Answer) -> bool:
    """Whether an answer says anything of its kernel that a changed one could be compared with."""
    return answer.get("ok") is not None or any(map(_is_measured, answer.get("figures", ())))


def _key(figure: Mapping[str, Any]) -> str:
    return str(figure.get("key") or figure["name"])


def _by_key(answer: Answer) -> dict[str, Mapping[str, Any]]:
    return {_key(figure): figure for figure in answer.get("figures", ())}


def _is_measured(figure: Mapping[str, Any]) -> bool:
    """Whether a figure says something of the kernel: judged, or to be compared."""
    return figure.get("ok") is not None or figure.get("drift") is not None or bool(figure.get("cells"))


def _difference(
    key: str, old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]], after: Answer
) -> str:
    """What is different in one figure, in words; empty if nothing is."""
    was, now = old.get(key), new.get(key)
    if now is None:
        return f"{key}: not measured any more ({_reason(new, after)})" if was and _is_measured(was) else ""
    if was is None:
        return _told(now) if now.get("ok") is False else ""
    if was.get("cells") or now.get("cells"):
        return _cells(key, was, now)
    if was.get("ok") is not False and now.get("ok") is False:
        return f"{_told(now)}; unmutated {_value(was)}"
    if _is_measured(was) and not _is_measured(now) and isinstance(now.get("value"), str):
        return f"{key}: {_value(now)}; unmutated {_value(was)}"
    if _exceeds(was, now):
        return f"{key}: {_value(now)}; unmutated {_value(was)}"
    return ""


def _cells(key: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    before, after = was.get("cells") or {}, now.get("cells") or {}
    if before and not after:
        return f"{key}: {_value(now)}; unmutated {_value(was)}" if NODE in before.values() else ""
    for call, cell in before.items():
        then = after.get(call, "not made")
        if then != cell and then != NODE:
            return f"{key}, {call}: {then}; unmutated {cell}"
    return ""


def _exceeds(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a figure is worse than its drift allows; of two objections, by a tenth."""
    old, new, drift = was.get("value"), now.get("value"), was.get("drift")
    if drift == 0:
        return bool(old != new)
    both_red = was.get("ok") is False and now.get("ok") is False
    factor = WORSE if drift is None and both_red else drift
    least, most = _number(old), _number(new)
    if factor is None or least is None:
        return False
    if most is None:
        return drift is not None or str(new) in ("nan", "inf")
    return most > factor * max(least, FLOOR)


def _number(value: object) -> float | None:
    """A value as a finite number; None for a word and for what JSON has a word for."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _reason(figures: Mapping[str, Mapping[str, Any]], answer: Answer) -> str:
    """Why a figure is missing: the first other figure that is a word, or what the oracle says as a whole."""
    words = [str(f["value"]) for f in figures.values() if isinstance(f.get("value"), str) and not _is_measured(f)]
    failed = [str(f["value"]) for f in figures.values() if isinstance(f.get("value"), str) and f.get("ok") is False]
    return (failed or words or [str(answer.get("summary", ""))])[0]


def _told(figure: Mapping[str, Any]) -> str:
    unit = f" {figure['unit']}" if figure.get("unit") else ""
    return f"{figure['name']}: {_value(figure)}{unit}"


def _value(figure: Mapping[str, Any]) -> str:
    value = figure.get("value")
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
