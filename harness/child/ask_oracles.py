"""Runs chosen oracles on the unmutated kernels of a copy: `python -m … JOB QUESTION`, both files of JSON.

The question has `oracles` and `kernels` (names, none for all), `seeds` (numbers, none for the oracle's own)
and `fixture` (fields of `Fixture`, none for the oracle's own). One line an answer goes to the job's facts,
then the end line; a name that doesn't exist gives the line `unknown` with those that do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastlora_verify.harness.child.answers import EVERY, answers, missing, not_run
from fastlora_verify.harness.child.channel import Channel
from fastlora_verify.harness.child.exception import exception_fact
from fastlora_verify.harness.child.place import Job, enter


def main(job_file: str, question_file: str) -> None:
    """Answers one question."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    question = json.loads(Path(question_file).read_text(encoding="utf-8"))
    channel = Channel.to_file(job["facts"])
    enter(job)
    try:
        _answer(job, question, channel)
    except Exception as error:
        channel.send({"event": "escaped", "exception": exception_fact(error, job["copy"])})


def _answer(job: Job, question: Mapping[str, Any], channel: Channel) -> None:
    if reason := missing(job):
        channel.send({"event": "oracle", **not_run(EVERY, ", ".join(question["kernels"]), reason)})
        channel.send({"event": "end"})
        return
    import torch

    from fastlora_verify.oracles.base import Fixture, Options, one_line
    from fastlora_verify.oracles.registry import ORACLES

    torch.set_num_threads(job["threads"])
    for kind, asked, known in (
        ("oracle", question["oracles"], [oracle.id for oracle in ORACLES]),
        ("kernel", question["kernels"], _names(job)),
    ):
        if _unknown(kind, asked, known, channel):
            return
    fixture = question["fixture"]
    options = Options(
        seeds=tuple(question["seeds"]) or None,
        device=job["device"],
        fixture=Fixture(**{name: _frozen(value) for name, value in fixture.items()}) if fixture else None,
    )
    chosen = [oracle for oracle in ORACLES if not question["oracles"] or oracle.id in question["oracles"]]

    def ask(oracle: Any, info: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = oracle.check(info, options).as_json()
        except Exception as error:
            summary = f"raised {one_line(error)}"
            return {"oracle": oracle.id, "kernel": info.name, "ok": False, "summary": summary}
        return answer

    for answer in answers(job, chosen, question["kernels"], ask):
        channel.send({"event": "oracle", **answer})
    channel.send({"event": "end"})


def _names(job: Job) -> list[str]:
    if job["described"] is not None:
        return [kernel["name"] for kernel in job["described"]]
    from fastlora_verify.kernels.database import KERNELS

    return [info.name for info in KERNELS]


def _unknown(kind: str, asked: Sequence[str], known: list[str], channel: Channel) -> bool:
    for name in asked:
        if name not in known:
            channel.send({"event": "unknown", "kind": kind, "name": name, "known": known})
            return True
    return False


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    main(*sys.argv[1:])
