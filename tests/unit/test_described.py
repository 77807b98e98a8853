"""Kernels that a target only describes: how their patchers are called, and what the oracles make of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft.tuners.lora.layer as lora
import pytest
import torch

from fastlora_verify.harness.child import patch_call
from fastlora_verify.harness.child.described import found, kernels
from fastlora_verify.harness.child.patch_call import UnclearCallError, calls_of, parsed
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.samples import Sample, build
from fastlora_verify.oracles.arms import ran
from fastlora_verify.oracles.base import NotRunError, Options, OracleResult, told
from fastlora_verify.oracles.registry import ORACLES

FOREIGN = Path(__file__).resolve().parents[1] / "testdata" / "foreign" / "src"
BY_ID = {oracle.id: oracle for oracle in ORACLES}


@pytest.fixture(autouse=True)
def _foreign(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The foreign package, imported anew for each test: its patchers remember classes."""
    monkeypatch.syspath_prepend(str(FOREIGN))
    threads, forward = torch.get_num_threads(), lora.Linear.forward
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.partition(".")[0] == "foreign"]:
        del sys.modules[name]
    lora.Linear.forward = forward
    if "plain_forward" in vars(lora.Linear):
        del lora.Linear.plain_forward


def described(patcher: str, kind: str = "linear", unpatcher: str = "", call: str = "") -> dict[str, str]:
    """A kernel of the foreign package as a job has it."""
    node = {"linear": "FusedProjectionBackward", "swiglu-mlp": "FusedMLPBackward"}.get(kind, "None")
    return {
        "name": "k",
        "kind": kind,
        "node": node,
        "patcher": f"foreign.{patcher}" if patcher else "",
        "unpatcher": f"foreign.{unpatcher}" if unpatcher else "",
        "patch_call": call,
    }


def info_of(*args: str, **more: str) -> KernelInfo:
    """The foreign kernel as the oracles get it."""
    ((_, info),) = kernels([described(*args, **more)])
    assert isinstance(info, KernelInfo), info
    return info


def asked(oracle: str, info: KernelInfo) -> OracleResult:
    """One oracle's answer."""
    return BY_ID[oracle].check(info, Options())


def red(answer: OracleResult) -> list[str]:
    """The figures that object."""
    return [told(figure) for figure in answer.figures if figure.ok is False]


# --- how a patcher is called ---------------------------------------------------------------------------


def takes_block(layer): ...  # type: ignore[no-untyped-def]
def takes_unknown(x): ...  # type: ignore[no-untyped-def]
def takes_class(cls): ...  # type: ignore[no-untyped-def]
def takes_nothing(): ...  # type: ignore[no-untyped-def]
def takes_options(*, allow_dropout=False, **more): ...  # type: ignore[no-untyped-def]
def takes_more(model, peft_config, /, layer_idx, *rest, adapter): ...  # type: ignore[no-untyped-def]
def takes_optional_model(model=None, rank=8): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (takes_block, ["(block)", "(model)"]),
        (takes_unknown, ["(model)", "(block)"]),
        (takes_class, ["(cls)"]),
        (takes_nothing, ["()"]),
        (takes_options, ["()"]),
        (
            takes_more,
            ["(model, lora_config, 0, adapter=adapter_name)", "(block, lora_config, 0, adapter=adapter_name)"],
        ),
        (takes_optional_model, ["(model)", "(block)"]),
    ],
)
def test_a_signature_says_how_a_patcher_is_called(function: Any, calls: list[str]) -> None:
    assert [str(call) for call in calls_of(function)] == calls


def test_a_parameter_whose_name_says_nothing_is_asked_for() -> None:
    def patch(model, *, flavour): ...  # type: ignore[no-untyped-def]

    with pytest.raises(UnclearCallError, match=r"needs an argument 'flavour'.*patch-call"):
        calls_of(patch)


def test_a_written_call_is_read() -> None:
    call = parsed("patch(block, adapter_name, 8, flavour='sweet', size=-1)")
    assert str(call) == "(block, adapter_name, 8, flavour='sweet', size=-1)"
    assert call.positional[2].value == 8 and call.positional[0].role == patch_call.BLOCK


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("patch", "is no call"),
        ("patch(", "is no call"),
        ("patch(modle)", "found the name modle"),
        ("patch(open('x'))", "arguments are"),
        ("patch(*model)", r"with \* or"),
    ],
)
def test_a_written_call_of_anything_else_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UnclearCallError, match=problem):
        parsed(text)


# --- patchers of many shapes ---------------------------------------------------------------------------

TAKEN = {
    "assigns the model's forwards, counts nothing": ("kernel:patch",),
    "takes one layer": ("shapes:one_layer",),
    "assigns to a class": ("shapes:with_class",),
    "wants more arguments": ("shapes:with_more",),
    "wants a Llama, patches its MLP": ("shapes:llama_only", "swiglu-mlp", "shapes:unpatch_llama"),
    "wants a Llama, patches projections": ("shapes:projections_of_llama",),
}


@pytest.mark.parametrize("shape", TAKEN)
def test_a_kernel_is_found_right_whatever_its_patcher_looks_like(shape: str) -> None:
    info = info_of(*TAKEN[shape])
    for oracle in ("exact", "float64", "saved-bytes", "dropout", "unchanged"):
        answer = asked(oracle, info)
        assert answer.ok is True, (oracle, answer.summary, red(answer))


def test_a_class_has_its_own_forward_back_after_each_model() -> None:
    own = lora.Linear.forward
    info = info_of("shapes:with_class")
    for _ in range(2):
        model, x = build("linear", Sample())
        assert not ran(info, model, x)
        info.patch(model)
        assert ran(info, model, x)
        assert lora.Linear.forward is own


def test_a_written_call_goes_before_the_signature() -> None:
    assert isinstance(found(described("shapes:one_layer", call="one_layer(block)")).info(), KernelInfo)
    with pytest.raises(NotRunError, match="not a LoRA layer"):
        found(described("shapes:one_layer", call="one_layer(model)"))


NOT_TAKEN = {
    "shapes:with_riddle": "needs an argument 'flavour'",
    "shapes:nothing": "called as (model) on the sample model, the patcher left the model to PEFT: it returned 0",
    "shapes:without_kernel": "no FusedProjectionBackward on the output, whose node is AddBackward0",
    "shapes:raises": "raises LookupError: no such thing",
    "shapes:renames": "the patcher renames parameters: proj.base_layer.bias",
    "shapes:absent": "foreign.shapes:absent is not there to be called",
    "shapes:mlp_forward.forward": "foreign.shapes:mlp_forward.forward is not there to be called",
    "absent:patch": "importing foreign.absent raises ModuleNotFoundError",
    "": "the description names no patcher",
}


@pytest.mark.parametrize("patcher", NOT_TAKEN)
def test_a_kernel_that_cannot_be_put_on_a_model_is_not_run_and_why(patcher: str) -> None:
    ((name, reason),) = kernels([described(patcher)])
    assert name == "k" and isinstance(reason, str)
    assert reason.startswith("not run: ") and NOT_TAKEN[patcher] in reason


def test_a_kind_without_sample_model_is_not_run() -> None:
    ((_, reason),) = kernels([described("kernel:patch", "other")])
    assert reason == "not run: there is no sample model of kind 'other'"


# --- what the oracles make of one ----------------------------------------------------------------------


@pytest.fixture
def info() -> KernelInfo:
    """The foreign projection."""
    return info_of("kernel:patch", "linear", "kernel:unpatch")


def test_where_it_hands_back_is_told_and_not_judged(info: KernelInfo) -> None:
    answer = asked("node-taken", info)
    rows = {figure.name: figure for figure in answer.figures}
    assert answer.ok is True and not red(answer)
    cells = dict(rows["bf16 dense, bias"].cells)
    assert cells["3-D"] == "kernel" and cells["autocast bf16"] == "AddBackward0"
    assert "7 of 9 calls through the kernel; autocast bf16: AddBackward0" in str(rows["bf16 dense, bias"].value)
    assert rows["bf16 nf4, no bias"].ok is None and "handed back to PEFT in all" in str(rows["bf16 nf4, no bias"].value)


def test_what_it_costs_is_told_and_not_judged(info: KernelInfo) -> None:
    answer = asked("gemms", info)
    assert answer.ok is None and answer.summary.startswith("told, not judged: products, forward: 3 (PEFT 3)")


def test_a_copy_that_trains_the_original_is_a_fault_of_anybody(info: KernelInfo) -> None:
    answer = asked("calls", info)
    assert answer.ok is False and len(red(answer)) == 1 and red(answer)[0].startswith("deep copy: ")


def test_other_oracles_do_not_object(info: KernelInfo) -> None:
    for oracle in BY_ID.keys() - {"node-taken", "gemms", "calls"}:
        answer = asked(oracle, info)
        assert answer.ok is True, (oracle, answer.summary, red(answer))


@pytest.mark.parametrize("oracle", ["unchanged", "streaming"])
def test_where_peft_ran_nothing_is_said_of_the_kernel(oracle: str, info: KernelInfo) -> None:
    figures = [figure for figure in asked(oracle, info).figures if "nf4" in figure.name]
    assert figures
    assert {(figure.value, figure.ok) for figure in figures} == {("not run: the call was handed back to PEFT", None)}


def test_dropout_may_be_modelled_unasked_and_is_then_read_off_the_output() -> None:
    answer = asked("dropout", info_of("shapes:models_dropout"))
    assert answer.ok is True, red(answer)
    assert [figure.value for figure in answer.figures if "neither 0" in figure.name] == [0]


def test_without_an_unpatcher_there_is_no_lifecycle() -> None:
    answer = asked("lifecycle", info_of("kernel:patch"))
    assert answer.ok is None and answer.summary == "not run: the description names no unpatcher"


EDITS = {
    "scaling dropped in dX": ("(dh @ a)", "(dy_wide @ b @ a)", "exact"),
    "scaling dropped in the forward": ("scale * (hidden", "(hidden", "exact"),
    "dA missing": ("dx, None, None, da, db", "dx, None, None, None, db", "exact"),
    "a wide tensor more saved": ("b, hidden)\n", "b, hidden, dense(hidden, x))\n", "saved-bytes"),
    "X written to": ("hidden = x.to", "x.detach().mul_(1)\n            hidden = x.to", "unchanged"),
    "raises on fp16": ("hidden = x.to", "assert x.dtype != torch.float16\n            hidden = x.to", "node-taken"),
    "output in fp32": ("(hidden @ b.t())).to(x.dtype)", "(hidden @ b.t())).float()", "node-taken"),
    "differentiable twice": ("@once_differentiable", "# no longer once", "second-order"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_wrong_one_is_seen(edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, oracle = EDITS[edit]
    package = tmp_path / "foreign"
    package.mkdir()
    (package / "__init__.py").touch()
    text = (FOREIGN / "foreign" / "kernel.py").read_text()
    assert text.count(old) == 1
    text = text.replace(old, new).replace("x, weight, a, b, hidden = ctx", "x, weight, a, b, hidden, *_ = ctx")
    more = "\n\ndef dense(hidden, x):\n    return torch.cat([x, x, x, x, hidden], dim=1)\n"
    (package / "kernel.py").write_text(text + more)
    monkeypatch.syspath_prepend(str(tmp_path))
    answer = asked(oracle, info_of("kernel:patch", "linear", "kernel:unpatch"))
    assert answer.ok is False, answer.summary


WITHOUT = """
import subprocess
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # importing one of them raises
sys.path.insert(0, {source!r})
from fastlora_verify.harness.child.answers import answers, missing
job = {{"described": [{kernel!r}]}}
print(missing(job))
if not missing(job):
    from fastlora_verify.oracles.base import Options
    from fastlora_verify.oracles.registry import ORACLES
    for answer in answers(job, ORACLES, [], lambda oracle, info: oracle.check(info, Options()).as_json()):
        print(answer["oracle"], answer["ok"], "bitsandbytes is not installed" in str(answer["figures"]))
"""


def without(*libraries: str) -> list[str]:
    """What an interpreter that lacks some libraries says of the foreign projection."""
    code = WITHOUT.format(source=str(FOREIGN), kernel=described("kernel:patch", "linear", "kernel:unpatch"))
    command = [sys.executable, "-P", "-B", "-c", code, *libraries]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_without_bitsandbytes_the_dense_rows_are_still_asked() -> None:
    first, *answers = without("bitsandbytes")
    assert first == ""
    told = {name: (ok, missing) for name, ok, missing in (line.split() for line in answers)}
    assert told.keys() == BY_ID.keys()
    assert {name for name, (ok, _) in told.items() if ok == "False"} == {"calls"}  # see above: the deep copy
    assert {name for name, (_, missing) in told.items() if missing == "True"} >= {"node-taken", "float64", "streaming"}


@pytest.mark.slow
def test_without_peft_no_oracle_is_run_and_the_library_is_named() -> None:
    (reason,) = without("peft")
    assert reason.startswith("not run: the target's interpreter lacks a library that the oracles need (")
    assert "peft" in reason
