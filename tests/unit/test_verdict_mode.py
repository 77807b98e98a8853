"""`--mode verdict` on small trees: the verdicts of `--mode count`, and no more tests than they need."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_trees import Recorder, mutant_of, options_for, run_one, target_of

from fastlora_verify.harness.plan import (
    BY_ASSERTION,
    COUNT,
    KILLED,
    NOT_VIABLE,
    SURVIVED,
    VERDICT,
    ColumnOutcome,
    Counts,
    MutantOutcome,
)
from fastlora_verify.mutations.base import Mutant

pytestmark = pytest.mark.slow  # runs of the tool

MOD = "SEEN = []\n\n\ndef f(x):\n    return x + 1\n\n\ndef g(x):\n    return x - 1\n"


def tree(tmp_path: Path, tests: str, mod: str = MOD) -> Path:
    root = tmp_path / "tree"
    for name, text in {"src/mod.py": mod, "tests/test_it.py": tests}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def run(tmp_path: Path, root: Path, *mutants: Mutant, **options: object) -> tuple[ColumnOutcome, Recorder]:
    return run_one(target_of(root, "mod"), list(mutants), options_for(tmp_path, **{"workers": 1, **options}))


def both(tmp_path: Path, root: Path, mutant: Mutant, **options: object) -> tuple[MutantOutcome, MutantOutcome]:
    """A mutant in the mode that counts, and in the other."""
    columns = [run(tmp_path / mode, root, mutant, mode=mode, **options)[0] for mode in (COUNT, VERDICT)]
    return columns[0].mutants[0], columns[1].mutants[0]


SIX = "import mod\n" + "".join(f"\ndef test_{n}(): assert mod.f({n}) == {n} + 1\n" for n in range(6))


@pytest.mark.parametrize("late", [False, True], ids=["collected anew", "collected once"])
def test_a_mutant_s_tests_stop_at_its_first_kill(tmp_path: Path, late: bool) -> None:
    tests = SIX.replace("import mod\n", "").replace("(): ", "():\n    import mod\n    ") if late else SIX
    root = tree(tmp_path, tests)
    count, verdict = both(tmp_path, root, mutant_of(root, "src/mod.py", "x + 1", "x + 2"))
    assert (count.status, count.counts, count.stopped) == (KILLED, Counts(failed=6), False)
    assert (verdict.status, verdict.counts, verdict.stopped) == (KILLED, Counts(failed=1), True)
    assert (verdict.how, verdict.differences) == (BY_ASSERTION, ())
    assert [killer.test for killer in verdict.killers] == ["tests/test_it.py::test_0"]


def test_what_killed_one_mutant_is_tried_first_on_the_next(tmp_path: Path) -> None:
    tests = SIX + "\ndef test_big(): assert mod.f(100) == 101\n"
    root = tree(tmp_path, tests)
    mutants = [mutant_of(root, "src/mod.py", "x + 1", f"x + (2 if x > {n} else 1)") for n in (50, 60)]
    column, _ = run(tmp_path, root, *mutants, mode=VERDICT)
    assert column.asked == VERDICT
    assert [mutant.counts for mutant in column.mutants] == [Counts(passed=6, failed=1), Counts(failed=1)]


def test_an_earlier_run_s_killers_are_tried_first(tmp_path: Path) -> None:
    from fastlora_verify.harness.plan import Kill

    root = tree(tmp_path, SIX)
    mutant = mutant_of(root, "src/mod.py", "x + 1", "x + (2 if x > 3 else 1)")
    kills = (Kill(mutant.name, mutant.mutation, mutant.path, mutant.scope, ("tests/test_it.py::test_5",)),)
    column, _ = run(tmp_path, root, mutant, mode=VERDICT, kills=kills)
    assert column.mutants[0].counts == Counts(failed=1)
    assert column.mutants[0].killers[0].test == "tests/test_it.py::test_5"


def test_a_survivor_has_full_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, SIX)
    count, verdict = both(tmp_path, root, mutant_of(root, "src/mod.py", "x - 1", "x - 2"))
    assert (count.status, verdict.status) == (SURVIVED, SURVIVED)
    assert count.counts == verdict.counts == Counts(passed=6)
    assert not verdict.stopped


@pytest.mark.parametrize("more", ["", "    assert x < 3\n"], ids=["nothing but NameErrors", "and an assertion"])
def test_a_name_error_neither_kills_nor_stops(tmp_path: Path, more: str) -> None:
    tests = "import mod\n\ndef test_a(): mod.f(1)\n\ndef test_b(): mod.f(2)\n\ndef test_c(): assert mod.f(5) == 6\n"
    root = tree(tmp_path, tests)
    new = "(x + 1 if x > 4 else missing)" if not more else "(x if x > 4 else missing)"
    count, verdict = both(tmp_path, root, mutant_of(root, "src/mod.py", "x + 1", new, new_names=["missing"]))
    assert count.status == verdict.status == (KILLED if more else NOT_VIABLE)
    assert count.how == verdict.how


def test_an_exception_is_not_the_last_word_where_an_assertion_is_near(tmp_path: Path) -> None:
    tests = "import mod\n\ndef test_a(): mod.f(1)\n\ndef test_b(): assert mod.f(5) == 6\n"
    root = tree(tmp_path, tests)
    count, verdict = both(tmp_path, root, mutant_of(root, "src/mod.py", "x + 1", "(x if x > 4 else 1 / 0)"))
    assert count.how == verdict.how == BY_ASSERTION
    assert verdict.stopped


def test_a_test_that_may_fail_ends_nothing(tmp_path: Path) -> None:
    tests = (
        "import mod, pytest\n\n@pytest.mark.xfail(strict=True)\ndef test_a(): assert mod.f(1) == 3\n"
        "\ndef test_b(): assert mod.f(1) > 0\n"
    )
    root = tree(tmp_path, tests)
    count, verdict = both(tmp_path, root, mutant_of(root, "src/mod.py", "x + 1", "x + 2"))
    assert count.status == verdict.status == SURVIVED
    assert count.counts == verdict.counts


def test_nothing_is_torn_down_after_the_kill(tmp_path: Path) -> None:
    """pytest would tear a module's fixture down at the session's end, where an error of it is pytest's own."""
    tests = (
        "import mod, pytest\n\n@pytest.fixture(scope='module', autouse=True)\ndef wide():\n    yield\n"
        "    assert mod.f(1) == 2\n\ndef test_a(): assert mod.f(1) == 2\n\ndef test_b(): assert mod.f(1) == 2\n"
    )
    root = tree(tmp_path, tests)
    count, verdict = both(tmp_path, root, mutant_of(root, "src/mod.py", "x + 1", "x + 2"))
    assert (count.status, verdict.status) == (KILLED, KILLED)
    assert verdict.counts == Counts(failed=1)


LEAVES = "def f(x):\n    SEEN.append(x)\n    return x + 1\n"


def test_a_kill_that_only_the_other_order_makes_is_none(tmp_path: Path) -> None:
    """The fast test comes first, and what the mutant leaves there makes the slow one fail, that runs before it."""
    tests = (
        "import mod, time\n\ndef test_slow():\n    assert not mod.SEEN\n    mod.f(1)\n    time.sleep(0.2)\n"
        "\ndef test_fast(): assert mod.f(1) == 2\n"
    )
    root = tree(tmp_path, tests)
    mutant = mutant_of(root, "src/mod.py", "    return x + 1\n", "    SEEN.append(x)\n    return x + 1\n")
    count, verdict = both(tmp_path, root, mutant)
    assert (count.status, verdict.status) == (SURVIVED, SURVIVED)
    assert verdict.counts == Counts(passed=2)


def test_tests_that_depend_on_each_other_keep_the_suite_s_order(tmp_path: Path) -> None:
    tests = (
        "import mod, time\nMADE = []\n\ndef test_makes():\n    time.sleep(0.2)\n    MADE.append(mod.f(1))\n"
        "    assert MADE == [2]\n\ndef test_uses():\n    assert mod.f(1) and MADE\n"
    )
    root = tree(tmp_path, tests)
    column, events = run(tmp_path, root, mutant_of(root, "src/mod.py", "x + 1", "x + 3"), mode=VERDICT)
    assert any("every test is run for every mutant" in note for note in events.notes)
    assert column.mutants[0].killers[0].test == "tests/test_it.py::test_makes"
    assert column.mutants[0].counts == Counts(failed=1)


def test_numbers_drawn_where_others_left_off_are_those_of_the_suite(tmp_path: Path) -> None:
    """Run before the others, the last test would draw a number with which the mutant shows."""
    tests = (
        "import mod, random, time\n\ndef test_sets():\n    random.seed(5)\n    time.sleep(0.2)\n"
        "    assert mod.f(0) == 1\n\ndef test_draws():\n    x = random.random()\n    assert mod.f(x) == x + 1\n"
    )
    root = tree(tmp_path, tests)
    import random

    random.seed(5)
    limit = random.random()
    seen = mutant_of(root, "src/mod.py", "x + 1", f"(x + 2 if x == {limit!r} else x + 1)")
    unseen = mutant_of(root, "src/mod.py", "x + 1", f"(x + 2 if x not in (0, {limit!r}) else x + 1)")
    column, _ = run(tmp_path, root, seen, unseen, mode=VERDICT)
    assert [mutant.status for mutant in column.mutants] == [KILLED, SURVIVED]


def test_the_audit_compares_what_is_known(tmp_path: Path) -> None:
    tests = SIX + "\ndef test_plain(request): assert mod.g(1) == (0 if request.config.pluginmanager else 1)\n"
    root = tree(tmp_path, tests)
    mutant = mutant_of(root, "src/mod.py", "x + 1", "x + 2")
    column, _ = run(tmp_path, root, mutant, mode=VERDICT, audit=1)
    assert column.audited == (mutant.name,)
    assert column.audit_differences == ()


def test_results_of_one_mode_are_none_of_the_other(tmp_path: Path) -> None:
    root = tree(tmp_path, SIX)
    mutant = mutant_of(root, "src/mod.py", "x + 1", "x + 2")
    stopped, _ = run(tmp_path, root, mutant, mode=VERDICT)
    whole, _ = run(tmp_path, root, mutant, mode=COUNT)
    assert (stopped.mutants[0].counts, whole.mutants[0].counts) == (Counts(failed=1), Counts(failed=6))


@pytest.mark.parametrize(
    "tests",
    [
        "import mod\nWANT = mod.f(1)\n\n\ndef test_a(): assert WANT == 2\n",
        "import mod, pytest\n\n\n@pytest.mark.parametrize('x', [mod.f(1)])\ndef test_a(x): assert x == 2\n",
    ],
    ids=["module level", "parametrize"],
)
def test_a_file_that_cannot_be_collected_any_more_kills(tmp_path: Path, tests: str) -> None:
    root = tree(tmp_path, tests)
    count, verdict = both(tmp_path, root, mutant_of(root, "src/mod.py", "x + 1", "x.nothing"))
    assert (count.status, verdict.status) == (KILLED, KILLED)
