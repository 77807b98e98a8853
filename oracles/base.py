"""What an oracle is, what it is asked and what it answers: plain data, all of it fit for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastlora_verify.kernels.missing import MissingLibraryError

if TYPE_CHECKING:
    from fastlora_verify.kernels.info import KernelInfo

Value = float | int | str | None


@dataclass(frozen=True)
class Fixture:
    """The small SwiGLU block that the 2x rule is measured on; the default is the review's NF4 fixture."""

    widths: tuple[int, int] = (8, 12)  # hidden, intermediate
    shape: tuple[int, ...] = (2, 3)  # leading dimensions of the input
    rank: int = 2
    alpha: int = 4
    sibling_scale: float = 4.0  # the up projection's weight is multiplied by it before quantising
    b_std: float = 0.2  # lora_B is drawn from a normal distribution of this width


@dataclass(frozen=True)
class Options:
    """What a caller may choose. Fields that an oracle has no use for are ignored by it."""

    seeds: tuple[int, ...] | None = None  # None: the oracle's own
    device: str = "cpu"
    quick: bool = False  # the smallest run that is still a verdict: a mutant's column
    fixture: Fixture | None = None  # None: the oracle's own


@dataclass(frozen=True)
class Figure:
    """One measured number (or word). `ok` is None where it is reported and not judged.

    The rest is for a comparison with the same figure of another kernel, a mutant's with the unmutated one's:
    `key` where the name itself says more than which figure it is; `drift`, the factor by which it may exceed the
    other (0: it must be equal; None: only the verdict counts); `cells`, a row of a matrix call by call.
    """

    name: str
    value: Value
    limit: Value = None
    unit: str = ""
    ok: bool | None = None
    key: str = ""
    drift: float | None = None
    cells: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The figure as a JSON object; a float that JSON has no word for becomes a string."""
        return {
            "name": self.name,
            "value": _plain(self.value),
            "limit": _plain(self.limit),
            "unit": self.unit,
            "ok": self.ok,
            **({"key": self.key} if self.key else {}),
            **({"drift": self.drift} if self.drift is not None else {}),
            **({"cells": dict(self.cells)} if self.cells else {}),
        }


@dataclass(frozen=True)
class OracleResult:
    """An oracle's answer for one kernel. `ok` None: not run, and `summary` says why."""

    oracle: str
    kernel: str
    ok: bool | None
    summary: str
    figures: tuple[Figure, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The answer as a JSON object."""
        return {
            "oracle": self.oracle,
            "kernel": self.kernel,
            "ok": self.ok,
            "summary": self.summary,
            "figures": [figure.as_json() for figure in self.figures],
        }


@dataclass(frozen=True)
class Oracle:
    """A check of a kernel against something independent of it."""

    id: str
    title: str
    sees: str
    blind_to: str
    check: Callable[[KernelInfo, Options], OracleResult]


class NotRunError(Exception):
    """This oracle, or one of its rows, cannot be had here; the text says what is missing."""


def one_line(error: BaseException) -> str:
    """An exception as `Type: first line of its text`, at most 200 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def judged(oracle: str, kernel: str, figures: list[Figure], passed: str) -> OracleResult:
    """The answer that `figures` amount to: red if one is, "not run" if none was judged, else `passed`.

    A check that judged nothing must not read as a success.
    """
    red = [figure for figure in figures if figure.ok is False]
    if red:
        more = f" (and {len(red) - 1} more)" if len(red) > 1 else ""
        return OracleResult(oracle, kernel, False, told(red[0]) + more, tuple(figures))
    if not any(figure.ok for figure in figures):
        missing = [figure for figure in figures if isinstance(figure.value, str)]
        reason = str(missing[0].value) if missing else "not run: nothing to judge"
        if passed and any(figure.drift is not None and not isinstance(figure.value, str) for figure in figures):
            reason = f"told, not judged: {passed}"
        return OracleResult(oracle, kernel, None, reason, tuple(figures))
    return OracleResult(oracle, kernel, True, passed, tuple(figures))


def told(figure: Figure) -> str:
    """A figure in words: `dX, seed 11: 4.93 x PEFT's error (limit 2)`."""
    value, limit = _short(figure.value), _short(figure.limit)
    unit = f" {figure.unit}" if figure.unit else ""
    end = f" (limit {limit})" if figure.limit is not None else ""
    return f"{figure.name}: {value}{unit}{end}"


def _short(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(value: Value) -> Value:
    if isinstance(value, bool):  # a record's values are numbers and words
        return int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def measured(name: str, measure: Callable[[], list[Figure]]) -> list[Figure]:
    """The figures of one row. What the kernel raises there is the row's finding; the other rows still run."""
    try:
        return measure()
    except (NotRunError, MissingLibraryError) as reason:
        return [Figure(name, f"not run: {reason}")]
    except Exception as error:
        return [Figure(name, one_line(error), ok=False)]
