"""What the target's interpreter has: versions of its libraries, and the device that a column needs."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fastlora_verify.harness.errors import PythonError
from fastlora_verify.harness.runner.jobs import Setting, module_command, warm_environment

_ENVIRONMENT_SECONDS = 300.0


@dataclass(frozen=True)
class Device:
    """What the target's interpreter says of a device and of itself."""

    reason: str  # why it isn't there; empty if it is
    device_name: str
    versions: dict[str, str]
    installed: str = ""  # a digest of the interpreter and all that is installed there
    editable: tuple[str, ...] = ()  # folders that are run from where they are edited


def device_of(setting: Setting, scratch: Path) -> Device:
    """Asks the target's interpreter what it has."""
    command = module_command(setting, "environment", setting.device)
    try:
        done = subprocess.run(
            command,
            env=warm_environment(setting, scratch),
            cwd=scratch,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_ENVIRONMENT_SECONDS,
            check=False,
        )
    except OSError as error:
        raise PythonError(setting.python, f"it doesn't start: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise PythonError(setting.python, f"it said nothing for {error.timeout:.0f} s") from error
    if done.returncode:
        raise PythonError(setting.python, _complaint(done.stderr) or f"it ended with status {done.returncode}")
    try:
        data = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise PythonError(setting.python, "it is no Python: it ended well and said nothing of itself") from error
    if "pytest" not in data["versions"]:
        raise PythonError(setting.python, "it has no pytest")
    return Device(data["reason"], data["device_name"], data["versions"], data["installed"], tuple(data["editable"]))


def _complaint(stderr: str) -> str:
    if "unknown option" in stderr.lower():  # -P is new in 3.11
        return "it is older than Python 3.11"
    lines = stderr.strip().splitlines()
    return lines[-1] if lines else ""
