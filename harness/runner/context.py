"""What a column's results depend on beside its tree: tool, interpreter, libraries, device, settings, environment."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path

from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.runner.device import Device
from fastlora_verify.harness.runner.jobs import Setting, warm_environment
from fastlora_verify.harness.runner.store import digest, runner_digest
from fastlora_verify.harness.targets.described import described_kernels
from fastlora_verify.harness.targets.listing import python_files
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.revision import cpu_model

_ELSEWHERE = {"tests", "raising_sources", "several", "beside", "mode"}  # in other keys, or at another place of this one
_NO_MATTER = _ELSEWHERE | {"run_dir", "workers", "address", "kills", "audit", "audit_seed", "resume"}
# What names a terminal, a login or one job of a CI service.
_SESSION = re.compile(
    "PWD|OLDPWD|SHLVL|_|TERM|TERM_PROGRAM|COLORTERM|COLUMNS|LINES|WINDOWID|DISPLAY|TTY|TMUX|TMUX_PANE|STY|PS1|MAIL|"
    "LOGNAME|LS_COLORS|LESSOPEN|LESSCLOSE|PAGER|EDITOR|VISUAL|HISTFILE|PROMPT_COMMAND|COMP_WORDBREAKS|INVOCATION_ID|"
    "JOURNAL_STREAM|VIRTUAL_ENV_PROMPT|MAKEFLAGS|MAKELEVEL|MFLAGS|(SSH|XDG|DBUS|GITHUB|RUNNER|CI|VSCODE|WT|GPG)_.*"
)
_OWN = frozenset({"TMPDIR", "PYTEST_DEBUG_TEMPROOT", "PYTHONPATH"})  # of the child, and others in every run
_COUNTS = frozenset({"GITHUB_ACTIONS"})  # tests ask for it


def context_key(target: Target, setting: Setting, device: Device, scratch: Path) -> str:
    """A digest of all of it."""
    options = setting.options
    return digest(
        runner_digest(),
        package_digest("kernels", "oracles") if options.oracles else "",
        [setting.device, setting.python, device.versions, device.installed, device.device_name, cpu_model()],
        _edited_elsewhere(target, device.editable),
        [target.pytest_args, setting.tests, target.env, target.gpu_marker],
        [target.source_roots, target.modules, target.instruments, described_kernels(target)],
        _settings(options),
        _environment(setting, scratch),
    )


def _settings(options: RunOptions) -> dict[str, object]:
    return {one.name: getattr(options, one.name) for one in fields(options) if one.name not in _NO_MATTER}


def _environment(setting: Setting, scratch: Path) -> dict[str, str]:
    """What a child finds in its environment, apart from what names a session."""
    found = warm_environment(setting, scratch)
    found["PATH"] = os.pathsep.join(dict.fromkeys(found.get("PATH", "").split(os.pathsep)))
    return {
        name: value
        for name, value in found.items()
        if name in _COUNTS or not (name in _OWN or _SESSION.fullmatch(name))
    }


def _edited_elsewhere(target: Target, folders: Iterable[str]) -> str:
    """Of the Python files in `folders`, those apart that the target has a copy of."""
    own = [folder.resolve() for folder in ([target.root] if target.root else []) + [place for _, place in target.place]]
    total = hashlib.sha256()
    for folder in sorted({Path(name).resolve() for name in folders}):
        for name in python_files(folder):
            path = folder / name
            if not any(path.is_relative_to(one) for one in own):
                total.update(str(path).encode(errors="surrogateescape") + b"\0" + _bytes(path))
    return total.hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@cache
def package_digest(*names: str) -> str:
    """Of the code of packages of ours."""
    total = hashlib.sha256()
    for name in names:
        spec = importlib.util.find_spec(f"fastlora_verify.{name}")
        assert spec is not None and spec.origin is not None
        folder = Path(spec.origin).resolve().parent
        for path in sorted(folder.rglob("*.py")):
            total.update(f"{name}/{path.relative_to(folder).as_posix()}".encode() + b"\0" + path.read_bytes())
    return total.hexdigest()
