"""Runs the oracles on the copy's kernels and streams their answers."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any, NoReturn

from fastlora_verify.harness.child.channel import Channel, hard_exit
from fastlora_verify.harness.child.exception import exception_fact
from fastlora_verify.harness.child.place import Job, enter, probe_of


def run(job: Job) -> NoReturn:
    """One line an answer, `{"event": "oracle", …}`, then the end line."""
    channel = Channel.to_file(job["facts"])
    enter(job)
    probe_of(job)
    try:
        answers = _answers(job, channel)
    except BaseException as error:
        channel.send({"event": "escaped", "exception": exception_fact(error, job["copy"])})
        hard_exit(1)
    channel.send({"event": "end", "status": 0, "answers": answers})
    sys.stdout.flush()
    sys.stderr.flush()
    hard_exit(0)


def _answers(job: Job, channel: Channel) -> int:
    from fastlora_verify.kernels.database import KERNELS
    from fastlora_verify.oracles.base import Options
    from fastlora_verify.oracles.registry import ORACLES

    options = Options(device=job["device"], quick=job["quick"])
    sent = 0
    for info in KERNELS:
        if job["kernels"] and info.name not in job["kernels"]:
            continue
        for oracle in ORACLES:
            begin = perf_counter()
            answer = _answer(oracle, info, options, job["copy"])
            channel.send({"event": "oracle", **answer, "seconds": round(perf_counter() - begin, 3)})
            sent += 1
    return sent


def _answer(oracle: Any, info: Any, options: Any, root: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = oracle.check(info, options).as_json()
    except Exception as error:
        fact = exception_fact(error, root)
        text = f"{fact['type']}: {fact['message']}"
        return {
            "oracle": oracle.id,
            "kernel": info.name,
            "ok": False,
            "summary": f"raised {text}",
            "figures": [],
            "error": text,
        }
    return answer
