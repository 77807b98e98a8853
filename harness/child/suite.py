"""Runs the target's tests in this process and streams facts. Also an entry: `python -m … JOB.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from fastlora_verify.harness.child.channel import Channel, hard_exit
from fastlora_verify.harness.child.exception import exception_fact
from fastlora_verify.harness.child.facts import Facts, Line
from fastlora_verify.harness.child.harm import Harm
from fastlora_verify.harness.child.place import Job, enter, files_in_memory, foreign_modules, libraries_since, probe_of
from fastlora_verify.harness.child.probe import Probe
from fastlora_verify.harness.child.reads import Reads
from fastlora_verify.harness.child.selection import Only
from fastlora_verify.harness.child.stopping import Stopping, Until
from fastlora_verify.harness.child.sweep import Sweep


def run(job: Job) -> NoReturn:
    """What the tests left behind must not run on, nor interpreter exit decide an outcome."""
    channel = Channel.to_file(job["facts"])
    enter(job)
    before = frozenset(sys.modules)
    probe = probe_of(job)
    reads = Reads(job["copy"])
    if job["libraries"]:
        reads.watch()
    facts = Facts(
        channel,
        probe,
        job["copy"],
        job["gpu_marker"],
        only=only_of(job),
        printed=job["printed"],
        stirred=job["stir"],
        harm=Harm(job["copy"]) if job["harm"] else None,
    )
    stop_early(job, channel, facts, probe)
    plugins = [facts, Sweep(channel, job)] if job["sweep"] else [facts]
    status = session(job, plugins, channel)
    uses = {"libraries": libraries_since(before, job["copy"]), **reads.told()} if job["libraries"] else {}
    finish(job, channel, facts, probe, status, uses)


def only_of(job: Job) -> Only | None:
    """The tests that the job names, or None for all."""
    only = job["only"]
    if not only:
        return None
    listed = tuple(only["tests"]) if only["as_listed"] else ()
    return Only(frozenset(only["tests"]), only["collected"], only["backwards"], listed)


def stop_early(job: Job, channel: Line, facts: Facts, probe: Probe) -> None:
    """Has the run end at the first failure that is enough, where the job asks for it: nothing is torn down."""
    until = Until.of(job)
    if until is None:
        return
    stopping = Stopping(until)

    def heard(test: Mapping[str, Any]) -> None:
        if stopping.enough(test, lambda: files_in_memory(job["copy"])):
            finish(job, channel, facts, probe, int(pytest.ExitCode.TESTS_FAILED))

    facts.after_test = heard


def session(job: Job, plugins: list[Any], channel: Line) -> int:
    """pytest's status; what escapes it ends the process."""
    sys.argv = ["pytest", *job["args"]]
    try:
        return int(pytest.main(list(job["args"]), plugins=plugins))
    except BaseException as error:
        channel.send({"event": "escaped", "exception": exception_fact(error, job["copy"])})
        hard_exit(1)


def finish(
    job: Job, channel: Line, facts: Facts, probe: Probe, status: int, more: Mapping[str, Any] | None = None
) -> NoReturn:
    """The last line, and the end of the process."""
    channel.send(end_line(job, facts, probe, status) | dict(more or {}))
    sys.stdout.flush()
    sys.stderr.flush()
    hard_exit(0)


def end_line(job: Job, facts: Facts, probe: Probe, status: int) -> dict[str, Any]:
    """What only the whole session can say."""
    return {
        "event": "end",
        "status": status,
        **facts.finish(),
        "foreign": foreign_modules(job),
        "probes_missing": probe.missing,
        "import_errors": [
            {"path": path, "exception": exception_fact(error, job["copy"])} for path, error in probe.import_errors
        ],
    }


def main() -> None:
    """Runs the job whose file is the only argument, whatever its kind."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    run_job(job)


def run_job(job: Job) -> NoReturn:
    """Runs a job of either kind."""
    if job["kind"] == "oracle":
        from fastlora_verify.harness.child import oracle

        oracle.run(job)
    run(job)


if __name__ == "__main__":
    main()
