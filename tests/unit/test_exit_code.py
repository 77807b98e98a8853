"""The status of a finished run: the first that applies, in the documented order."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic_record import cpu, delegation, killers, synthetic_record

from fastlora_verify.harness.exit_code import ORDER, ExitCode, of_run
from fastlora_verify.reports import record as rec

KILLED = cpu(status="killed", how="assertion", failed=1, killers=killers("fp32-2d-T"))
UNREACHED = dataclasses.replace(KILLED, reached=0)
SURVIVED = cpu(status="survived", passed=37)
DIFFERS = rec.Audit(
    checked=1,
    differences=(rec.AuditDifference(mutant="m", column="head:cpu", recorded="1 failed", plain="1 passed"),),
)


def run_of(*results: dict[str, rec.Result], allowed: str | None = None, **changes: object) -> rec.RunRecord:
    mutants = tuple(delegation(str(i), "x", found, allowed=allowed) for i, found in enumerate(results))
    return dataclasses.replace(synthetic_record(), mutants=mutants, audit=None, **changes)  # type: ignore[arg-type]


def cpu_only(result: rec.Result) -> dict[str, rec.Result]:
    return {"head:cpu": result}


def test_the_order_is_the_documented_one() -> None:
    assert [int(code) for code in ORDER] == [70, 2, 4, 5, 1, 3, 0]


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (run_of(cpu_only(KILLED)), 0),
        (run_of(cpu_only(KILLED), cpu_only(SURVIVED)), 1),
        (run_of(cpu_only(SURVIVED), allowed="why"), 0),
        (run_of({"head:cpu": SURVIVED, "head:cuda": KILLED}), 0),
        (run_of({"head:cpu": SURVIVED, "head:cuda": SURVIVED}), 1),
        (run_of({"head:cpu": SURVIVED, "head:cuda": cpu(status="not-run")}), 1),
        (run_of(cpu_only(cpu(status="timeout"))), 3),
        (run_of(cpu_only(cpu(status="crash"))), 3),
        (run_of(cpu_only(cpu(status="not-viable"))), 3),
        (run_of(cpu_only(cpu(status="crash")), allowed="why"), 0),
        (run_of(cpu_only(UNREACHED)), 3),
        (run_of(cpu_only(dataclasses.replace(UNREACHED, reached_import=True))), 0),
        (run_of({"head:cpu": KILLED, "head:cuda": cpu(status="timeout")}), 3),
        (run_of({"head:cpu": KILLED, "head:cuda": cpu(status="not-run")}), 0),
        (run_of(cpu_only(cpu(status="timeout")), cpu_only(SURVIVED)), 1),
        (run_of(cpu_only(cpu(status="not-run"))), 5),
        (run_of(), 5),
        (run_of(cpu_only(SURVIVED), faults=("a mutation made nonsense",)), 70),
        (run_of(cpu_only(SURVIVED), faults_elsewhere=("somebody's mutation raises",)), 2),
        (dataclasses.replace(run_of(cpu_only(SURVIVED)), audit=DIFFERS), 70),
        (dataclasses.replace(run_of(cpu_only(KILLED)), audit=rec.Audit(checked=3)), 0),
    ],
)
def test_the_first_status_that_applies(record: rec.RunRecord, status: int) -> None:
    assert of_run(record) == ExitCode(status)
