"""The catalogue on published kernels that it was not shaped to: read, planned, and every mutant compiled. Not run."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fastlora_verify.harness.discover.read import read_repository
from fastlora_verify.harness.discover.write import target_table
from fastlora_verify.harness.sources import read_sources
from fastlora_verify.harness.target_file import load_target
from fastlora_verify.mutations.plan import Plan, plan_mutants

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The source archive of a distribution, unpacked; nothing of it is built or imported."""

    def get(name: str, version: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", folder, f"{name}=={version}"], check=True, capture_output=True)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        return next(path for path in folder.iterdir() if path.is_dir())

    return get


def planned(root: Path) -> Plan:
    """What `init`'s own table, unedited, gives."""
    (root / "fastlora-verify.toml").write_text(target_table(read_repository(root)))
    target = load_target(root)
    return plan_mutants(read_sources(target), target.kernels, target.instruments)


def test_every_family_finds_its_sites_in_soup_cli(unpacked: Callable[[str, str], Path]) -> None:
    root = unpacked("soup-cli", "0.77.0")
    plan = planned(root)
    assert plan.faults == ()
    families = Counter(mutant.family for mutant in plan.mutants)
    for family in (
        "delegation",
        "mathematics",
        "precision",
        "quantised weight",
        "memory and streaming",
        "guards",
        "lifecycle",
    ):
        assert families[family] > 0, family
    assert len(plan.mutants) > 200
    assert len(load_target(root).tests) == 6


def test_kernels_without_delegation_have_sites_and_every_mutant_compiles(unpacked: Callable[[str, str], Path]) -> None:
    plan = planned(unpacked("unsloth", "2026.3.4"))
    assert plan.faults == ()
    per_kernel = Counter(kernel for mutant in plan.mutants for kernel in mutant.kernels)
    assert set(per_kernel) == {"mlp", "qkv", "linear"}
    assert all(count >= 5 for count in per_kernel.values()), per_kernel
    assert {"scaling-dropped-in-da", "scaling-dropped-in-db", "lora-term-dropped-from-dx"} <= {
        mutant.mutation for mutant in plan.mutants
    }
    reasons = {(cell.mutation, cell.reason) for cell in plan.no_sites}
    assert any(mutation == "delegates-always" for mutation, _ in reasons)
