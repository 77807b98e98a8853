"""A cell says which arms died where that tells something, and nothing that merely looks like it."""

from __future__ import annotations

import pytest
from synthetic_record import NF4, PIN, arms_of

from fastlora_verify.reports.arms import arms


def pins(*dtypes: str) -> list[str]:
    return [f"{PIN}[{arm}]" for arm in arms_of(*dtypes)]


@pytest.mark.parametrize(
    ("tests", "others", "told"),
    [
        (pins("bf16"), [], "the bf16 arms"),
        ([*pins("bf16"), f"{NF4}[bf16-x]"], [], "the bf16 arms"),
        (pins("bf16", "mixed"), pins("fp32"), "the bf16 and mixed arms"),
        (pins("bf16", "fp16", "mixed"), pins("fp32"), "the bf16, fp16 and mixed arms"),
        ([*pins("bf16"), NF4], pins("fp32"), "the bf16 arms + `TestNf4::test_the_node_is_the_kernels`"),
        ([*pins("bf16"), "a.py::x", "a.py::y"], pins("fp32"), "4 of them the bf16 arms"),
        (pins("bf16", "fp16", "mixed", "fp32"), [], "`TestTheFastPath::test_the_node_is_the_kernels`"),
        (["a.py::t[x-2-D]", "a.py::u[y-2-D]"], ["a.py::t[x-3-D]"], "the 2-D arms"),
        (["a.py::t[no-bias-1]", "a.py::u[no-bias-2]"], ["a.py::t[bias-1]"], "the no-bias arms"),
        ([NF4], [], "`TestNf4::test_the_node_is_the_kernels`"),
        (["a.py::t[cpu-1]", "a.py::t[cpu-2]"], [], "`t`"),
        (["a.py::t[linear-1]", "a.py::t[linear-2]"], [], "`t`"),
        (["a.py::t[k-1]", "a.py::u[k-2]"], ["a.py::v[k-3]"], "`t[k-1]` + `u[k-2]`"),
        (["a.py::t", "a.py::u", "a.py::v"], [], "in 3 tests"),
        (["a.py::t[`|-1]", "a.py::t[`|-2]"], [], "the <code>&#96;&#124;</code> arms"),
        ([], [], ""),
    ],
)
def test_arms(tests: list[str], others: list[str], told: str) -> None:
    assert arms(tests, [*tests, *others], ("cpu", "linear")) == told


def test_an_arm_most_of_whose_tests_live_is_not_named() -> None:
    dead = ["a.py::t[x-1]", "a.py::u[x-2]", "a.py::v[x-3]", "a.py::w[y-4]"]
    alive = [f"a.py::{name}[x-9{i}]" for name in "tuv" for i in range(4)]
    assert arms(dead, [*dead, *alive]) == "in 4 tests"
