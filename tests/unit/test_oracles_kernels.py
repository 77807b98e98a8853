"""Every oracle accepts every right kernel, the reference ones and three that are written differently, and rejects
wrong ones that no mutation of the catalogue makes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hand_made import RIGHT, WRONG

import fastlora_verify.kernels.linear
from fastlora_verify.kernels.database import KERNELS
from fastlora_verify.oracles import base, registry
from fastlora_verify.oracles.base import Options
from fastlora_verify.oracles.registry import ORACLES

BY_ID = {oracle.id: oracle for oracle in ORACLES}
RIGHT_KERNELS = {info.name: info for info in (*KERNELS, *RIGHT)}
WRONG_KERNELS = [(oracle, info) for oracle, kernels in WRONG.items() for info in kernels]
LINEAR = RIGHT_KERNELS["EinsumLinear"]


def patched_by(patch):
    """A linear kernel with another patcher."""
    return replace(LINEAR, patch=patch)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("oracle", BY_ID)
@pytest.mark.parametrize("kernel", RIGHT_KERNELS)
def test_a_right_kernel_is_accepted(oracle, kernel):
    answer = BY_ID[oracle].check(RIGHT_KERNELS[kernel], Options())
    red = [base.told(figure) for figure in answer.figures if figure.ok is False]
    assert answer.ok is True, red or answer.summary
    assert (answer.oracle, answer.kernel) == (oracle, kernel)
    json.dumps(answer.as_json(), allow_nan=False)


@pytest.mark.parametrize("oracle, info", WRONG_KERNELS, ids=[f"{o}-{k.name}" for o, k in WRONG_KERNELS])
def test_a_wrong_kernel_is_rejected(oracle, info):
    answer = BY_ID[oracle].check(info, Options())
    assert answer.ok is False, answer.summary
    assert any(figure.ok is False for figure in answer.figures)


def test_every_oracle_has_a_wrong_kernel_to_reject():
    assert WRONG.keys() == BY_ID.keys()
    assert len({info.name for _, info in WRONG_KERNELS}) >= 10


def test_dropout_modelled_wrongly_is_rejected(monkeypatch):
    (linear,) = [info for info in KERNELS if info.name == "linear"]
    assert BY_ID["dropout"].check(linear, Options()).ok is True
    monkeypatch.setattr(fastlora_verify.kernels.linear, "drop", lambda X, keep, p: X if keep is None else X * keep)
    answer = BY_ID["dropout"].check(linear, Options())
    assert answer.ok is False
    assert "elements neither 0 nor s x / (1 - p)" in answer.summary


def test_dropout_that_is_neither_modelled_nor_handed_back_is_named():
    (unheeded,) = WRONG["dropout"]
    answer = BY_ID["dropout"].check(unheeded, Options())
    assert [(figure.value, figure.ok) for figure in answer.figures if "without opting in" in figure.name] == [
        (1, False)
    ]


@pytest.mark.parametrize("oracle", BY_ID)
def test_a_kernel_that_raises_is_a_finding_and_no_crash(oracle):
    def raises(model):
        for module in model.modules():
            if hasattr(module, "lora_A"):
                vars(module)["forward"] = broken
        return 1

    def broken(*args, **kwargs):
        raise ZeroDivisionError("inside the kernel")

    info = patched_by(raises)
    answer = BY_ID[oracle].check(info, Options())
    assert answer.ok is False
    assert "ZeroDivisionError: inside the kernel" in str(answer.as_json())


@pytest.mark.parametrize("oracle", sorted(BY_ID.keys() - {"dropout", "lifecycle"}))
def test_a_patcher_that_patches_nothing_is_a_finding(oracle):
    answer = BY_ID[oracle].check(patched_by(lambda model: 0), Options())
    assert answer.ok is False
    assert "patched 0 blocks" in str(answer.as_json())


def test_a_patcher_that_patches_nothing_has_no_life():
    answer = BY_ID["lifecycle"].check(patched_by(lambda model: 0), Options())
    assert answer.summary.startswith("blocks patched: 0 (limit 1)")


@pytest.mark.parametrize("oracle", ["exact", "float64", "gemms", "second-order", "saved-bytes"])
def test_a_kernel_that_hands_everything_back_is_not_called_right(oracle):
    answer = BY_ID[oracle].check(patched_by(lambda model: 1), Options())
    assert answer.ok is None
    assert "handed back to PEFT" in answer.summary


@pytest.mark.skipif(torch.cuda.is_available(), reason="speaks of a machine without a card")
@pytest.mark.parametrize("oracle", BY_ID)
def test_a_device_that_is_not_here_is_never_a_pass(oracle):
    answer = BY_ID[oracle].check(LINEAR, Options(device="cuda"))
    judged = [figure for figure in answer.figures if figure.ok is not None]
    assert "not run: no CUDA device" in str(answer.as_json())
    if oracle == "saved-bytes":  # the meta device needs no card
        assert judged
    else:
        assert answer.ok is None and not judged


def test_folder_and_registry_agree_and_each_oracle_says_what_it_is_blind_to():
    folder = Path(registry.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if "\nORACLE = Oracle(" in path.read_text()}
    assert {oracle.id.replace("-", "_") for oracle in ORACLES} == modules
    assert all(oracle.title and oracle.sees and oracle.blind_to for oracle in ORACLES)
