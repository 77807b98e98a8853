"""What a child is started with: its job, its environment, its command line."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastlora_verify.harness.child.place import AS_WRITTEN as AS_WRITTEN
from fastlora_verify.harness.child.place import COLD_JOB
from fastlora_verify.harness.child.place import LIST as LIST
from fastlora_verify.harness.child.place import NOTED as NOTED
from fastlora_verify.harness.child.place import SEEDED as SEEDED
from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.targets.described import described_kernels
from fastlora_verify.harness.targets.target import Target

SUITE, ORACLE, PLAIN, AUDIT = "suite", "oracle", "plain", "audit"

_CHILD = "fastlora_verify.harness.child"
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_HIDDEN_CARDS = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
# What our caller's own interpreter and test run are set to is no business of the target's.
_FOREIGN = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSAFEPATH",
    "PYTHONSTARTUP",
    "PYTEST_CURRENT_TEST",
    "PYTEST_VERSION",
    "PYTEST_XDIST_WORKER",
    "PYTEST_XDIST_WORKER_COUNT",
    "PYTEST_XDIST_TESTRUNUID",
)


@dataclass(frozen=True)
class Probed:
    """A file of the copy with its probed lines."""

    path: str
    reached: tuple[int, ...] = ()
    triggered: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """Tests to run of those whose ids have the digest `collected`."""

    tests: tuple[str, ...]
    collected: str
    backwards: bool = False  # the last first
    as_listed: bool = False  # in the order of `tests`, else in the suite's


@dataclass(frozen=True)
class Until:
    """When a run of the tests may end early, see `child/stopping.py`."""

    passed: tuple[str, ...]
    files: tuple[str, ...]
    names: tuple[str, ...]
    more: int


@dataclass(frozen=True)
class Alone:
    """One test in place of the target's tests."""

    tests: tuple[str, ...]  # pytest's arguments that select it
    sweep: Mapping[str, Any] | None  # what child/sweep.py is asked; None: as any other test is run
    arguments: tuple[str, ...] = ()  # more of pytest's
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """What all jobs of one column share."""

    target: Target
    options: RunOptions
    device: str
    bridge: Path
    watch: tuple[str, ...]  # files whose failing import is told

    @property
    def python(self) -> str:
        """The interpreter that runs the target."""
        return self.target.python or sys.executable

    @property
    def tests(self) -> tuple[str, ...]:
        """Arguments of pytest that select the tests."""
        return self.options.tests if self.options.tests is not None else self.target.tests


def make_bridge(path: Path) -> Path:
    """A folder that, on the path, lets the target's interpreter import those parts of ours that run in it.

    Only links: nothing of ours is installed into the target's environment.
    """
    package = path / "fastlora_verify"
    package.mkdir(parents=True)
    for name in ("harness", "kernels", "oracles"):
        spec = importlib.util.find_spec(f"fastlora_verify.{name}")
        assert spec is not None and spec.origin is not None
        folder = Path(spec.origin).resolve().parent
        (package / name).symlink_to(folder, target_is_directory=True)
    return path


def environment(setting: Setting, roots: Sequence[str], scratch: Path) -> dict[str, str]:
    """The child's environment. `roots` are absolute; the bridge comes right after them."""
    env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    folder = str(Path(setting.python).parent)
    if os.path.isabs(setting.python) and env.get("PATH", "").split(os.pathsep)[0] != folder:
        env["PATH"] = os.pathsep.join([folder, env.get("PATH", os.defpath)])
    env |= dict.fromkeys(_THREADS, str(setting.options.threads))
    if setting.device == "cpu":
        env |= _HIDDEN_CARDS
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(scratch), "PYTEST_DEBUG_TEMPROOT": str(scratch)}
    env |= dict(setting.target.env)
    env["PYTHONPATH"] = os.pathsep.join([*roots, str(setting.bridge)])
    return env


def module_command(setting: Setting, module: str, *arguments: str) -> list[str]:
    """Runs one of our child modules in the target's interpreter."""
    return [setting.python, "-P", "-B", "-m", f"{_CHILD}.{module}", *arguments]


def pytest_arguments(setting: Setting, scratch: Path, alone: Alone | None = None) -> list[str]:
    """The same for every kind of run. The cache lies outside of the copy and is new each time."""
    extra = setting.options.pytest_extra
    own = ["-o", f"cache_dir={scratch / 'cache'}", *(alone.arguments if alone else ())]
    return [*setting.target.pytest_args, *extra, *own, *(alone.tests if alone else setting.tests)]


def write_job(
    setting: Setting,
    kind: str,
    copy: Path,
    scratch: Path,
    probed: Sequence[Probed] = (),
    kernels: Sequence[str] = (),
    *,
    spawn: bool = False,
    mapped: Mapping[str, Sequence[int]] | None = None,
    only: Chosen | None = None,
    until: Until | None = None,
    printed: bool = False,
    alone: Alone | None = None,
    libraries: bool = False,
    stir: bool = False,
    harm: bool = False,
    preload: Sequence[str] = (),
) -> Path:
    """Writes the job's file into `scratch`, which must exist; facts and output come to lie beside it."""
    roots = [str(copy / root) if root not in ("", ".") else str(copy) for root in setting.target.source_roots]
    env = environment(setting, roots, scratch) | dict(alone.env if alone else {})
    path = scratch / f"{kind}.json"
    env[COLD_JOB] = str(path)
    arguments = pytest_arguments(setting, scratch, alone)
    job: dict[str, Any] = {
        "kind": kind,
        "copy": str(copy),
        "roots": roots,
        "bridge": str(setting.bridge),
        "facts": str(scratch / f"{kind}.facts"),
        "output": str(scratch / f"{kind}.out"),
        "output_limit": setting.options.output_limit,
        "args": arguments,
        "env": env,
        "threads": setting.options.threads,
        "files": [{"path": p.path, "reached": p.reached, "triggered": p.triggered} for p in probed],
        "mapped": {path: list(lines) for path, lines in (mapped or {}).items()},
        "only": asdict(only) if only is not None else None,
        "until": asdict(until) if until is not None else None,
        "printed": printed,
        "sweep": dict(alone.sweep) if alone and alone.sweep else None,
        "libraries": libraries,
        "stir": stir,
        "harm": harm,
        "preload": list(preload),
        "cache": str(scratch / "cache"),
        "watch": list(setting.watch),
        "modules": list(setting.target.modules),
        "gpu_marker": setting.target.gpu_marker,
        "kernels": list(kernels),
        "described": described_kernels(setting.target),
        "device": setting.device,
        "quick": bool(probed),
        "exec": _command(setting, kind, path, arguments, scratch, spawn=spawn),
        "full_env": env,
    }
    path.write_text(json.dumps(job), encoding="utf-8")
    return path


def _command(
    setting: Setting, kind: str, path: Path, arguments: Sequence[str], scratch: Path, *, spawn: bool
) -> list[str] | None:
    pytest = [setting.python, "-P", "-B", "-m", "pytest"]
    if kind == PLAIN:
        return [*pytest, "-p", f"{_CHILD}.cold", *arguments]
    if kind == AUDIT:
        return [*pytest, "--color=no", f"--junitxml={scratch / 'junit.xml'}", *arguments]
    return module_command(setting, "suite", str(path)) if spawn else None


def warm_environment(setting: Setting, scratch: Path) -> dict[str, str]:
    """Of the warm process: as a child's, but with no copy on the path yet."""
    return environment(setting, (), scratch)
