"""Runs the oracles on the copy's kernels and streams their answers."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any, NoReturn

from fastlora_verify.harness.child.answers import EVERY, answers, missing, not_run
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
    if reason := missing(job):
        channel.send({"event": "oracle", **not_run(EVERY, ", ".join(job["kernels"]), reason)})
        return 1
    from fastlora_verify.oracles.base import Options
    from fastlora_verify.oracles.registry import ORACLES

    # Of described kernels the same figures are compared, the mutant's with the unmutated kernel's.
    options = Options(device=job["device"], quick=job["quick"] and job["described"] is None)
    sent, begin = 0, perf_counter()
    for answer in answers(job, ORACLES, job["kernels"], lambda o, info: _answer(o, info, options, job["copy"])):
        channel.send({"event": "oracle", **answer, "seconds": round(perf_counter() - begin, 3)})
        sent, begin = sent + 1, perf_counter()
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
