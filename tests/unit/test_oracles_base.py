"""What oracles answer with: verdicts from figures, texts, JSON."""

import json
import math

import pytest

from fastlora_verify.oracles.base import (
    Figure,
    NotRunError,
    OracleResult,
    judged,
    measured,
    one_line,
    told,
)
from fastlora_verify.reports.decode import decode
from fastlora_verify.reports.record import Figure as FigureRecord

GREEN = Figure("dX", 1.2339, 2.0, "x PEFT's error", True)
RED = Figure("dX, seed 11", 4.93, 2.0, "x PEFT's error", False)
REPORTED = Figure("median", 1.0)


def test_one_red_figure_makes_the_answer_red_and_is_its_summary():
    answer = judged("float64", "swiglu", [GREEN, RED, REPORTED], "fine")
    assert answer.ok is False
    assert answer.summary == "dX, seed 11: 4.93 x PEFT's error (limit 2)"


def test_the_summary_counts_the_other_red_figures():
    assert judged("float64", "swiglu", [RED, GREEN, RED, RED], "fine").summary.endswith("(and 2 more)")


def test_green_needs_a_figure_that_was_judged():
    assert judged("float64", "swiglu", [GREEN, REPORTED], "fine").ok is True
    assert judged("float64", "swiglu", [REPORTED], "fine").ok is None
    assert judged("float64", "swiglu", [], "fine").ok is None


def test_not_run_says_why():
    answer = judged("float64", "swiglu", [Figure("nf4", "not run: no CUDA device")], "fine")
    assert (answer.ok, answer.summary) == (None, "not run: no CUDA device")


def test_a_row_that_raises_is_a_red_figure_with_the_first_line_of_its_text():
    def raises():
        raise RuntimeError("mat1 and mat2 differ\nsecond line")

    (figure,) = measured("3-D", raises)
    assert (figure.ok, figure.value) == (False, "RuntimeError: mat1 and mat2 differ")


def test_a_row_that_cannot_run_here_is_neither_red_nor_green():
    def missing():
        raise NotRunError("no CUDA device")

    (figure,) = measured("cuda", missing)
    assert (figure.ok, figure.value) == (None, "not run: no CUDA device")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_row_does_not_swallow_an_interruption(stop):
    def stops():
        raise stop

    with pytest.raises(stop):
        measured("3-D", stops)


def test_exceptions_are_told_in_one_line_of_bounded_length():
    assert one_line(ValueError("")) == "ValueError: "
    assert len(one_line(ValueError("x" * 1000))) == 200


@pytest.mark.parametrize(
    "figure, words",
    [
        (Figure("saved", 611_844_096, 611_844_096, "B", True), "saved: 611,844,096 B (limit 611,844,096)"),
        (Figure("median", 1.0), "median: 1"),
        (Figure("row", "AddBackward0", "kernel", ok=False), "row: AddBackward0 (limit kernel)"),
    ],
)
def test_figures_in_words(figure, words):
    assert told(figure) == words


def test_answers_are_json_with_nothing_that_json_cannot_say():
    figures = (GREEN, Figure("nan", math.nan, 2.0, ok=False), Figure("inf", math.inf), Figure("word", "x", None))
    answer = OracleResult("float64", "swiglu", False, "red", figures)
    text = json.dumps(answer.as_json(), allow_nan=False)
    assert json.loads(text)["figures"][:2] == [
        {"name": "dX", "value": 1.2339, "limit": 2.0, "unit": "x PEFT's error", "ok": True},
        {"name": "nan", "value": "nan", "limit": 2.0, "unit": "", "ok": False},
    ]


def test_a_record_can_be_read_again_whatever_a_figure_holds():
    for value in (True, False, 3, 0.5, "word", None):
        plain = Figure("f", value, limit=value).as_json()
        assert decode(FigureRecord, {**plain}, "figure").value == value
