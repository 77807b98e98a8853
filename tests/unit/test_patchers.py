"""How a patcher is called, as `init` reads it from source and as a target file says it."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from fastlora_verify.harness.discover.read import read_repository
from fastlora_verify.harness.discover.write import target_table
from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.targets.described import check_askable, described_kernels, why_not_asked
from fastlora_verify.harness.targets.patchers import patch_call
from fastlora_verify.harness.targets.target_file import load_target

FOREIGN = Path(__file__).resolve().parents[1] / "testdata" / "foreign"


def read(text: str) -> tuple[str, str]:
    """What is written of a function's source."""
    (function,) = cst.parse_module(text).body
    assert isinstance(function, cst.FunctionDef)
    return patch_call(function)


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("def patch(model): ...", ""),
        ("def patch(model, *, allow_dropout=False, **more): ...", ""),
        ("def patch(layer): ...", ""),  # a block or a model: the sample tells
        ("def enable(cls): ...", "enable(cls)"),
        ("def patch(model, config, /): ...", "patch(model, config)"),
        ("def patch(model, *rest, adapter: str, rank=8): ...", "patch(model, adapter=adapter_name)"),
        ("def patch_all(): ...", "patch_all()"),
    ],
)
def test_a_call_is_written_where_it_is_more_than_one_on_the_model(source: str, call: str) -> None:
    assert read(source) == (call, "")


def test_a_parameter_without_a_meaning_is_a_doubt() -> None:
    call, doubt = read("def patch(model, flavour, rank=8): ...")
    assert call == "" and doubt.startswith("patch-call: it needs an argument 'flavour'")


def repository(folder: Path, patcher: str) -> Path:
    """The foreign package with another patcher."""
    (folder / "src" / "foreign").mkdir(parents=True)
    text = (FOREIGN / "src" / "foreign" / "kernel.py").read_text()
    assert text.count("def patch(model):") == 1
    (folder / "src" / "foreign" / "kernel.py").write_text(text.replace("def patch(model):", patcher))
    return folder


def written(folder: Path, patcher: str) -> str:
    """The table that `init` writes of it."""
    return target_table(read_repository(repository(folder, patcher)))


def test_init_writes_the_call_and_the_target_has_it(tmp_path: Path) -> None:
    text = written(tmp_path, "def patch(model, config):")
    assert 'patch-call = "patch(model, config)"' in text
    (tmp_path / "fastlora-verify.toml").write_text(text)
    target = load_target(tmp_path)
    (kernel,) = described_kernels(target) or []
    assert kernel["patch_call"] == "patch(model, config)"
    assert (kernel["kind"], kernel["patcher"]) == ("linear", "foreign.kernel:patch")
    check_askable(target)


def test_init_says_nothing_of_a_plain_call_and_doubts_an_unclear_one(tmp_path: Path) -> None:
    assert "patch-call" not in written(tmp_path / "plain", "def patch(model):")
    assert "# unsure: patch-call: it needs an argument 'flavour'" in written(
        tmp_path / "unclear", "def patch(model, flavour):"
    )


@pytest.mark.parametrize("call", ["patch(modle)", "patch", "patch(*model)"])
def test_a_wrong_call_names_its_key_and_what_is_allowed(tmp_path: Path, call: str) -> None:
    text = written(tmp_path, "def patch(model):")
    (tmp_path / "fastlora-verify.toml").write_text(text + f'patch-call = "{call}"\n')
    with pytest.raises(TargetError, match=r"key kernel\[0\]\.patch-call of 'linear': found .*; allowed: a call"):
        load_target(tmp_path)


def test_without_a_patcher_there_is_nothing_to_ask(tmp_path: Path) -> None:
    lines = written(tmp_path, "def patch(model):").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("patcher"))
    (tmp_path / "fastlora-verify.toml").write_text(text)
    target = load_target(tmp_path)
    assert why_not_asked(target).startswith("no kernel of the target has a patcher and a kind with sample models")
    with pytest.raises(TargetError, match="no kernel of the target has a patcher"):
        check_askable(target)
    assert not why_not_asked(load_target(None))
