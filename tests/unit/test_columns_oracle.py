"""Two unmutated trees are compared by the oracles: a refactor that turns a bf16 output into fp32 is seen."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from repositories import commit, git, hashes, new_repository

from fastlora_verify.harness import session
from fastlora_verify.harness.ask import Question
from fastlora_verify.harness.exit_code import ExitCode, of_oracles
from fastlora_verify.harness.targets.target_file import package_folder
from fastlora_verify.harness.trees.columns import Wanted
from fastlora_verify.reports.markdown import render

pytestmark = pytest.mark.slow  # runs of the tool


def repository(folder: Path) -> Path:
    """The reference kernels on `main`; on `change` the single projection returns fp32 whatever its input."""
    for name in ("kernels", "oracles"):
        source = package_folder(f"fastlora_verify.{name}")
        assert source is not None
        to = folder / "src" / "fastlora_verify" / name
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "src/fastlora_verify/kernels/reference.toml").read_text("utf-8")
    text = re.sub(r"\[target\.place\].*?\n\n", "", text, flags=re.DOTALL)
    text = text.replace('source-roots = ["src"]', 'root = "."\nsource-roots = ["src"]')
    new_repository(folder)
    commit(folder, {"fastlora-verify.toml": text})
    git(folder, "checkout", "-q", "-b", "change")
    path = "src/fastlora_verify/kernels/linear.py"
    before, cut, after = (folder / path).read_text("utf-8").rpartition("    return out\n")
    assert cut
    commit(folder, {path: f"{before}    return out.float()\n{after}"})
    return folder


def test_an_output_dtype_that_changed_stands_beside_the_other(tmp_path: Path) -> None:
    top = repository(tmp_path / "repo")
    before = hashes(top)
    request = session.Request(
        command=("fastlora-verify", "oracle"),
        target=top,
        run_dir=tmp_path / "run",
        columns=Wanted(("source=head", "source=main,tests=main")),
    )
    record = session.oracle(request, Question(oracles=("node-taken",), kernels=("linear",)))
    assert [(answer.column, answer.ok) for answer in record.oracles] == [("head:cpu", False), ("main:cpu", True)]
    (row,) = [
        line for line in render(record).splitlines() if line.startswith("| node-taken | linear | bf16 dense, bias |")
    ]
    assert "torch.float32, PEFT gives torch.bfloat16" in row
    assert row.endswith("| **differs** |")
    assert of_oracles(record) is ExitCode.SURVIVORS
    assert hashes(top) == before
