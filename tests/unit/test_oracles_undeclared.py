"""Kernels that nothing is declared of: what they cost is told, what no kernel may do is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import RIGHT, WRONG

from fastlora_verify.harness.runner.drift import compared
from fastlora_verify.oracles.base import Options, told
from fastlora_verify.oracles.registry import ORACLES

BY_ID = {oracle.id: oracle for oracle in ORACLES}
WRONG_BY_NAME = {info.name: info for kernels in WRONG.values() for info in kernels}
COSTS = {
    "ProductKept": "saved-bytes",  # one more [N, f]: still less than PEFT keeps
    "WeightOnCtx": "saved-bytes",
    "SplitInput": "gemms",
    "AlwaysInputGradient": "gemms",
}


@pytest.mark.parametrize("kernel", COSTS)
def test_what_a_kernel_costs_is_told(kernel: str) -> None:
    oracle = BY_ID[COSTS[kernel]]
    assert oracle.check(WRONG_BY_NAME[kernel], Options()).ok is False
    answer = oracle.check(replace(WRONG_BY_NAME[kernel], declared=False), Options())
    assert not [told(figure) for figure in answer.figures if figure.ok is False]
    assert any(figure.drift == 0 for figure in answer.figures), "a mutant has nothing to be held to"


def test_more_bytes_than_peft_keeps_are_too_many() -> None:
    dense = replace(WRONG_BY_NAME["WeightSavedDense"], declared=False)
    answer = BY_ID["saved-bytes"].check(dense, Options())
    assert answer.ok is False and answer.summary.startswith(
        "Llama-3.1-8B, bf16: kernel: 85,196,800 B (limit 51,642,368)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("oracle", BY_ID)
@pytest.mark.parametrize("info", RIGHT, ids=lambda info: info.name)
def test_a_right_kernel_is_objected_to_by_none(oracle: str, info) -> None:  # type: ignore[no-untyped-def]
    answer = BY_ID[oracle].check(replace(info, declared=False), Options())
    assert not [told(figure) for figure in answer.figures if figure.ok is False]
    assert answer.ok is True or (oracle == "gemms" and answer.summary.startswith("told, not judged"))


JUDGED = ("exact", "float64", "streaming", "calls", "unchanged", "second-order")
ROUNDED = {"TermCastFirst": "EinsumLinear", "SlopeChain": "StagedSwiGLU"}  # one rounding more than the right one has


@pytest.mark.slow
@pytest.mark.parametrize(
    ("oracle", "info"),
    [(o, k) for o in JUDGED for k in WRONG[o] if k.name not in ROUNDED],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_wrong_kernel_is_objected_to(oracle: str, info) -> None:  # type: ignore[no-untyped-def]
    assert BY_ID[oracle].check(replace(info, declared=False), Options()).ok is False


@pytest.mark.parametrize("kernel", ROUNDED)
def test_one_rounding_more_is_told_and_seen_beside_the_kernel_without_it(kernel: str) -> None:
    right = next(info for info in RIGHT if info.name == ROUNDED[kernel])
    before, after = (
        BY_ID["float64"].check(replace(info, name="k", declared=False), Options()).as_json()
        for info in (right, WRONG_BY_NAME[kernel])
    )
    assert before["ok"] is True and after["ok"] is True
    (found,) = compared([before], [after])
    assert found["ok"] is False and "rms, median of 12 seeds" in found["summary"]
