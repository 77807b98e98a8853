"""Facts to outcome: each row of the table, each status, each way of a kill."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fastlora_verify.harness.plan import Counts, MutantOutcome
from fastlora_verify.harness.runner.evidence import ABSENT, CATEGORIES, Case, Raised, SuiteFacts, suite_facts
from fastlora_verify.harness.runner.judge import EFFECTS, End, Subject, how_of, is_green, judge

EVERY = (*CATEGORIES, ABSENT)
SUBJECT = Subject("m", ("src/k.py",), ("brought",))
END = End("exit", code=0)

WORDS = {
    ("passed", "failed"): "fails",
    ("passed", "error"): "errors",
    ("passed", "skipped"): "skips",
    ("passed", "xfailed"): "fails as expected",
    ("passed", "xpassed"): "passes unexpectedly",
    ("passed", ABSENT): "vanished",
    ("failed", "passed"): "passes, failed before",
    ("failed", "error"): "errors, failed before",
    ("failed", "skipped"): "skips, failed before",
    ("failed", "xfailed"): "fails as expected, failed before",
    ("failed", "xpassed"): "passes unexpectedly, failed before",
    ("failed", ABSENT): "vanished, failed before",
    ("error", "passed"): "passes, errored before",
    ("error", "failed"): "fails, errored before",
    ("error", "skipped"): "skips, errored before",
    ("error", "xfailed"): "fails as expected, errored before",
    ("error", "xpassed"): "passes unexpectedly, errored before",
    ("error", ABSENT): "vanished, errored before",
    ("skipped", "passed"): "passes, skipped before",
    ("skipped", "failed"): "fails, skipped before",
    ("skipped", "error"): "errors, skipped before",
    ("skipped", "xfailed"): "fails as expected, skipped before",
    ("skipped", "xpassed"): "passes unexpectedly, skipped before",
    ("skipped", ABSENT): "vanished, skipped before",
    ("xfailed", "passed"): "passes, expected to fail",
    ("xfailed", "failed"): "fails, expected to fail",
    ("xfailed", "error"): "errors, expected to fail",
    ("xfailed", "skipped"): "skips, expected to fail",
    ("xfailed", "xpassed"): "passes unexpectedly, expected to fail",
    ("xfailed", ABSENT): "vanished, expected to fail",
    ("xpassed", "passed"): "passes, passed unexpectedly before",
    ("xpassed", "failed"): "fails, passed unexpectedly before",
    ("xpassed", "error"): "errors, passed unexpectedly before",
    ("xpassed", "skipped"): "skips, passed unexpectedly before",
    ("xpassed", "xfailed"): "fails as expected, passed unexpectedly before",
    ("xpassed", ABSENT): "vanished, passed unexpectedly before",
    (ABSENT, "passed"): "passes, new",
    (ABSENT, "failed"): "fails, new",
    (ABSENT, "error"): "errors, new",
    (ABSENT, "skipped"): "skips, new",
    (ABSENT, "xfailed"): "fails as expected, new",
    (ABSENT, "xpassed"): "passes unexpectedly, new",
}


def raised(
    kind: str = "AssertionError", *, judges: bool = True, frames: tuple[tuple[str, int, str], ...] = (), **more: object
) -> Raised:
    mro = (kind, "Exception", "BaseException", "object")
    return replace(Raised(kind, mro, judges, "assert 1 == 2", None, frames), **more)  # type: ignore[arg-type]


def run(**tests: str) -> SuiteFacts:
    """A run that came to its end, with these tests; failing ones by an assertion."""
    facts = {
        name: Case(name, category, raised() if category in ("failed", "error") else None)
        for name, category in tests.items()
        if category != ABSENT
    }
    shown = list(tests.values())
    counts = Counts(
        shown.count("passed"),
        shown.count("failed"),
        shown.count("error"),
        shown.count("skipped"),
        shown.count("xfailed"),
        shown.count("xpassed"),
    )
    return SuiteFacts(tests=facts, counts=counts, ended=True, status=1)


def judged(before: SuiteFacts, after: SuiteFacts, end: End = END, subject: Subject = SUBJECT) -> MutantOutcome:
    return judge(subject, "head:cpu", before, after, end, lambda path: path.startswith("src/"))


def with_cause(cause: Raised) -> SuiteFacts:
    after = run(a="failed")
    return replace(after, tests={"a": replace(after.tests["a"], raised=cause)})


def test_the_table_has_every_pair_and_only_passing_tests_kill() -> None:
    assert set(EFFECTS) == set(product(EVERY, EVERY))
    assert {pair for pair, effect in EFFECTS.items() if effect.kills} == {
        ("passed", "failed"),
        ("passed", "error"),
    }


@pytest.mark.parametrize(("before", "after"), list(product(EVERY, EVERY)))
def test_each_row(before: str, after: str) -> None:
    outcome = judged(run(x=before, steady="passed"), run(x=after, steady="passed"))
    if before == after:
        assert (outcome.status, outcome.killers, outcome.differences) == ("survived", (), ())
    elif (before, after) in (("passed", "failed"), ("passed", "error")):
        assert outcome.status == "killed"
        assert [(killer.test, killer.effect) for killer in outcome.killers] == [("x", WORDS[before, after])]
        assert outcome.differences == ()
    else:
        assert outcome.status == "survived"
        assert outcome.killers == ()
        assert outcome.differences == (("x", WORDS[before, after]),)
        assert outcome.reason.startswith("no test that passed fails, but the suite changed (1 test: ")


def test_counts_are_those_of_the_mutants_run() -> None:
    outcome = judged(run(a="passed", b="passed", c="skipped"), run(a="failed", b="passed", c="skipped"))
    assert outcome.counts == Counts(passed=1, failed=1, skipped=1)


TEST = ("tests/test_k.py", 3, "test")
KERNEL = ("src/k.py", 9, "forward")


@pytest.mark.parametrize(
    ("cause", "how"),
    [
        (raised(frames=(TEST,)), "assertion"),
        (raised(frames=()), "assertion"),
        (raised(frames=(TEST, KERNEL)), "exception"),
        (raised(frames=(TEST, KERNEL, TEST)), "assertion"),
        (raised("RuntimeError", judges=False, frames=(TEST,)), "exception"),
        (raised("RuntimeError", judges=False, frames=(TEST, KERNEL)), "exception"),
    ],
    ids=["test", "no frame", "in the kernel", "hook called by the kernel", "torch", "kernel"],
)
def test_an_assertion_is_the_tests_own(cause: Raised, how: str) -> None:
    assert how_of(cause, lambda path: path.startswith("src/")) == how
    outcome = judged(run(a="passed"), with_cause(cause))
    assert (outcome.status, outcome.how, outcome.killers[0].how) == ("killed", how, how)


def test_one_assertion_among_exceptions_makes_the_kill_one_by_assertion() -> None:
    after = run(a="failed", b="failed")
    after = replace(
        after, tests={**after.tests, "a": replace(after.tests["a"], raised=raised("ValueError", judges=False))}
    )
    outcome = judged(run(a="passed", b="passed"), after)
    assert [killer.how for killer in outcome.killers] == ["exception", "assertion"]
    assert outcome.how == "assertion"


def name_error(name: str | None, kind: str = "NameError", message: str = "") -> Raised:
    mro = (kind, "NameError", "Exception") if kind != "NameError" else ("NameError", "Exception")
    return replace(raised(kind, judges=False), mro=mro, name=name, message=message or f"name {name!r} is not defined")


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (name_error("brought"), "not-viable"),
        (name_error("other"), "killed"),
        (
            name_error(None, "UnboundLocalError", "cannot access local variable 'brought' where it is not"),
            "not-viable",
        ),
        (name_error(None, "UnboundLocalError", "cannot access local variable 'other' where it is"), "killed"),
        (raised("TypeError", judges=False, frames=(TEST, ("src/k.py", 1, "<module>"))), "not-viable"),
        (raised("TypeError", judges=False, frames=(TEST, ("src/j.py", 1, "<module>"))), "killed"),
        (raised("TypeError", judges=False, frames=(TEST, KERNEL)), "killed"),
    ],
)
def test_not_viable_is_what_never_was_the_code_under_test(cause: Raised, status: str) -> None:
    outcome = judged(run(a="passed"), with_cause(cause))
    assert outcome.status == status
    assert (outcome.how == "") == (status == "not-viable")


def test_a_broken_mutant_with_one_real_kill_is_killed() -> None:
    after = run(a="failed", b="failed")
    after = replace(after, tests={**after.tests, "a": replace(after.tests["a"], raised=name_error("brought"))})
    assert judged(run(a="passed", b="passed"), after).status == "killed"


def test_an_import_that_fails_and_is_caught_by_the_tests_is_not_viable() -> None:
    failing = replace(run(a="passed"), import_errors=(("src/k.py", raised("ImportError", judges=False)),))
    outcome = judged(run(a="passed"), failing)
    assert (outcome.status, outcome.reason) == (
        "not-viable",
        "the mutated module raises while it is imported: ImportError: assert 1 == 2",
    )
    assert judged(failing, failing).status == "survived"  # so it does on the unmutated tree
    other = replace(failing, import_errors=(("src/j.py", raised()),))
    assert judged(run(a="passed"), other).status == "survived"


def test_tests_of_a_module_that_cannot_be_collected_error() -> None:
    before = run(**{"t/a.py::x": "passed", "t/b.py::y": "passed", "t/a.pyc::z": "passed"})
    cause = raised("ValueError", judges=False, frames=(("t/a.py", 1, "<module>"), KERNEL))
    broken = Case("t/a.py", "error", cause)
    after = SuiteFacts(collected={"t/a.py": broken}, counts=Counts(errors=1), ended=True, status=2)
    outcome = judged(before, after)
    assert (outcome.status, outcome.how) == ("killed", "exception")
    assert [(killer.test, killer.effect, killer.exception) for killer in outcome.killers] == [
        ("t/a.py::x", "errors", "ValueError")
    ]
    assert outcome.differences == (("t/b.py::y", "vanished"), ("t/a.pyc::z", "vanished"))
    at_import = replace(broken, raised=replace(cause, frames=(*cause.frames, ("src/k.py", 1, "<module>"))))
    assert judged(before, replace(after, collected={"t/a.py": at_import})).status == "not-viable"


@pytest.mark.parametrize(
    ("facts", "end", "status", "reason"),
    [
        ({}, End("timeout", limit="more than 9 s of CPU time"), "timeout", "more than 9 s of CPU time, in x"),
        ({}, End("memory", limit="more than 8.0 GiB of memory"), "crash", "more than 8.0 GiB of memory, in x"),
        ({}, End("lost"), "crash", "its process was lost, in x"),
        ({}, End("exit", signal=11), "crash", "killed by signal 11, in x"),
        ({}, End("exit", code=0), "crash", "the process ended with status 0 before the tests did, in x"),
        (
            {"ended": True, "running": "", "status": 3, "broken": raised("KeyError"), "broken_by": "internal-error"},
            End("exit", code=0),
            "crash",
            "pytest ended by an internal error: KeyError: assert 1 == 2",
        ),
        (
            {"ended": True, "running": "", "broken": raised("Exit"), "broken_by": "interrupt"},
            End("exit", code=0),
            "crash",
            "pytest ended by an interrupt: Exit: assert 1 == 2",
        ),
        (
            {"ended": True, "running": "", "status": 4},
            End("exit", code=0, output_tail="ERROR: no such file"),
            "crash",
            "pytest could not run: ERROR: no such file",
        ),
    ],
)
def test_what_ends_early_is_neither_killed_nor_survived(
    facts: dict[str, object], end: End, status: str, reason: str
) -> None:
    after = replace(run(a="failed"), **{"ended": False, "running": "x", **facts})  # type: ignore[arg-type]
    outcome = judged(run(a="passed"), after, end)
    assert (outcome.status, outcome.reason, outcome.how) == (status, reason, "")


def test_a_session_without_any_test_is_judged_by_its_tests_not_by_its_status() -> None:
    """All tests skip: pytest exits 0. None is collected: 5. Neither is a kill, both are told."""
    for status, after in ((0, run(a="skipped")), (5, run())):
        outcome = judged(run(a="passed"), replace(after, status=status))
        assert (outcome.status, len(outcome.differences)) == ("survived", 1)


def test_reached_and_triggered_count_tests() -> None:
    after = run(a="passed", b="passed", c="skipped")
    tests = dict(after.tests)
    tests["a"] = replace(tests["a"], reached=True, triggered=True)
    tests["b"] = replace(tests["b"], reached=True)
    tests["c"] = replace(tests["c"], gpu=True)
    outcome = judged(run(a="passed", b="passed", c="skipped"), replace(after, tests=tests, reached_import=True))
    assert (outcome.reached, outcome.triggered, outcome.reached_import) == (2, 1, True)
    assert outcome.reached_tests == (("a", True), ("b", False))
    assert outcome.skipped_here == ("c",)


@pytest.mark.parametrize(
    ("facts", "green"),
    [
        (run(a="passed", b="skipped", c="xfailed"), True),
        (run(a="skipped"), False),
        (run(), False),
        (run(a="passed", b="failed"), False),
        (run(a="passed", b="error"), False),
        (replace(run(a="passed"), ended=False), False),
        (replace(run(a="passed"), broken=raised()), False),
    ],
)
def test_green_asks_for_a_passed_test_and_no_failure(facts: SuiteFacts, green: bool) -> None:
    assert is_green(facts) is green


def test_phases_add_up_to_one_category_and_all_counts() -> None:
    def line(test: str, *categories: str) -> dict[str, object]:
        cause = {"type": "E", "mro": ["E"], "judges": False, "message": "", "frames": []}
        phases = [
            {"when": "call", "category": category, **({"exception": cause} if category in ("failed", "error") else {})}
            for category in categories
        ]
        common = {"reached": False, "triggered": False, "gpu": False, "seconds": 0.1}
        return {"event": "test", "test": test, "phases": phases, **common}

    lines = [
        line("a", "", "passed", "error"),
        line("b", "", "failed", "error"),
        line("c", "skipped", ""),
        line("d", "", "xfailed", "error"),
        {"event": "start", "test": "e"},
    ]
    facts = suite_facts(lines, "/copy")
    assert {name: fact.category for name, fact in facts.tests.items()} == {
        "a": "error",
        "b": "failed",
        "c": "skipped",
        "d": "error",
    }
    assert (facts.running, facts.ended) == ("e", False)
    end = {"event": "end", "status": 1, "counts": {"passed": 1, "error": 3, "failed": 1, "skipped": 1, "xfailed": 1}}
    assert suite_facts([*lines, end], "/copy").counts == Counts(1, 1, 3, 1, 1, 0)
