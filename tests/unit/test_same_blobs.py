"""That a record still holds is said where it does, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fastlora_verify.harness.trees.same_blobs import with_same_blobs
from fastlora_verify.reports.record import Baseline, Column, Environment, RunRecord, TargetRecord

HEAD = Column(
    id="head:cpu",
    device="cpu",
    baseline=Baseline(passed=1),
    source_digest="sha256:s",
    tests_digest="sha256:t",
    tree_digest="1",
    environment=Environment(torch="2.13"),
)
MAIN = replace(HEAD, id="main:cpu", tree_digest="2")
HOLDS = "source and tests have the same blobs as head:cpu in the run of 2026-01-02 03:04 UTC: that record still holds"


def record(*columns: Column, tests: tuple[str, ...] = ("tests",), tool_version: str = "1") -> RunRecord:
    return RunRecord(
        tool_version=tool_version,
        command=(),
        started_at="2026-01-02T03:04:05+00:00",
        target=TargetRecord(name="t", file="t.toml", kernels=(), tests=tests),
        environment=Environment(),
        columns=columns,
    )


def notes(now: RunRecord, earlier: RunRecord | None = None) -> list[tuple[str, ...]]:
    return [column.notes for column in with_same_blobs(now, earlier).columns]


def test_columns_of_the_same_blobs_beside_each_other() -> None:
    told = "source and tests have the same blobs as head:cpu; only other files differ"
    assert notes(record(HEAD, MAIN)) == [(), (told,)]
    assert notes(record(HEAD, replace(MAIN, tree_digest="1"))) == [(), ()]  # that its results were taken over is told


@pytest.mark.parametrize("changed", [{"source_digest": "sha256:x"}, {"tests_digest": "sha256:x"}, {"device": "cuda"}])
def test_other_files_or_another_device_are_not_the_same(changed: dict[str, str]) -> None:
    assert notes(record(HEAD, replace(MAIN, **changed))) == [(), ()]


def test_the_record_of_the_run_before_still_holds() -> None:
    assert notes(record(HEAD), record(HEAD)) == [(HOLDS,)]


@pytest.mark.parametrize(
    "earlier",
    [
        record(replace(HEAD, source_digest="sha256:x")),
        record(replace(HEAD, environment=Environment(torch="2.12"))),
        record(replace(HEAD, not_run="no card")),
        record(replace(HEAD, baseline=None)),
        record(HEAD, tests=("tests/one.py",)),
        record(HEAD, tool_version="0"),
        record(),
    ],
)
def test_a_record_of_something_else_does_not(earlier: RunRecord) -> None:
    assert notes(record(HEAD), earlier) == [()]


def test_digests_that_are_not_known_are_not_the_same() -> None:
    old = replace(HEAD, source_digest="", tests_digest="")
    assert notes(record(old), record(old)) == [()]
