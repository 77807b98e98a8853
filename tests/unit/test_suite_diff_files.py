"""Assertions whose parts lie elsewhere: in constants, helpers, fixtures, classes, other files."""

from __future__ import annotations

import pytest
from suite_pairs import FILE, compared, kinds

TEST = """
    def test_x():
        assert a
        assert err < 1e-3
    """

SAME = {
    "a constant of the module": "TOL = 1e-3\ndef test_x():\n    assert a\n    assert err < TOL",
    "a constant in a table": "TOL = {f32: 1e-3}\ndef test_x():\n    assert a\n    assert err < TOL[f32]",
    "a helper": "def check(e):\n    assert a\n    assert e < 1e-3\ndef test_x():\n    check(err)",
    "a helper with a default": (
        "def check(e, tol=1e-3):\n    assert a\n    assert e < tol\ndef test_x():\n    check(err)"
    ),
    "a helper with an argument": (
        "def check(e, tol):\n    assert a\n    assert e < tol\ndef test_x():\n    check(err, tol=1e-3)"
    ),
    "a helper's helper": (
        "def close(e, tol):\n    assert e < tol\ndef check(e):\n    assert a\n    close(e, 1e-3)\n"
        "def test_x():\n    check(err)"
    ),
    "a predicate": "def close(e):\n    return e < 1e-3\ndef test_x():\n    assert a\n    assert close(err)",
    "a function that gives the bound": (
        "def tol(d):\n    if d == bf16:\n        return 1e-3\n    return 1e-3\n"
        "def test_x():\n    assert a\n    assert err < tol(d)"
    ),
    "a nested function": "def test_x():\n    def check(e):\n        assert a\n        assert e < 1e-3\n    check(err)",
    "a fixture": ("@pytest.fixture\ndef sound():\n    assert a\n    yield\ndef test_x(sound):\n    assert err < 1e-3"),
    "several constants at once": "TOL, OTHER = 1e-3, 2\ndef test_x():\n    assert a\n    assert err < TOL",
    "functions in another order": "def test_z():\n    assert z\ndef test_x():\n    assert a\n    assert err < 1e-3",
}

LOOSER = {
    "a constant of the module": "TOL = 1e-2\ndef test_x():\n    assert a\n    assert err < TOL",
    "a constant in a table": "TOL = {f32: 1e-2}\ndef test_x():\n    assert a\n    assert err < TOL[f32]",
    "a helper's default": "def check(e, tol=1e-2):\n    assert a\n    assert e < tol\ndef test_x():\n    check(err)",
    "a helper's argument": (
        "def check(e, tol):\n    assert a\n    assert e < tol\ndef test_x():\n    check(err, tol=1e-2)"
    ),
    "a predicate": "def close(e):\n    return e < 1e-2\ndef test_x():\n    assert a\n    assert close(err)",
    "a function that gives the bound": (
        "def tol(d):\n    return 1e-2\ndef test_x():\n    assert a\n    assert err < tol(d)"
    ),
    "a nested function": "def test_x():\n    def check(e):\n        assert a\n        assert e < 1e-2\n    check(err)",
}

CLASS = """
    class Base:
        TOL = {tol}

        def check(self, e):
            assert e < self.TOL

    class TestX(Base):
        def setUp(self):
            assert ready

        def test_x(self):
            self.check(err)
            self.assertEqual(a, 1)
    """


@pytest.mark.parametrize("new", SAME.values(), ids=SAME.keys())
def test_an_assertion_that_moves_stays_what_it_was(new: str) -> None:
    found = compared(TEST, new)
    assert [finding.text for finding in found.findings] == []
    assert [finding.text for finding in compared(new, TEST).findings if finding.kind != "test-removed"] == []


@pytest.mark.parametrize("new", LOOSER.values(), ids=LOOSER.keys())
def test_a_bound_is_looser_wherever_its_number_stands(new: str) -> None:
    assert kinds(TEST, new) == ["loosened"]


def test_the_number_s_own_place_is_named() -> None:
    old = "TOL = 1e-3\n\ndef test_x():\n    assert a < TOL\n\ndef test_y():\n    assert b < TOL\n"
    (finding,) = compared(old, "\n\n" + old.replace("1e-3", "1e-2")).findings
    assert (finding.base, finding.head) == (f"{FILE}:1", f"{FILE}:3")
    assert finding.tests == (f"{FILE}::test_x", f"{FILE}::test_y")
    assert finding.text == "`0.001` is now `0.01` in `assert a < TOL`"


def test_classes_their_bases_and_set_up_methods() -> None:
    old = CLASS.format(tol="1e-3")
    assert kinds(old, old) == []
    assert kinds(old, CLASS.format(tol="1e-2")) == ["loosened"]
    assert kinds(old, old.replace("assert e < self.TOL", "pass")) == ["assertion-removed"]
    assert kinds(old, old.replace("assert ready", "pass")) == ["assertion-removed"]


def test_helpers_and_constants_of_other_files() -> None:
    test = "from helpers import check, TOL\nimport limits\n\n"
    test += "def test_x():\n    check(err)\n    assert b < TOL\n    assert c < limits.MOST\n"
    files = {
        "tests/test_a.py": test,
        "tests/helpers.py": "TOL = 1e-3\n\ndef check(e):\n    assert e < 2\n",
        "tests/limits.py": "MOST = 5\n",
    }
    assert kinds(files, files) == []
    helpers, limits = files["tests/helpers.py"], files["tests/limits.py"]
    assert kinds(files, {**files, "tests/helpers.py": helpers.replace("1e-3", "1e-2")}) == ["loosened"]
    assert kinds(files, {**files, "tests/helpers.py": helpers.replace("assert e < 2", "pass")}) == ["assertion-removed"]
    assert kinds(files, {**files, "tests/limits.py": limits.replace("5", "6")}) == ["loosened"]
    flat = test.replace("from helpers import check, TOL\nimport limits\n", "").replace("check(err)", "assert err < 2")
    flat = flat.replace("TOL", "1e-3").replace("limits.MOST", "5")
    assert kinds(files, {"tests/test_a.py": flat}) == []


HELPER = """
    def check(out, want, tol=1e-3):
        assert out.dtype == want.dtype
        assert dist(out, want) < tol

    def test_x():
        check(f(x), g(x))
        check(f(y), g(y))
    """


def test_a_helper_called_with_something_else_is_told_once() -> None:
    (finding,) = compared(HELPER, HELPER.replace("check(f(y), g(y))", "check(g(y), g(y))")).findings
    assert finding.kind == "rewritten"
    assert finding.text.startswith("`check(f(y), g(y))` is rewritten as `check(g(y), g(y))`, which asserts ")
    assert (finding.base, finding.head) == (f"{FILE}:8", f"{FILE}:8")


def test_a_helper_called_with_a_name_of_a_comprehension() -> None:
    old = "def end(c):\n    assert len(c) <= 1\n    return c\n\n"
    old += "def test_x():\n    assert [end(c) for c in cases] == [1]\n"
    assert kinds(old, old.replace("[end(c) for c in", "[end(one) for one in")) == []


def test_a_helper_called_once_less_is_an_assertion_less() -> None:
    assert kinds(HELPER, HELPER.replace("check(f(y), g(y))", "pass")) == ["assertion-removed", "assertion-removed"]


def test_a_helper_that_takes_other_parameters_asserts_what_it_did() -> None:
    new = HELPER.replace("(out, want, tol=1e-3):", "(one, other, z, tol=1e-3):\n        out, want = one(z), other(z)")
    new = new.replace("(f(x), g(x))", "(f, g, x)").replace("(f(y), g(y))", "(f, g, y)")
    assert kinds(HELPER, new) == []
    assert kinds(HELPER, new.replace("1e-3", "1e-2")) == ["loosened"]


def test_what_stands_in_an_assertion_s_place_is_told() -> None:
    old, new = "def test_x():\n    assert count == 1\n", "def test_x():\n    assert [call.dtype for call in calls]\n"
    (finding,) = compared(old, new).findings
    assert finding.text == "`assert count == 1` is gone; new in the test: `assert [call.dtype for call in calls]`"


def test_fixtures_of_a_conftest() -> None:
    files = {
        "tests/conftest.py": "@pytest.fixture(autouse=True)\ndef sound():\n    yield\n    assert not leaks\n",
        "tests/test_a.py": "def test_x():\n    assert a\n",
    }
    assert kinds(files, files) == []
    assert kinds(files, {**files, "tests/conftest.py": ""}) == ["assertion-removed"]


def test_rows_of_a_parametrisation() -> None:
    old = """
    @pytest.mark.parametrize("dtype, tol", [(f32, 1e-5), pytest.param(bf16, 1e-2, id="half")])
    def test_x(dtype, tol):
        assert f(dtype) < tol
    """
    (finding,) = compared(old, old.replace("1e-2", "2e-2")).findings
    assert finding.kind == "loosened"
    assert finding.text == "`0.01` is now `0.02` for `bf16` in `assert f(dtype) < tol`"
    assert kinds(old, old.replace("1e-2", "1e-3")) == ["tightened"]
    assert kinds(old, old.replace("[(f32, 1e-5), ", "[(f16, 1e-1), (f32, 1e-5), ")) == []
    assert kinds(old, old.replace("[(f32, 1e-5), ", "[").replace("tol)", "tol)")) == []


def test_new_arms_may_have_bounds_of_their_own() -> None:
    old = "def test_x():\n    assert f(f32) < 1e-5\n"
    new = """
    @pytest.mark.parametrize("dtype, tol", [(f32, 1e-5), (bf16, 1e-2)])
    def test_x(dtype, tol):
        assert f(f32) < tol
    """
    assert kinds(old, new) == []
    assert kinds(old, new.replace("1e-5", "1e-4")) == ["loosened"]


def test_an_arm_that_was_there_may_not() -> None:
    old = """
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_x(dtype):
        assert f(dtype) < 1e-5
    """
    new = """
    @pytest.mark.parametrize("dtype, tol", [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
    def test_x(dtype, tol):
        assert f(dtype) < tol
    """
    (finding,) = compared(old, new).findings
    assert finding.kind == "loosened"
    assert "for `torch.bfloat16`" in finding.text


def test_a_file_that_skips_itself_now() -> None:
    old = "import pytest\n\ndef test_x():\n    assert a\n"
    assert kinds(old, old.replace("import pytest", "import pytest\npytest.importorskip('bitsandbytes')")) == [
        "skip-added"
    ]


def test_a_second_function_of_one_name_hides_the_first() -> None:
    old = "def test_x():\n    assert a\n"
    assert kinds(old, old + "\ndef test_x():\n    assert b\n") in (["rewritten"], ["assertion-removed"])


def test_a_deleted_test_is_told_with_its_place_and_its_like() -> None:
    old = "def test_y():\n    assert a\n\ndef test_x():\n    x = f(1)\n    y = g(x)\n    assert x == y\n"
    new = "def test_y():\n    assert a\n\ndef test_z():\n    x = f(1)\n    y = g(x)\n    assert x == y + 1\n"
    (finding,) = compared(old, new).findings
    assert (finding.kind, finding.base) == ("test-removed", f"{FILE}:4")
    assert "the new test that reads most like it is `tests/test_a.py::test_z`" in finding.text


def test_a_test_with_the_same_body_has_moved() -> None:
    old = {"tests/test_a.py": "def test_x(m):\n    '''Said.'''\n    assert m\n    assert a < 2\n"}
    new = {"tests/test_b.py": "def test_other(m):\n    # said otherwise\n    assert m\n    assert (a < 2)\n"}
    found = compared(old, new)
    (finding,) = found.findings
    assert finding.kind == "test-moved"
    assert finding.text.endswith("a test with the same body is now `tests/test_b.py::test_other`")
    assert (found.moved, found.added) == (1, [])


def test_a_moved_test_is_still_compared() -> None:
    old = {"tests/test_a.py": "T = 1\ndef test_x():\n    assert a < T\n"}
    new = {"tests/test_b.py": "T = 2\ndef test_x():\n    assert a < T\n"}
    assert kinds(old, new) == ["loosened", "test-moved"]


def test_what_is_no_python_is_said() -> None:
    files = {
        "tests/test_a.py": "from helpers import check\n\ndef test_x():\n    check(1)\n",
        "tests/helpers.py": "def check(a):\n    assert a\n",
    }
    found = compared(files, {**files, "tests/helpers.py": "def check(a:\n"})
    assert [note for note in found.notes if "tests/helpers.py can't be read as Python" in note]


SKIPS = """
    import pytest
    needs_card = pytest.mark.skipif(not cuda(), reason="no card")
    pytestmark = pytest.mark.skipif(windows(), reason="not there")

    @pytest.mark.skipif(old(), reason="x")
    class TestX:
        @needs_card
        @pytest.mark.xfail(raises=ValueError, reason="y")
        def test_x(self):
            assert a
    """


@pytest.mark.parametrize(
    ("old", "new", "mark"),
    [
        ("not cuda()", "not cuda() or slow()", "skipif"),
        ("windows()", "windows() or mac()", "skipif"),
        ("skipif(old()", "skipif(older()", "skipif"),
        ("raises=ValueError", "raises=Exception", "xfail"),
    ],
)
def test_another_condition_of_a_mark_is_for_a_reader(old: str, new: str, mark: str) -> None:
    (finding,) = compared(SKIPS, SKIPS.replace(old, new)).findings
    assert finding.kind == "skip-changed"
    assert finding.text.startswith(f"the condition of `{mark}` was `")
    assert finding.head.startswith(FILE)


@pytest.mark.parametrize(
    ("old", "new"), [("no card", "why not"), ("needs_card", "card"), ("import pytest", "import pytest\n")]
)
def test_another_reason_or_name_of_a_mark_is_no_finding(old: str, new: str) -> None:
    assert kinds(SKIPS, SKIPS.replace(old, new)) == []


def test_cases_of_a_loop_that_have_a_name() -> None:
    old = "DTYPES = (f32, bf16)\n\ndef test_x():\n    for d in DTYPES:\n        assert f(d)\n"
    (finding,) = compared(old, old.replace("(f32, bf16)", "(f32,)")).findings
    assert finding.kind == "loosened"
    assert finding.text == "`assert f(d)`: was for `d` in `f32, bf16`, is no longer for `bf16`"
    inside = old.replace("DTYPES = (f32, bf16)", "").replace("in DTYPES", "in (f32, bf16)")
    assert kinds(old, inside) == []
    of_class = "class TestX:\n    ALL = (f32, bf16)\n    def test_x(self):\n"
    of_class += "        for d in self.ALL:\n            assert f(d)\n"
    assert kinds(of_class, of_class.replace("(f32, bf16)", "(bf16,)")) == ["loosened"]


def test_a_table_of_cases() -> None:
    old = "TOL = {f32: 1e-5, bf16: 1e-2}\n\ndef test_x():\n    for d, tol in TOL.items():\n        assert f(d) < tol\n"
    (finding,) = compared(old, old.replace("1e-2", "2e-2")).findings
    assert finding.text == "`0.01` is now `0.02` for `bf16` in `assert f(d) < tol`"
    assert kinds(old, old.replace(", bf16: 1e-2", "")) == ["loosened"]
    assert kinds(old, old.replace("1e-2", "1e-3")) == ["tightened"]


def test_of_two_helpers_of_one_name_the_nearer_is_meant() -> None:
    test = "from helpers import TOL\n\ndef test_x():\n    assert a < TOL\n"
    files = {"tests/one/test_a.py": test, "tests/one/helpers.py": "TOL = 1", "tests/a/helpers.py": "TOL = 5"}
    assert kinds(files, {**files, "tests/a/helpers.py": "TOL = 6"}) == []
    assert kinds(files, {**files, "tests/one/helpers.py": "TOL = 2"}) == ["loosened"]


def test_relative_imports() -> None:
    test = "from .helpers import TOL\nfrom ..more import check\n\ndef test_x():\n    assert a < TOL\n    check(b)\n"
    files = {
        "tests/one/test_a.py": test,
        "tests/one/helpers.py": "TOL = 1",
        "tests/more.py": "def check(b):\n    assert b",
    }
    assert kinds(files, files) == []
    assert kinds(files, {**files, "tests/one/helpers.py": "TOL = 2"}) == ["loosened"]
    assert kinds(files, {**files, "tests/more.py": "def check(b):\n    pass"}) == ["assertion-removed"]


def test_a_name_that_is_bound_twice_is_no_constant() -> None:
    old = "TOL = 1e-3\nTOL = setting()\n\ndef test_x():\n    assert a < TOL\n"
    assert kinds(old, old.replace("1e-3", "1e-2")) == []


def test_a_local_hides_a_constant() -> None:
    old = "TOL = 1e-3\n\ndef test_x(TOL):\n    assert a < TOL\n"
    assert kinds(old, old.replace("1e-3", "1e-2")) == []


def test_keyword_only_parameters_of_a_helper() -> None:
    old = "def check(e, *, tol=1e-3):\n    assert e < tol\n\ndef test_x():\n    check(a)\n"
    assert kinds(old, old.replace("1e-3", "1e-2")) == ["loosened"]
    assert kinds(old, old.replace("check(a)", "check(a, tol=1e-2)")) == ["loosened"]
    assert kinds(old, old.replace("*, tol=1e-3", "*, tol").replace("check(a)", "check(a, tol=1e-3)")) == []


def test_methods_called_on_their_class() -> None:
    old = "class Checks:\n    @staticmethod\n    def small(e):\n        assert e < 1e-3\n\n"
    old += "def test_x():\n    Checks.small(a)\n"
    assert kinds(old, old.replace("1e-3", "1e-2")) == ["loosened"]


def test_a_suppressed_exception_of_another_kind_suppresses_no_assertion() -> None:
    old = "def test_x():\n    assert a\n"
    assert kinds(old, "def test_x():\n    with contextlib.suppress(KeyError):\n        assert a\n") == []
    assert kinds(old, "def test_x():\n    with open(AssertionError):\n        assert a\n") == []


def test_what_an_assertion_says_when_it_fails_is_left_out() -> None:
    old = "def test_x():\n    assert a < 1, f'{a} is too much'\n"
    (finding,) = compared(old, old.replace("< 1", "< 2")).findings
    assert finding.text == "`1` is now `2` in `assert a < 2`"
