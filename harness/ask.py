"""Asks the oracles about the unmutated kernels, in the target's interpreter and on a copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlora_verify.harness.errors import NoDevice, PythonError, UnknownName
from fastlora_verify.harness.plan import NOT_RUN, Column, ColumnOutcome, RunOptions
from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.device import device_of
from fastlora_verify.harness.runner.evidence import read_lines
from fastlora_verify.harness.runner.jobs import Setting, make_bridge, module_command, write_job
from fastlora_verify.harness.targets.described import check_askable
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.blobs import blobs_of
from fastlora_verify.harness.trees.tree import Master, make_master


@dataclass(frozen=True)
class Question:
    """Which oracles, on which kernels, with what. Empty fields leave it to the oracles."""

    oracles: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    fixture: Mapping[str, Any] = field(default_factory=dict)


def ask_columns(
    target: Target, columns: Sequence[Column], question: Question, options: RunOptions
) -> list[ColumnOutcome]:
    """The answers, by column. Raises NoDevice if the only device is missing, UnknownName for a name."""
    check_askable(target)
    options.run_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="fastlora-verify-")).resolve()
    try:
        master = make_master(target, scratch / "master", options.run_dir.resolve())
        bridge = make_bridge(scratch / "bridge")
        outcomes, alone = [], len(columns) == 1 and not options.several
        for column in columns:
            setting = Setting(target, options, column.device, bridge, ())
            outcomes.append(_column(column, setting, master, scratch, question, alone=alone))
        return outcomes
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _column(
    column: Column, setting: Setting, master: Master, scratch: Path, question: Question, *, alone: bool
) -> ColumnOutcome:
    device = device_of(setting, scratch)
    blobs = blobs_of(setting.target, master.entries, setting.target.tests)
    if device.reason:
        if alone:
            raise NoDevice(column.device, device.reason)
        return ColumnOutcome(column, NOT_RUN, device.reason, versions=device.versions, blobs=blobs, no_device=True)
    answers = _answers(setting, master, scratch / column.device, question)
    return ColumnOutcome(
        column,
        "run",
        mode="cold",
        oracles=answers,
        device_name=device.device_name,
        versions=device.versions,
        blobs=blobs,
    )


def _answers(setting: Setting, master: Master, folder: Path, question: Question) -> tuple[Mapping[str, Any], ...]:
    folder.mkdir()
    job = write_job(setting, jobs.ORACLE, master.path, folder)
    data = json.loads(job.read_text(encoding="utf-8"))
    asked = folder / "question.json"
    asked.write_text(json.dumps(vars(question)), encoding="utf-8")
    done = subprocess.run(
        module_command(setting, "ask_oracles", str(job), str(asked)),
        env=data["full_env"],
        cwd=master.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    lines = read_lines(Path(data["facts"]))
    for line in lines:
        if line["event"] == "unknown":
            raise UnknownName(line["kind"], line["name"], line["known"])
    ended = bool(lines) and lines[-1]["event"] == "end"
    if not ended:
        raise PythonError(setting.python, f"the oracles did not come to their end: {_why(lines, done.stdout)}")
    return tuple(line for line in lines if line["event"] == "oracle")


def _why(lines: Sequence[Mapping[str, Any]], output: str) -> str:
    if lines and lines[-1]["event"] == "escaped":
        error = lines[-1]["exception"]
        return f"{error['type']}: {error['message']}"
    last = output.strip().splitlines()
    return last[-1] if last else "no output"
