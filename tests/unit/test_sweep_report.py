"""The report of a sweep: one line first, worst and median, harmless text, short enough for a comment."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hostile_text import HOSTILE, assert_harmless

from fastlora_verify.harness.exit_code import of_sweep
from fastlora_verify.reports.record import Environment, RecordError, Section
from fastlora_verify.reports.sweep_record import (
    Arm,
    Distribution,
    Measured,
    Run,
    SweepColumn,
    SweepRecord,
    dumps,
    from_json,
)
from fastlora_verify.reports.sweep_text import LIMIT, figure, render, summary

TAGS = {"h2", "h3", "p", "strong", "em", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "pre"}
TAGS |= {"details", "summary"}


def run(seed: int, **changes: object) -> Run:
    measured = Measured(value=1.0 + seed / 100, limit=2.0, unit="x", close=0.5 + seed / 200, source="e <= 2 * p")
    return replace(Run(number=seed, outcome="passed", seconds=0.2, measured=measured), **changes)  # type: ignore[arg-type]


def failing(seed: int, value: float) -> Run:
    measured = Measured(value=value, limit=2.0, unit="x", close=value / 2)
    message = "dX: kernel error 2 exceeds\nassert 2 <= 1"
    return run(seed, outcome="failed", measured=measured, exception="AssertionError", message=message)


def sweep(*arms: Arm, **changes: object) -> SweepRecord:
    column = SweepColumn(id="head:cpu", device="cpu", source="working tree", tests="working tree", arms=arms)
    record = SweepRecord(
        tool_version="0.1.0",
        command=("fastlora-verify", "sweep", "test_nf4"),
        started_at="2026-01-02T03:04:05+00:00",
        seconds=9.0,
        target="t",
        test="test_nf4",
        unit="seed",
        environment=Environment(python="3.11.2"),
        columns=(column,),
        saved_as="sweep.json",
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def nineteen() -> Arm:
    runs = tuple(failing(5, 2.07) if seed == 5 else run(seed) for seed in range(20))
    spread = Distribution(label="dX", lowest=0.5, median=1.0, highest=1.7, highest_at=7)
    return Arm(test="a.py::f[3]", label="a.py::f[seed]", way="argument", argument="seed", runs=runs, printed=(spread,))


def test_the_first_line_says_how_many_and_which_by_how_much() -> None:
    text = render(sweep(nineteen()))
    assert text.splitlines()[2] == "`a.py::f[seed]`: **19 of 20** seeds pass; seed 5 fails at 2.07x (limit 2x)."
    assert "Farthest over a limit: seed 5 at 2.07x (limit 2x); the median of 20 runs: 1.1x (limit 2x), in" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[1].startswith(
        "| 5 | **failed** | 0.20 | 2.07x (limit 2x) | `AssertionError: dX: kernel error 2 exceeds`"
    )
    assert "| `dX` | 0.5 | 1 | 1.7 (seed 7) |" in text
    assert "each seed is the value of its argument `seed`" in text


def test_a_run_whose_assertions_measure_nothing_has_the_highest_that_it_prints() -> None:
    runs = (run(0, measured=None, highest=1.23, highest_label="dX"), run(1, highest=1.23, highest_label="dX"))
    text = render(sweep(Arm(test="f", label="f", runs=runs)))
    assert "| 0 | passed | 0.20 | 1.23 (`dX`) |" in text
    assert "| 1 | passed | 0.20 | 1.01x (limit 2x) |" in text


def test_several_assertions_have_a_row_each_with_the_nearest_run() -> None:
    def held(seed: int) -> tuple[Measured, ...]:
        twice = Measured(value=1 + seed / 10, limit=2.0, unit="x", close=0.5 + seed / 20, source="a <= 2 * b")
        return (twice, Measured(value=0.1, limit=1.0, close=0.1, source="c < 1"))

    arm = Arm(test="f", label="f", runs=tuple(run(seed, held=held(seed)) for seed in range(5)))
    assert "| `a <= 2 * b` | 5 | 1.2x (limit 2x) | 1.4x (limit 2x), seed 4 |" in render(sweep(arm))
    alone = Arm(test="f", label="f", runs=tuple(run(seed, held=held(seed)[:1]) for seed in range(5)))
    assert "| assertion |" not in render(sweep(alone))


def test_repetitions_that_all_pass() -> None:
    arm = Arm(test="f", label="f", way="repeat", runs=tuple(run(n, measured=None) for n in range(1, 7)))
    assert summary(arm, "run") == "**6 of 6** runs pass"


@pytest.mark.parametrize(
    ("runs", "told", "status"),
    [
        ([run(1), run(2)], "**2 of 2** seeds pass", 0),
        ([run(1), run(2, outcome="xfailed")], "**2 of 2** seeds pass", 0),
        ([run(1), run(2, outcome="skipped", message="no card")], "**1 of 1** seeds pass; 1 skipped or not run", 0),
        ([run(1, outcome="skipped", message="no card")], "not run: no card", 5),
        ([run(1, outcome="timeout", measured=None)], "**0 of 1** seeds pass; seed 1 times out", 1),
        ([run(1), run(2, outcome="crash", measured=None)], "**1 of 2** seeds pass; seed 2 crashes", 1),
        ([run(1, outcome="error", measured=None)], "**0 of 1** seeds pass; seed 1 errors", 1),
        ([failing(n, 3.0) for n in range(9)], "; seed 5 fails at 3x (limit 2x); 3 more fail", 1),
    ],
)
def test_every_outcome_is_counted_once_and_decides_the_status(runs: list[Run], told: str, status: int) -> None:
    arm = Arm(test="f", label="f", runs=tuple(runs))
    assert summary(arm, "seed").endswith(told)
    assert of_sweep(sweep(arm)) == status


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (Measured(value=2.0661, limit=2.0, unit="x"), "2.07x (limit 2x)"),
        (Measured(value=1.9999, limit=2.0), "1.9999 (limit 2)"),
        (Measured(value=2.0, limit=2.0), "2 (limit 2)"),
        (Measured(value=0.95, limit=0.9, least=True), "0.95 (at least 0.9)"),
        (Measured(value=20064.0, limit=33376.0), "20,064 (limit 33,376)"),
        (Measured(value=2.71, unit="x"), "2.71x"),
        (None, ""),
    ],
)
def test_a_figure_never_shows_as_its_limit_what_is_not(measured: Measured | None, told: str) -> None:
    assert figure(measured) == told


def test_the_record_survives_json_and_another_version_is_refused() -> None:
    record = sweep(nineteen(), mutant="m@a:f")
    data = json.loads(dumps(record))
    assert (data["kind"], data["schema_version"]) == ("sweep", 1)
    assert from_json(data) == record
    with pytest.raises(RecordError, match="schema version 2"):
        from_json({**data, "schema_version": 2})


@pytest.mark.parametrize("text", HOSTILE)
def test_what_the_target_says_is_harmless(text: str) -> None:
    held = (Measured(value=1, source=text), Measured(value=1, source=f"{text}!"))
    printed = (Section(title=text, text=text),)
    runs = tuple(failing(seed, 2.0) for seed in range(2))
    runs = tuple(replace(one, message=text, exception=text, printed=printed, held=held) for one in runs)
    runs = (*runs, run(9, measured=None, highest=1.0, highest_label=text))
    spread = Distribution(label=text, lowest=0, median=0, highest=0, highest_at=0)
    arm = Arm(test=text, label=text, way="shift", argument=text, given=(text,), runs=runs, printed=(spread,))
    record = sweep(arm, test=text, target=text, mutant=text, command=(text,), saved_as=text)
    column = replace(record.columns[0], id=text, notes=(text,), source=text, tests=f"{text}!", source_rev=text)
    for limit in (LIMIT, 3000):
        assert_harmless(render(replace(record, columns=(column, column)), limit, output=True), TAGS)


def test_a_long_sweep_fits_and_says_what_is_left_out() -> None:
    section = (Section(title="Captured stdout call", text="ratio 1.0\n" * 200),)
    arms = [
        replace(nineteen(), label=f"a.py::f[{n}]", runs=tuple(run(s, printed=section) for s in range(300)))
        for n in range(9)
    ]
    text = render(sweep(*arms), output=True)
    assert len(text.encode()) <= LIMIT
    assert "left out to fit into a comment; all of them are in `sweep.json`" in text
    assert text.count("**300 of 300** seeds pass") == 9
