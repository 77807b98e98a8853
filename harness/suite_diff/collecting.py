"""Lets pytest collect a tree's tests, in the target's interpreter and in a copy that is thrown away."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import PythonError
from fastlora_verify.harness.runner.evidence import read_lines
from fastlora_verify.harness.runner.jobs import Setting, module_command, write_job
from fastlora_verify.harness.suite_diff.collected import Collection, Item

_SECONDS = 900.0  # to collect a suite: its imports, and no test
_COLLECTS = 0, 1, 2, 5  # statuses with which pytest collected what it could


@dataclass(frozen=True)
class _Asked:
    """A test path of the command line, or of the target."""

    path: str
    rest: str  # what stands behind the first `::`

    def holds(self, item: Item) -> bool:
        """Whether a collected test is one of those asked for."""
        file = item.file or ""
        if self.path not in ("", ".") and file != self.path and not file.startswith(f"{self.path}/"):
            return False
        inner = item.test.partition("::")[2]
        return not self.rest or inner == self.rest or inner.startswith((f"{self.rest}::", f"{self.rest}["))


def collect(setting: Setting, tree: Path, scratch: Path, tests: Sequence[str]) -> Collection:
    """The tests of `tree` that lie in `tests`, paths that it lacks left out. Raises PythonError."""
    asked = [_Asked(test.partition("::")[0], test.partition("::")[2]) for test in tests]
    paths = tuple(dict.fromkeys(one.path for one in asked if (tree / one.path).exists()))
    if not paths:
        return Collection(())
    scratch.mkdir(parents=True)
    copy = Path(os.path.realpath(scratch / "tree"))
    shutil.copytree(tree, copy, symlinks=True)
    setting = replace(setting, options=replace(setting.options, tests=paths))
    job = write_job(setting, "collect", copy, scratch)
    data = json.loads(job.read_text(encoding="utf-8"))
    output = _run(module_command(setting, "collect", str(job)), data["full_env"], copy, setting)
    found = _collection(read_lines(Path(data["facts"])), output)
    shutil.rmtree(copy, ignore_errors=True)
    return replace(found, items=tuple(item for item in found.items if any(one.holds(item) for one in asked)))


def _run(command: Sequence[str], env: Mapping[str, str], folder: Path, setting: Setting) -> str:
    try:
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise PythonError(setting.python, f"it doesn't start: {error.strerror}") from error
    try:
        return process.communicate(timeout=_SECONDS)[0]
    except subprocess.TimeoutExpired as error:
        raise PythonError(setting.python, f"collecting the tests took more than {_SECONDS:.0f} s") from error
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _collection(lines: Sequence[Mapping[str, Any]], output: str) -> Collection:
    items = tuple(_item(line) for line in lines if line["event"] == "item")
    failed = [line for line in lines if line["event"] == "collect"]
    errors = [(_id(line, "test"), _why(line)) for line in failed if line["category"] == "error"]
    skipped = [(_id(line, "test"), str(line.get("reason", ""))) for line in failed if line["category"] == "skipped"]
    broken = [line["exception"] for line in lines if line["event"] == "internal-error"]
    end = lines[-1] if lines and lines[-1]["event"] == "end" else None
    whole = ""
    if broken:
        whole = f"{broken[0]['type']}: {broken[0]['message']}"
    elif end is None or end["status"] not in _COLLECTS:
        whole = _complaint(output)
    foreign = tuple((end or {}).get("foreign", {}))
    return Collection(items, tuple(errors), tuple(skipped), foreign, whole)


def _item(line: Mapping[str, Any]) -> Item:
    return Item(
        test=_id(line, "test"),
        function=_id(line, "function"),
        file=line["file"],
        defined=(line["defined"][0], line["defined"][1]) if line["defined"] else None,
        param=line["param"],
        values=line["values"],
        marks=tuple((name, text) for name, text in line["marks"]),
        selected=line["selected"],
    )


def _id(line: Mapping[str, Any], key: str) -> str:
    """An id from the tree's top. pytest counts from its own root, which may be another folder in another revision."""
    inner = line[key].partition("::")[1:]
    return line["file"] + "".join(inner) if line["file"] else str(line[key])


def _why(line: Mapping[str, Any]) -> str:
    error = line.get("exception")
    return f"{error['type']}: {error['message']}" if error else str(line.get("reason", ""))


def _complaint(output: str) -> str:
    """pytest's own complaint, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E  ", "ERROR")) or "Error: " in line]
    return (errors or lines or ["pytest said nothing"])[-1].removeprefix("E").strip()
