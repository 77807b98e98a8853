"""`suite` from target to record. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

from fastlora_verify.harness import session
from fastlora_verify.harness.errors import NothingToRun, TargetError
from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.recording import Told, environment, run_record
from fastlora_verify.harness.run_folder import near, prepare_run_dir, write
from fastlora_verify.harness.suite_diff.revisions import suite_against
from fastlora_verify.harness.targets.instead import inner_tests, with_python
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.harness.trees.revision import cpu_model
from fastlora_verify.reports.record import RunRecord, dumps

RECORD = "suite.json"


def suite(request: session.Request) -> RunRecord:
    """Compares the suite at `request.columns.against` with that of the tree under review, and saves the record.

    Raises UsageError for a test path that neither tree has, NothingToRun where there are no tests on either side.
    """
    clock, started = monotonic(), datetime.now(UTC)
    target = with_python(load_target(request.target), request.python)
    run_dir = prepare_run_dir(request.run_dir, target)
    options = RunOptions(run_dir=run_dir, threads=request.threads)
    request.columns.check()
    tests = _inner(target, request.tests)
    compared, versions = suite_against(target, request.columns, tests, options, request.devices[0])
    if not (compared.base.collected or compared.head.collected or compared.findings):
        raise NothingToRun(f"nothing to compare: pytest collects no test of {target.name}, neither before nor now")
    told = Told(
        tool_version=session.version(),
        command=request.command,
        started_at=started.isoformat(timespec="seconds"),
        seconds=monotonic() - clock,
        cpu=cpu_model(),
        tests=tests or target.tests,
        saved_as=str(request.json) if request.json else near(run_dir / RECORD),
    )
    machine = environment(versions, told.cpu)
    record = replace(run_record(target, told, ()), environment=machine, suite=compared)
    for path in (run_dir / RECORD, request.json):
        if path is not None:
            write(path, dumps(record))
    return record


def _inner(target: Target, tests: Sequence[str]) -> tuple[str, ...]:
    """Test paths in the copy; one that the tree under review lacks may be the other revision's."""
    found: list[str] = []
    for test in tests:
        try:
            found += inner_tests(target, (test,))
        except TargetError:
            found.append(test)
    return tuple(found)
