"""The oracles on published kernels, from what `init` writes of them, unedited: the figures of their review come out."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fastlora_verify.reports import record as rec

pytestmark = [pytest.mark.network, pytest.mark.slow]
COMMAND = (sys.executable, "-P", "-c", "from fastlora_verify.harness.cli import main; main()")
FIXTURE = ("--seeds", "3,7,11", "--fixture", "widths=8,12", "--fixture", "sibling_scale=4")


@pytest.fixture(scope="module")
def soup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """soup-cli 0.77.0 unpacked, with `init`'s own table."""
    folder = tmp_path_factory.mktemp("soup")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    command += ["--dest", str(folder), "soup-cli==0.77.0"]
    subprocess.run(command, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    root = next(path for path in folder.iterdir() if path.is_dir())
    run(root, 0, "init", ".", "-o", "fastlora-verify.toml")
    return root


def run(folder: Path, status: int, *argv: str) -> str:
    """The command line's output, run in a folder."""
    done = subprocess.run([*COMMAND, *argv], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def answers(folder: Path, status: int, *argv: str) -> dict[tuple[str, str], rec.OracleRecord]:
    """What `oracle` records, by oracle and kernel."""
    run(folder, status, "oracle", *argv, "--target", ".", "--run-dir", str(folder.parent / "run"), "--json", "o.json")
    record = rec.loads((folder / "o.json").read_text())
    return {(answer.oracle, answer.kernel): answer for answer in record.oracles}


def test_the_reviews_ratios_and_bytes_come_out(soup: Path) -> None:
    found = answers(soup, 0, "float64", "saved-bytes", "--kernel", "mlp", *FIXTURE)
    ratios = {f.name: f.value for f in found["float64", "mlp"].figures if f.name.startswith("nf4, seed ")}
    assert {name: round(float(value or 0), 4) for name, value in ratios.items()} == {
        "nf4, seed 3: dX": 1.2339,
        "nf4, seed 7: dB of gate_proj": 1.6956,
        "nf4, seed 11: out": 1.0,
    }
    saved = {f.name: f.value for f in found["saved-bytes", "mlp"].figures}
    assert saved["Llama-3.1-8B, bf16: PEFT"] == 611_844_096
    assert saved["Llama-3.1-8B, bf16: kernel"] == 494_141_440


def test_of_the_right_kernels_only_true_differences_from_peft_are_told(soup: Path) -> None:
    """Another dtype than PEFT's out of a 4-bit layer under autocast; a copy, and K and V, of stale state."""
    found = answers(soup, 1)
    assert {key[1] for key in found} == {"linear", "mlp", "qkv"}
    red = {(*key, f.name.partition(":")[0]) for key, answer in found.items() for f in answer.figures if f.ok is False}
    autocast = "fp32 nf4-nested, no bias"
    assert red == {
        *(("node-taken", kernel, autocast) for kernel in ("linear", "mlp", "qkv")),
        ("calls", "qkv", "deep copy"),
        ("calls", "qkv", "x changed between q and k"),
    }
    silent = {key for key, answer in found.items() if answer.ok is None}
    assert silent == {("gemms", kernel) for kernel in ("linear", "mlp", "qkv")}


MUTANTS = {
    "scaling-dropped-in-dx": "exact",
    "delegates-on-bf16": "node-taken",
    "lora-term-cast-before-add-here": "float64",
    "activation-saved": "saved-bytes",
}


@pytest.mark.skipif(
    importlib.util.find_spec("pytest_cov") is None, reason="the package's pytest options need pytest-cov"
)
def test_mutants_are_held_to_the_unmutated_kernels_figures(soup: Path) -> None:
    selected = ("--kernel", "mlp", "--tests", "tests/test_issue837_fast_lora_mlp.py", "--target", ".")
    run(soup, 0, "mutate", *MUTANTS, *selected, "--run-dir", str(soup.parent / "run"), "--json", "m.json")
    record = rec.loads((soup / "m.json").read_text())
    assert {mutant.mutation for mutant in record.mutants} == MUTANTS.keys()
    for mutant in record.mutants:
        assert all(answer.compared for answer in mutant.oracles)
        seen = {answer.oracle for answer in mutant.oracles if answer.ok is False}
        assert MUTANTS[mutant.mutation] in seen, (mutant.name, seen)
