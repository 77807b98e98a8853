"""When a run that is asked for the verdict alone may end: never before it is sure that the mutant is killed."""

from __future__ import annotations

from typing import Any

import pytest

from fastlora_verify.harness.child.stopping import Stopping, Until

MOD = "src/mod.py"
UNTIL = Until(frozenset({"a", "b", "c", "d"}), frozenset({MOD}), frozenset({"new"}), more=2)


def raised(kind: str = "AssertionError", *, frames: tuple[tuple[str, int, str], ...] = (("t.py", 1, "a"),)) -> Any:
    mro = [kind, *(["NameError"] if kind == "UnboundLocalError" else []), "Exception"]
    return {"type": kind, "mro": mro, "judges": kind == "AssertionError", "frames": frames}


def line(test: str, exception: Any = None, *, category: str = "failed", reached: bool = True) -> dict[str, Any]:
    phase = {"category": category, "exception": exception} if exception else {"category": "passed"}
    return {"test": test, "phases": [{"category": ""}, phase], "reached": reached}


def stops_after(*lines: dict[str, Any], until: Until = UNTIL, loaded: tuple[str, ...] = (MOD, "t.py")) -> str:
    """The test after which the run ends; empty if it goes on to the end."""
    stopping = Stopping(until)
    return next((one["test"] for one in lines if stopping.enough(one, lambda: loaded)), "")


def test_it_stops_at_the_first_kill_by_assertion() -> None:
    assert stops_after(line("a"), line("b", raised()), line("c", raised())) == "b"
    assert stops_after(line("a", raised(), category="error")) == "a"
    assert stops_after(line("a"), line("b")) == ""


def test_it_goes_on_for_an_assertion_but_not_for_long() -> None:
    broken = raised("RuntimeError")
    assert stops_after(line("a", broken), line("b"), line("c", raised()), line("d")) == "c"
    assert stops_after(line("a", broken), line("b", broken), line("c"), line("d", raised())) == "c"


@pytest.mark.parametrize(
    "first",
    [
        line("new test", raised()),
        line("a", raised("NameError")),
        line("a", raised("UnboundLocalError")),
        line("a", raised("TypeError", frames=(("t.py", 1, "a"), (MOD, 3, "<module>")))),
        line("a", raised(), category="xfailed"),
        line("a", raised(), category="skipped"),
    ],
    ids=["did not pass", "NameError", "UnboundLocalError", "at import", "xfailed", "skipped"],
)
def test_what_kills_nothing_stops_nothing(first: dict[str, Any]) -> None:
    assert stops_after(first, *(line(name) for name in "bcd")) == ""
    assert stops_after(first, line("b", raised())) == "b"


def test_a_name_error_of_a_mutant_that_brings_no_name_kills() -> None:
    until = Until(UNTIL.passed, UNTIL.files, frozenset(), more=0)
    assert stops_after(line("a", raised("NameError")), until=until) == "a"


def test_nothing_stops_before_the_mutated_code_has_run() -> None:
    assert stops_after(line("a", raised(), reached=False)) == ""
    assert stops_after(line("a", raised(), reached=False), line("b"), line("c", raised())) == "c"


def test_nothing_stops_before_every_changed_file_is_imported() -> None:
    assert stops_after(line("a", raised()), loaded=("t.py",)) == ""


def test_the_mutated_code_s_own_assertion_is_an_exception() -> None:
    own = raised(frames=(("t.py", 1, "a"), (MOD, 3, "f")))
    assert stops_after(line("a", own), line("b"), line("c"), line("d")) == "c"
