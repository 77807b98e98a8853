"""What a child is started with."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runner_trees import options_for, target_of

from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.jobs import Probed, Setting, environment, make_bridge, pytest_arguments, write_job


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    target = replace(target_of(tmp_path / "user", "pkg.mod"), pytest_args=("-k", "fast"), env=(("A", "1"),))
    options = options_for(tmp_path, threads=3, pytest_extra=("--no-cov",))
    return Setting(target, options, "cpu", make_bridge(tmp_path / "bridge"), ("src/pkg/mod.py",))


def test_the_cpu_column_hides_every_card_and_the_cuda_column_none(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    cpu = environment(setting, (), Path("/scratch"))
    assert (cpu["CUDA_VISIBLE_DEVICES"], cpu["HIP_VISIBLE_DEVICES"]) == ("-1", "-1")
    cuda = environment(replace(setting, device="cuda"), (), Path("/scratch"))
    assert cuda["CUDA_VISIBLE_DEVICES"] == "0"
    assert "HIP_VISIBLE_DEVICES" not in cuda


def test_the_environment_is_the_targets_and_not_our_callers(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("PYTHONHOME", "/ours")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "ours")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-v")
    monkeypatch.setenv("A", "of the caller")
    env = environment(setting, ["/copy/src"], Path("/scratch"))
    assert env["PYTHONPATH"] == os.pathsep.join(["/copy/src", str(setting.bridge)])
    assert not {"PYTHONHOME", "PYTEST_CURRENT_TEST"} & env.keys()
    assert (env["A"], env["PYTEST_ADDOPTS"], env["PYTHONDONTWRITEBYTECODE"]) == ("1", "-v", "1")
    assert {env[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"3"}
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert env["TMPDIR"] == env["PYTEST_DEBUG_TEMPROOT"] == "/scratch"


def test_the_targets_own_arguments_come_first_and_its_tests_last(setting: Setting) -> None:
    arguments = pytest_arguments(setting, Path("/scratch"))
    assert arguments == ["-k", "fast", "--no-cov", "-o", "cache_dir=/scratch/cache", "tests"]
    chosen = replace(setting, options=replace(setting.options, tests=("tests/a.py::t", "tests/b.py")))
    assert pytest_arguments(chosen, Path("/scratch"))[-2:] == ["tests/a.py::t", "tests/b.py"]


def test_the_bridge_links_what_runs_in_the_targets_interpreter_and_nothing_else(setting: Setting) -> None:
    package = setting.bridge / "fastlora_verify"
    assert sorted(path.name for path in package.iterdir()) == ["harness", "kernels", "oracles"]
    assert (package / "harness" / "child" / "warm.py").exists()


def job(setting: Setting, kind: str, tmp_path: Path, *, spawn: bool) -> dict[str, object]:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    path = write_job(setting, kind, Path("/copy"), scratch, (Probed("src/pkg/mod.py", (1,), (2,)),), spawn=spawn)
    data: dict[str, object] = json.loads(path.read_text())
    return data


def test_a_forked_child_runs_no_command_and_a_spawned_one_runs_the_same_suite(setting: Setting, tmp_path: Path) -> None:
    assert job(setting, jobs.SUITE, tmp_path, spawn=False)["exec"] is None
    command = job(setting, jobs.SUITE, tmp_path, spawn=True)["exec"]
    assert isinstance(command, list)
    assert command[:5] == [sys.executable, "-P", "-B", "-m", "fastlora_verify.harness.child.suite"]
    assert job(setting, jobs.ORACLE, tmp_path, spawn=True)["exec"][4] == command[4]  # type: ignore[index]


def test_an_audit_is_a_pytest_without_anything_of_ours(setting: Setting, tmp_path: Path) -> None:
    command = job(setting, jobs.AUDIT, tmp_path, spawn=False)["exec"]
    assert isinstance(command, list)
    assert command[:5] == [sys.executable, "-P", "-B", "-m", "pytest"]
    assert "-p" not in command[5:]
    assert not any("fastlora_verify" in argument for argument in command)
    assert command[-1] == "tests"


@pytest.mark.parametrize(("root", "path"), [("src", "/copy/src"), (".", "/copy"), ("", "/copy")])
def test_source_roots_lie_in_the_copy(setting: Setting, tmp_path: Path, root: str, path: str) -> None:
    rooted = replace(setting, target=replace(setting.target, source_roots=(root,)))
    assert job(rooted, jobs.SUITE, tmp_path, spawn=False)["roots"] == [path]
