"""An oracle's answers on a changed kernel against those on the unchanged one: every sort of difference, and none."""

from __future__ import annotations

from typing import Any

import pytest

from fastlora_verify.harness.runner.drift import compared, has_figures


def figure(value: Any, ok: bool | None = None, **more: Any) -> dict[str, Any]:
    """A figure of the name `f`."""
    return {"name": "f", "value": value, "limit": None, "unit": "", "ok": ok, **more}


def answer(*figures: dict[str, Any], ok: bool | None = True, summary: str = "fine") -> dict[str, Any]:
    """An answer with these figures."""
    return {"oracle": "o", "kernel": "k", "ok": ok, "summary": summary, "figures": list(figures)}


def verdict(before: dict[str, Any], after: dict[str, Any]) -> tuple[bool | None, str]:
    """What is said of the changed kernel."""
    (found,) = compared([before], [after])
    assert found["compared"] is True
    return found["ok"], found["summary"]


ROW = {"3-D": "kernel", "2-D": "AddBackward0", "autocast": "raised RuntimeError: x"}
HANDED_BACK = "not run: the call was handed back to PEFT"

DIFFERENT = {
    "an objection that was none": (figure(1.0, True), figure(3.5, False), "f: 3.5; unmutated 1"),
    "an objection where PEFT ran": (figure(HANDED_BACK), figure(3.5, False), f"f: 3.5; unmutated {HANDED_BACK}"),
    "handed back where it ran": (figure(1.0, True), figure(HANDED_BACK), f"f: {HANDED_BACK}; unmutated 1"),
    "another count": (figure(8, drift=0), figure(9, drift=0), "f: 9; unmutated 8"),
    "another, smaller count": (figure(8, drift=0), figure(7, drift=0), "f: 7; unmutated 8"),
    "past its drift": (figure(1.2, True, drift=1.1), figure(1.4, True, drift=1.1), "f: 1.4; unmutated 1.2"),
    "a NaN": (figure(1.2, True, drift=1.1), figure("nan", None, drift=1.1), "f: nan; unmutated 1.2"),
    "fp32 where float64 was": (figure(4e-16, True, drift=1e3), figure(6e-7, True, drift=1e3), "f: 6e-07; unmutated"),
    "worse than bad": (figure(3.0, False), figure(30.0, False), "f: 30; unmutated 3"),
    "a cell handed back": (figure(1, cells=ROW), figure(1, cells={**ROW, "3-D": "AddBackward0"}), "f, 3-D: Add"),
    "a cell that raises": (figure(1, cells=ROW), figure(1, cells={**ROW, "2-D": "raised X: y"}), "f, 2-D: raised X: y"),
    "no row any more": (figure(1, True, cells=ROW), figure("not run: left"), "f: not run: left; unmutated 1"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_difference_is_seen(case: str) -> None:
    before, after, told = DIFFERENT[case]
    ok, summary = verdict(answer(before), answer(after))
    assert ok is False
    assert summary.startswith(told)


SAME = {
    "itself": (figure(1.0, True), figure(1.0, True)),
    "another number under its limit": (figure(1.0, True), figure(1.9, True)),
    "taken where it was handed back": (figure(HANDED_BACK), figure(1.0, True)),
    "within its drift": (figure(1.2, True, drift=1.1), figure(1.3, True, drift=1.1)),
    "better than its drift": (figure(1.2, True, drift=1.1), figure(0.2, True, drift=1.1)),
    "as bad as it was": (figure(3.0, False), figure(3.1, False)),
    "rounding in another order": (figure(0.0, True, drift=1e3), figure(4e-16, True, drift=1e3)),
    "a lucky seed that is one no more": (figure(1.9, True), figure(2.1)),
    "an objection gone": (figure(3.0, False), figure(1.0, True)),
    "a word that was told": (figure("kept"), figure("lost")),
    "a cell taken": (figure(1, cells=ROW), figure(1, cells={**ROW, "2-D": "kernel"})),
    "a cell repaired": (figure(1, cells=ROW), figure(1, cells={**ROW, "autocast": "kernel"})),
}


@pytest.mark.parametrize("case", SAME)
def test_what_is_no_difference_is_none(case: str) -> None:
    before, after = SAME[case]
    rest = {**figure(1.0, True), "name": "rest"}
    assert verdict(answer(before, rest), answer(after, rest)) == (True, "as the unmutated kernel")


def test_figures_belong_together_by_their_keys() -> None:
    before = {**figure(1.0, True, key="seed 3"), "name": "seed 3: dX"}
    after = {**figure(9.0, False, key="seed 3"), "name": "seed 3: dB of gate"}
    assert verdict(answer(before), answer(after)) == (False, "seed 3: dB of gate: 9; unmutated 1")


def test_a_figure_that_is_gone_is_a_difference_with_its_reason() -> None:
    lost = {**figure("RuntimeError: no", False), "name": "whole"}
    ok, summary = verdict(answer(figure(1.0, True)), answer(lost))
    assert ok is False and summary == "whole: RuntimeError: no (and 1 more)"
    ok, summary = verdict(answer(figure(1.0, True)), answer({**figure("not run: left"), "name": "whole"}))
    assert ok is False and summary == "f: not measured any more (not run: left)"
    ok, summary = verdict(answer(figure(1.0, True)), answer(ok=None, summary="not run: importing k raises E"))
    assert ok is False and "not run: importing k raises E" in summary


def test_an_oracle_that_raises_is_a_difference_unless_it_did_before() -> None:
    raised = answer(ok=False, summary="raised E")
    assert verdict(answer(ok=None, summary="x"), raised) == (False, "raised E")
    assert verdict(raised, raised)[0] is None


def test_nothing_measured_is_no_verdict() -> None:
    silent = answer(figure(HANDED_BACK), ok=None, summary=HANDED_BACK)
    assert verdict(silent, silent) == (None, HANDED_BACK)
    assert not has_figures(silent)
    assert has_figures(answer(figure(8, drift=0), ok=None)) and has_figures(answer())


def test_an_answer_without_a_fellow_stays_as_it_is() -> None:
    other = {**answer(), "oracle": "another"}
    assert compared([answer()], [other]) == (other,)
