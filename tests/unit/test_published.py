"""The catalogue on published kernels that it was not shaped to: read, planned, and every mutant compiled. Not run."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from reference_plan import sites
from renaming import rename

from fastlora_verify.harness import cli
from fastlora_verify.harness.discover.read import read_repository
from fastlora_verify.harness.discover.write import target_table
from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target_file import load_target
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


def test_init_list_and_diff_work_on_kernels_that_need_a_card(
    unpacked: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(unpacked("unsloth", "2026.3.4"))
    Path("fastlora-verify.toml").unlink(missing_ok=True)
    before = {path: path.read_bytes() for path in Path("unsloth/kernels").rglob("*.py")}
    assert cli.run(["init", "-o", "fastlora-verify.toml"]) == 0
    capsys.readouterr()
    assert cli.run(["list", "--target", ".", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["faults"] == []
    assert {kernel["file"] for kernel in found["kernels"]} == {"unsloth/kernels/fast_lora.py"}
    assert cli.run(["diff", "*", "--target", "."]) == 0
    printed = capsys.readouterr().out
    for site in found["sites"]:
        assert f"# {site['name']}: {site['gist']}\n{site['diff']}" in printed
        lines = before[Path(site["file"])].decode().splitlines()
        assert 1 <= site["line"] <= len(lines)
    assert {path: path.read_bytes() for path in before} == before
    for how in ("table", "markdown"):
        assert cli.run(["list", "--target", ".", "--format", how]) == 0
        text = capsys.readouterr().out
        assert all(f"{site['file']}:{site['line']}" in text for site in found["sites"])


def test_soup_cli_under_other_names_has_the_same_sites(unpacked: Callable[[str, str], Path]) -> None:
    root = unpacked("soup-cli", "0.77.0")
    plan = planned(root)
    target = load_target(root)
    sources = read_sources(target)
    files = [*root.glob("src/**/*.py"), *root.glob("tests/**/*.py")]
    own = {file.text for file in sources.values()}
    texts = [path.read_text(encoding="utf-8") for path in files]
    renamed = rename(sources, target.kernels, [text for text in texts if "fast_lora" in text and text not in own])
    assert len(renamed.names) > 20
    assert sites(plan_mutants(renamed.sources, renamed.kernels)) == sites(plan)
    for module, file in renamed.sources.items():
        ast.parse(file.text)
        assert file.text != sources[module].text
        (root / file.path).write_bytes(file.text.encode())
    again = planned(root)  # the roles found anew, under the other names
    assert sites(again) == sites(plan)
    nodes = {kernel.name: f"{kernel.function.rpartition('.')[2]}Backward" for kernel in renamed.kernels}
    assert load_target(root).kernels == tuple(replace(k, node=nodes[k.name]) for k in renamed.kernels)
