"""Choosing tests by what they ran must not change a verdict, nor a count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fastlora_verify.harness.child.probe import ELSEWHERE, FIRST
from fastlora_verify.harness.plan import Counts
from fastlora_verify.harness.runner.dependence import Chain
from fastlora_verify.harness.runner.evidence import Case, SuiteFacts
from fastlora_verify.harness.runner.reach import Reach, changed_functions, completed, mapped_lines

SOURCE = """\
import functools

LIMIT = 3


def one(x):
    return x + 1


def two(x, y=2):
    return x * y


@functools.cache
def table(n):
    return [n]


def make():
    def inner(x):
        return -x

    return inner


class Box:
    size = 1

    def get(self):
        return self.size
"""


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("x + 1", "x - 1", ("one",)),
        ("x * y", "x + y", ("two",)),
        ("-x", "+x", ("make.inner",)),
        ("self.size\n", "self.size + 1\n", ("Box.get",)),
        ("LIMIT = 3", "LIMIT = 4", None),  # module level: whoever imports it
        ("y=2", "y=3", None),  # a default is made at import
        ("size = 1", "size = 2", None),  # class level
        ("[n]", "[n, n]", None),  # cached: later calls don't enter it
        ("return inner", "return abs", None),  # what it made outlives the call
        ("@functools.cache\n", "", None),  # a decorator
        ("x + 1", "x  +  1", None),  # nothing that the parser sees
    ],
)
def test_a_change_is_of_functions_or_of_everything(old: str, new: str, changed: tuple[str, ...] | None) -> None:
    assert SOURCE.count(old) == 1
    assert changed_functions(SOURCE, SOURCE.replace(old, new)) == changed


@pytest.mark.parametrize(
    ("old", "new"),
    [("@functools.cache\n", "@functools.lru_cache(3)\n"), ("import functools\n", "import functools\nimport os\n")],
    ids=["a decorator", "one statement more"],
)
def test_a_function_may_not_be_all_that_changed(old: str, new: str) -> None:
    changed = SOURCE.replace("x + 1", "x - 1")
    assert changed_functions(SOURCE, changed.replace(old, new)) is None
    assert changed_functions(SOURCE.replace(old, new), changed.replace(old, new)) == ("one",)


def test_lines_are_those_of_python() -> None:
    """A form feed or a line separator in a text ends none, a carriage return does."""
    before = 'A = """\x0c\u2028"""\r\n' + SOURCE.replace("\n", "\r\n", 5)
    assert changed_functions(before, before.replace("x + 1", "x - 1")) == ("one",)
    assert changed_functions(before, before.replace("y=2", "y=3")) is None


def case(test: str, *ran: int, category: str = "passed", streams: tuple[str, str] = ("s", "s")) -> Case:
    return Case(test, category, ran=frozenset(ran), streams=(("p", "p"), streams))


def facts(*cases: Case, **more: object) -> SuiteFacts:
    return SuiteFacts(tests={c.test: c for c in cases}, ended=True, collected_digest="d", **more)  # type: ignore[arg-type]


ONE, TWO = FIRST, FIRST + 1


def test_marks_are_in_the_order_of_the_mapped_lines() -> None:
    lines = mapped_lines({"a.py": SOURCE})["a.py"]
    assert [SOURCE.splitlines()[line - 1].strip() for line in lines] == [
        "return x + 1", "return x * y", "return [n]", "def inner(x):", "return -x", "return self.size",
    ]  # fmt: skip


def test_only_tests_that_ran_the_function_are_chosen_and_those_whose_processes_are_not_seen() -> None:
    baseline = facts(case("a", ONE), case("b", TWO), case("c", ELSEWHERE), case("d"))
    chosen = Reach({"m.py": SOURCE}, baseline).chosen({"m.py": SOURCE.replace("x + 1", "x - 1")})
    assert chosen is not None
    assert chosen.tests == ("a", "c")
    assert chosen.collected == "d"


def test_a_function_that_ran_while_no_test_did_counts_for_every_test() -> None:
    baseline = facts(case("a", ONE), case("b", TWO), ran_outside=frozenset({ONE}))
    reach = Reach({"m.py": SOURCE}, baseline)
    assert reach.chosen({"m.py": SOURCE.replace("x + 1", "x - 1")}) is None
    assert reach.chosen({"m.py": SOURCE.replace("x * y", "x + y")}) is not None


def test_marks_of_a_second_file_follow_those_of_the_first() -> None:
    other = "def three():\n    return 3\n"
    baseline = facts(case("a", FIRST + 6), case("b", ONE))
    chosen = Reach({"m.py": SOURCE, "n.py": other}, baseline).chosen({"n.py": other.replace("return 3", "return 4")})
    assert chosen is not None
    assert chosen.tests == ("a",)


def test_counts_are_those_of_the_whole_suite() -> None:
    baseline = facts(case("a"), case("b"), case("c", category="skipped"), case("d", category="xfailed"))
    run = replace(facts(case("b", category="failed")), counts=Counts(failed=1))
    whole = completed(run, baseline)
    assert whole.counts == Counts(passed=1, failed=1, skipped=1, xfailed=1)
    assert [c.category for c in whole.tests.values()] == ["passed", "failed", "skipped", "xfailed"]


@pytest.mark.parametrize("run", [{"recollected": True}, {"ended": False}])
def test_a_run_of_all_tests_and_one_that_broke_off_are_left_as_they_are(run: dict[str, bool]) -> None:
    part = replace(facts(case("b")), **run)
    assert completed(part, facts(case("a"), case("b"))) is part


def test_a_function_that_a_test_runs_only_where_none_did_before_counts_for_every_test() -> None:
    """A cache that the first test fills: the second runs the function only where the first did not."""
    reach = Reach({"m.py": SOURCE}, facts(case("a", ONE), case("b")), (facts(case("b", ONE)), facts(case("a", ONE))))
    assert reach.chosen({"m.py": SOURCE.replace("x + 1", "x - 1")}) is None
    assert reach.chosen({"m.py": SOURCE.replace("x * y", "x + y")}) is not None


def test_a_function_that_runs_in_a_test_which_leaves_something_counts_for_every_test() -> None:
    baseline = facts(replace(case("a", ONE), leaves=True), case("b", TWO))
    reach = Reach({"m.py": SOURCE}, baseline)
    assert reach.chosen({"m.py": SOURCE.replace("x + 1", "x - 1")}) is None
    assert reach.chosen({"m.py": SOURCE.replace("x * y", "x + y")}) is not None


def test_a_test_that_draws_what_a_chosen_one_left_is_chosen_too() -> None:
    baseline = facts(case("a"), case("b", ONE), case("c"), case("d"), case("e"))
    chains = (Chain("d", ("b", "c"), ("b",)), Chain("e", ("c",), ()))
    chosen = Reach({"m.py": SOURCE}, baseline, chains=chains).chosen({"m.py": SOURCE.replace("x + 1", "x - 1")})
    assert chosen is not None
    assert chosen.tests == ("b", "d")


def test_what_is_read_before_the_first_test_may_count_for_any() -> None:
    baseline = facts(case("a", ONE), case("b"), early=True)
    assert Reach({"m.py": SOURCE}, baseline).chosen({"m.py": SOURCE.replace("x + 1", "x - 1")}) is None
