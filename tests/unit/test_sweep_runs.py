"""One test under many seeds: what a plain pytest says of a copy in which the seeds are edited is the truth."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from runner_trees import CPU, copy_of, mutant_of, options_for, target_of

from fastlora_verify.harness.child.arms import is_taken
from fastlora_verify.harness.plan import Column
from fastlora_verify.harness.sweep.run import Ask, sweep_column
from fastlora_verify.reports.sweep_record import Arm, SweepColumn

pytestmark = pytest.mark.slow  # runs of the tool

FILE = "tests/test_swept.py"


def content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def swept(folder: Path, ask: Ask, **changes: object) -> SweepColumn:
    root = folder / "swept" if (folder / "swept").exists() else copy_of("swept", folder)
    before = content(root)
    column, _ = sweep_column(target_of(root, "drawn"), ask, CPU, options_for(folder, **changes), lambda _: None)
    assert content(root) == before
    return column


def outcomes(arm: Arm) -> dict[int, str]:
    return {run.number: run.outcome for run in arm.runs}


def plainly(folder: Path, edits: dict[str, str], test: str) -> dict[str, str]:
    """What plain pytest says of a test on an edited copy: parameters to outcome."""
    root = copy_of("swept", folder)
    path = root / FILE
    text = path.read_text()
    for old, new in edits.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    path.write_text(text)
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-P", "-B", "-m", "pytest", "-rA", "-p", "no:cacheprovider", f"{FILE}::{test}"]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    found = re.findall(rf"^(PASSED|FAILED|XFAIL|XPASS) \S*::{test.rpartition('::')[2]}(\S*)", done.stdout, re.MULTILINE)
    assert found, done.stdout
    return {parameters: word.lower() for word, parameters in found}


def test_the_values_of_the_argument_are_replaced_by_the_seeds_in_every_arm(tmp_path: Path) -> None:
    seeds = (0, 1, 2, 3, 4, 5, 13)
    column = swept(tmp_path / "a", Ask(f"{FILE}::test_argument", (FILE,), seeds))
    assert (column.mode, column.notes) == ("fork", ())
    assert [arm.label.partition("[")[2] for arm in column.arms] == ["seed-slow]", "seed-fast]"]
    edit = {"[3, pytest.param(5, marks=pytest.mark.xfail), 7]": str([*seeds[:5], 13])}
    truth = plainly(tmp_path / "b", edit, "test_argument")
    assert set(truth.values()) == {"passed", "failed"}
    for arm, rate in zip(column.arms, ("slow", "fast"), strict=True):
        assert (arm.way, arm.argument) == ("argument", "seed")
        mine = {f"[{seed}-{rate}]": outcome for seed, outcome in outcomes(arm).items() if seed != 5}
        assert mine == {name: outcome for name, outcome in truth.items() if rate in name}
        # The mark of one seed's own row stays with that seed.
        assert outcomes(arm)[5] in ("xfailed", "xpassed")
        for run in arm.runs:
            assert run.measured is not None or run.outcome == "xfailed"


def test_a_failure_and_the_nearest_comparison_have_their_figures_and_prints_their_spread(tmp_path: Path) -> None:
    column = swept(tmp_path, Ask(f"{FILE}::test_argument[3-fast]", (FILE,), tuple(range(8))))
    (arm,) = column.arms
    truth = {seed: 3.0 * random.Random(seed).random() for seed in range(8)}
    for run in arm.runs:
        if run.outcome in ("passed", "failed"):
            assert run.measured is not None
            assert (run.measured.value, run.measured.limit) == (pytest.approx(truth[run.number] / 0.9), 2.0)
            assert (run.outcome == "failed") == (truth[run.number] > 1.8)
            assert f"fast ratio {truth[run.number]}" in run.printed[0].text
    good = [truth[run.number] for run in arm.runs if run.outcome == "passed"]
    (ratio,) = arm.printed
    assert (ratio.label, ratio.lowest, ratio.highest) == ("fast ratio", min(good), max(good))


def test_rows_that_give_the_seed_with_other_values_keep_those(tmp_path: Path) -> None:
    column = swept(tmp_path / "a", Ask("test_rows", ("tests",), (0, 3, 4)))
    assert [arm.test.partition("[")[2] for arm in column.arms] == ["x-3-1]", "y-3-2]"]
    rows = [(device, seed, size) for device, size in (("x", 1), ("y", 2)) for seed in (0, 3, 4)]
    truth = plainly(tmp_path / "b", {'[("x", 3, 1), ("x", 7, 1), ("y", 3, 2)]': str(rows)}, "test_rows")
    mine = {
        f"[{arm.test.partition('[')[2][0]}-{seed}-{size}]": outcome
        for arm, size in zip(column.arms, (1, 2), strict=True)
        for seed, outcome in outcomes(arm).items()
    }
    assert mine == truth


@pytest.mark.parametrize(
    ("test", "old", "given", "seeds"),
    [
        ("TestInside::test_helper", "plant(100)", "random.seed(100)", (0, 4)),
        ("TestInside::test_own_generator", "x := 51", "random.Random(51)", (0, 1)),
    ],
)
def test_seeds_that_a_test_sets_itself_are_shifted(
    tmp_path: Path, test: str, old: str, given: str, seeds: tuple[int, ...]
) -> None:
    column = swept(tmp_path / "a", Ask(test, ("tests",), seeds))
    (arm,) = column.arms
    assert (arm.way, arm.given) == ("shift", (given,))
    number = int(re.findall(r"\d+", old)[0])
    truth = {}
    for seed in seeds:
        place = tmp_path / f"b{seed}"
        (truth[seed],) = plainly(place, {old: old.replace(str(number), str(number + seed))}, test).values()
    assert outcomes(arm) == truth
    assert set(truth.values()) == {"passed", "failed"}


def test_a_test_that_sets_no_seed_starts_at_each(tmp_path: Path) -> None:
    column = swept(tmp_path, Ask("test_seeds_nothing", ("tests",), tuple(range(8))))
    (arm,) = column.arms
    assert arm.way == "streams"
    truth = {seed: "passed" if random.Random(seed).random() < 0.9 else "failed" for seed in range(8)}
    assert outcomes(arm) == truth


def test_a_fixtures_parameter_takes_the_seed_and_a_mutant_is_swept(tmp_path: Path) -> None:
    mutant = mutant_of(copy_of("swept", tmp_path), "src/drawn.py", "LIMIT = 0.9", "LIMIT = 0.0")
    column = swept(tmp_path, Ask("test_through_a_fixture", ("tests",), (1, 2), mutant=mutant))
    assert [arm.argument for arm in column.arms] == ["start_seed", "start_seed"]
    assert [arm.label.partition("[")[2] for arm in column.arms] == ["start_seed-a]", "start_seed-b]"] or [
        arm.label.partition("[")[2] for arm in column.arms
    ] == ["a-start_seed]", "b-start_seed]"]
    for arm in column.arms:
        assert outcomes(arm) == {1: "failed", 2: "failed"}
        assert "0.0" in arm.runs[0].message
        assert [run.edited_line_ran for run in arm.runs] == [False, False]  # it ran when it was imported


def test_a_seed_in_the_environment_changes_nothing_else(tmp_path: Path) -> None:
    column = swept(tmp_path, Ask("test_environment", ("tests",), (0, 2, 3, 9), env=("TRIAL", "OTHER")))
    (arm,) = column.arms
    assert arm.way == "environment"
    assert outcomes(arm) == {0: "passed", 2: "passed", 3: "failed", 9: "failed"}


def test_runs_are_each_a_pytest_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    column = swept(tmp_path, Ask("test_environment", ("tests",), runs=3))
    (arm,) = column.arms
    assert (column.mode, arm.way) == ("plain", "repeat")
    assert outcomes(arm) == {1: "passed", 2: "passed", 3: "passed"}
    texts = {run.printed[0].text for run in arm.runs}
    assert len({text.split()[1] for text in texts}) > 1  # strings' hashes are each interpreter's own


def test_what_ends_or_outlasts_its_process_is_told_apart_and_the_rest_runs_on(tmp_path: Path) -> None:
    column = swept(tmp_path, Ask("test_ends", ("tests",), (2, 3, 4, 5)), wall_floor=3.0)
    (arm,) = column.arms
    assert outcomes(arm) == {2: "passed", 3: "crash", 4: "passed", 5: "timeout"}
    assert "status 7" in arm.runs[1].message
    assert "wall time" in arm.runs[3].message


def test_an_arm_that_is_skipped_says_why(tmp_path: Path) -> None:
    (arm,) = swept(tmp_path, Ask("test_card", ("tests",), (1, 2))).arms
    assert [(run.outcome, run.message) for run in arm.runs] == [("skipped", "no card")] * 2


def test_another_interpreter_and_device_are_the_columns(tmp_path: Path) -> None:
    root = copy_of("swept", tmp_path)
    target = replace(target_of(root, "drawn"), python=sys.executable)
    column, device = sweep_column(
        target, Ask("test_card", ("tests",), (1,)), Column("x", "cpu"), options_for(tmp_path), lambda _: None
    )
    assert (column.id, column.device) == ("x", "cpu")
    assert device.versions["pytest"] == pytest.__version__


def test_a_seed_that_the_test_did_not_get_is_seen() -> None:
    def get_direct_param_fixture_func() -> None: ...

    def fixture() -> None: ...

    def item(function: object, given: int) -> SimpleNamespace:
        return SimpleNamespace(
            _fixtureinfo=SimpleNamespace(name2fixturedefs={"seed": [SimpleNamespace(func=function)]}),
            callspec=SimpleNamespace(params={"seed": 5}),
            funcargs={"seed": given},
        )

    assert is_taken(item(get_direct_param_fixture_func, 5), "seed", 5)
    assert not is_taken(item(get_direct_param_fixture_func, 3), "seed", 5)
    assert is_taken(item(fixture, 500), "seed", 5)
    assert not is_taken(item(fixture, 500), "seed", 6)
