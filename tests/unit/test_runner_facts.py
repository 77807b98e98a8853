"""Facts: every way that pytest reports an outcome is counted as pytest counts it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runner_trees import copy_of, mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.child.exception import exception_fact
from fastlora_verify.harness.plan import Counts


def test_counts_and_killers_are_plain_pytests_in_a_zoo_of_outcomes(tmp_path: Path) -> None:
    """The audit compares with what pytest prints, the control with a cold run."""
    root = copy_of("zoo", tmp_path)
    target = replace(target_of(root, "zoo"), tests=("tests", "src"))
    mutant = mutant_of(root, "src/zoo.py", "BROKEN = False", "BROKEN = True", name="broken")
    column, _ = run_one(target, [mutant], options_for(tmp_path, audit=1))
    assert column.mode == "fork"
    assert column.baseline is not None
    assert column.baseline.counts == Counts(passed=29, skipped=2, xfailed=3)
    assert column.audit_differences == ()
    (outcome,) = column.mutants
    assert (outcome.status, outcome.how) == ("killed", "assertion")
    ways = {killer.test.partition("::")[2]: (killer.effect, killer.how, killer.exception) for killer in outcome.killers}
    assert ways["test_never"] == ("errors", "assertion", "AssertionError")
    assert ways["test_closing"] == ("errors", "assertion", "Failed")
    assert ways["test_closing_after_failure"] == ("fails", "assertion", "AssertionError")
    assert ways["TestClassSetUp::test_one"] == ("errors", "exception", "OSError")
    assert ways["TestUnit::test_plain"][:2] == ("fails", "assertion")
    assert ways["test_native_subtests"][:2] == ("fails", "assertion")
    assert ways["test_exits"] == ("fails", "exception", "SystemExit")
    assert ways["test_groups"] == ("fails", "assertion", "ExceptionGroup")
    assert ways["test_warns"] == ("fails", "assertion", "Failed")
    assert ways["zoo.open_gate"][1] == "assertion"
    changes = {test.partition("::")[2] or test: word for test, word in outcome.differences}
    assert changes["test_expected_exception"] == "fails, expected to fail"
    assert changes["test_strict"] == "fails, expected to fail"
    assert changes["TestUnit::test_skips"] == "skips"


def test_a_failed_gradcheck_is_a_tests_judgement_and_a_torch_error_is_none() -> None:
    gradcheck = pytest.importorskip("torch.autograd.gradcheck")
    assert exception_fact(gradcheck.GradcheckError("Jacobian mismatch\nmore"), "/nowhere")["judges"]
    assert not exception_fact(RuntimeError("shape"), "/nowhere")["judges"]
    assert not exception_fact(ExceptionGroup("", [AssertionError(), ValueError()]), "/nowhere")["judges"]


def test_an_exception_whose_text_raises_or_is_long_is_still_a_fact() -> None:
    class OddError(AssertionError):
        def __str__(self) -> str:
            raise ValueError

    fact = exception_fact(OddError(), "/nowhere")
    assert (fact["message"], fact["judges"]) == ("its text raises ValueError", True)
    assert exception_fact(ValueError("\n first\nsecond"), "/nowhere")["message"] == "first"
    assert len(exception_fact(ValueError("x" * 5000), "/nowhere")["message"]) == 300


def test_only_frames_of_the_copy_are_told(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mod.py"
    space: dict[str, Any] = {}
    exec(compile("def f(g):\n    g()\n\ndef h():\n    1 / 0\n", str(path), "exec"), space)
    with pytest.raises(ZeroDivisionError) as caught:
        space["f"](space["h"])
    fact = exception_fact(caught.value, str(tmp_path))
    assert fact["frames"] == [["deep/mod.py", 2, "f"], ["deep/mod.py", 5, "h"]]
    assert exception_fact(caught.value, str(tmp_path / "other"))["frames"] == []
    error = SyntaxError("bad", (str(path), 7, 1, "x ="))
    assert exception_fact(error, str(tmp_path))["frames"] == [["deep/mod.py", 7, "<module>"]]
