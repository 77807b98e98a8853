"""Numbers in assertions and in what tests print."""

from __future__ import annotations

import pytest

from fastlora_verify.harness.child.figures import of_comparison, of_failure
from fastlora_verify.harness.child.printed import sections_within, shortened
from fastlora_verify.harness.sweep.labelled import distributions, highest, labelled


@pytest.mark.parametrize(
    ("explained", "value", "limit", "unit", "close"),
    [
        ("2.07 <= 2.0", 2.07, 2.0, "", 1.035),
        ("0.00414 <= (2 * 0.002071)", 1.999, 2, "x", 0.9995),
        ("0.00414 <= ((2.0 * 0.002071) + 1e-08)", 1.999, 2, "x", 0.9995),
        ("0.00414 < (0.002071 * 2)", 1.999, 2, "x", 0.9995),
        ("(2 * 0.002071) >= 0.00414", 1.999, 2, "x", 0.9995),
        ("tensor(0.0021, dtype=torch.float64) <= (1.05 * tensor(0.0021, grad_fn=<MaxBackward1>))", 1, 1.05, "x", 0.952),
        # What is added outweighs the multiple: it is no rule about multiples here.
        ("2e-09 <= ((2 * 1.5e-12) + 1e-08)", 2e-9, 1.0003e-8, "", 0.2),
        ("5.0 <= (3.25 * 1.5)", 1.538, 1.5, "x", 1.0256),
        ("20064 < 33376", 20064, 33376, "", 0.601),
        ("0.95 >= 0.9", 0.95, 0.9, "", 0.947),
        ("0.9 <= 0.95", 0.9, 0.95, "", 0.947),
        ("0.25 == 0.2 ± 0.1", 0.05, 0.1, "", 0.5),
        ("(1e-3 <= 2e-3 and 'a' in 'ab')\n +  where 1e-3 = f()", 1e-3, 2e-3, "", 0.5),
    ],
)
def test_a_comparison_has_a_value_a_limit_and_how_near_it_is(
    explained: str, value: float, limit: float, unit: str, close: float
) -> None:
    for text in (explained, f"assert {explained}"):
        (figure,) = of_comparison(text)
        assert (figure.value, figure.limit, figure.unit) == (pytest.approx(value, rel=1e-3), pytest.approx(limit), unit)
        assert figure.close == pytest.approx(close, rel=1e-2)


@pytest.mark.parametrize(
    "explained",
    [
        "'a' < 'b'",
        "3 == 4",
        "True",
        "x <= 2",
        "nan <= 2",
        "inf <= 2.0",
        "1e999 <= 2.0",
        "(",
        "tensor([1, 2]) < 3",
        "a" * 9999,
    ],
)
def test_what_is_no_comparison_of_numbers_has_no_figure(explained: str) -> None:
    assert of_comparison(explained) == []


@pytest.mark.parametrize(
    ("message", "value", "limit", "unit"),
    [
        ("dX: too far\nassert 0.0037 <= ((2.0 * 0.0017) + 1e-08)", 2.176, 2.0, "x"),
        ("seed 5 is at 2.07x PEFT's error\nassert False", 2.07, None, "x"),
        ("seed 5 is at 2.07x PEFT's error\nassert 0.3 < 0.1", 2.07, None, "x"),
        ("assert 0.3 < 0.1\n +  where 0.3 = f()", 0.3, 0.1, ""),
        (
            "Tensor-likes are not close!\n\nGreatest absolute difference: 0.5 at index (0,) (up to 1e-05 allowed)",
            0.5,
            1e-5,
            "",
        ),
        ("Not equal to tolerance\nMax absolute difference among violations: 0.25\nMax relative", 0.25, None, ""),
    ],
)
def test_a_failure_has_the_figure_that_its_text_says(
    message: str, value: float, limit: float | None, unit: str
) -> None:
    figure = of_failure(message)
    assert figure is not None
    assert (figure.value, figure.unit) == (pytest.approx(value, rel=1e-3), unit)
    assert figure.limit == limit


@pytest.mark.parametrize("message", ["", "shapes 6 x 12 and 3x4 differ", "assert 'a' == 'b'", "no kernel"])
def test_a_failure_without_a_figure_has_none(message: str) -> None:
    assert of_failure(message) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ratio 1.23", {"ratio": [1.23]}),
        ("NF4 ratios: [('output', 1.0), ('input gradient', 1.5e-1)]", {"output": [1.0], "input gradient": [0.15]}),
        ("#9 Llama-3.1 bytes: peft=611844096 fast=7", {"peft": [611844096.0], "fast": [7.0]}),
        ("worst dX 1.70x (limit 2x)\nworst dX 1.5x", {"worst dX": [1.7, 1.5], "limit": [2.0]}),
        ("{'x': -1.5}", {"x": [-1.5]}),
        ("sha 12ab v1.2.3; 7 of 9", {"of": [9.0]}),
        ("1.5 2.5", {}),
    ],
)
def test_numbers_are_told_by_the_words_before_them(text: str, found: dict[str, list[float]]) -> None:
    assert labelled(text) == found


def test_only_a_label_of_every_run_has_a_distribution_and_the_seed_itself_has_none() -> None:
    runs = [(3, ["seed 3", "ratio 1.0"]), (7, ["seed 7 ratio 1.8", "extra 5"]), (11, ["seed 11", "ratio 1.2"])]
    (ratio,) = distributions(runs)
    assert (ratio.label, ratio.lowest, ratio.median, ratio.highest, ratio.highest_at) == ("ratio", 1.0, 1.2, 1.8, 7)
    assert distributions(runs[:1]) == ()
    assert highest(["extra 5 ratio 1.8", "ratio 1.9"], ["ratio"]) == (1.9, "ratio")
    assert highest(["extra 5"], ["ratio"]) == (None, "")
    assert distributions([*runs, (13, [""])]) == ()


def test_what_is_printed_is_kept_as_a_terminal_would_show_it_and_shortened_in_its_middle() -> None:
    assert shortened("\x1b[31mred\x1b[0m\n 1%\r 50%\r100%\r\n", 100) == "red\n100%"
    text = shortened("a" * 600 + "b" * 600, 100)
    assert text == "a" * 50 + "\n… 1,100 characters left out …\n" + "b" * 50
    sections = sections_within(
        [
            ("Captured stdout call", "x" * 300),
            ("Captured log call", "y" * 3),
            ("empty", " \n"),
            ("here", "/copy/src/a.py:3"),
        ],
        "/copy",
        100,
    )
    assert [title for title, _ in sections] == ["Captured stdout call", "Captured log call", "here"]
    assert sections[2][1] == "src/a.py:3"
    assert "268 characters left out" in sections[0][1]
    assert sections[1][1] == "yyy"
