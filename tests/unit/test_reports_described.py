"""What the report makes of kernels that a target only describes: compared answers, and answers that only tell."""

from __future__ import annotations

from dataclasses import replace

from fastlora_verify.reports.findings import discounted, sightings
from fastlora_verify.reports.markdown import render
from fastlora_verify.reports.record import Environment, MutantRecord, OracleRecord, RunRecord, TargetRecord
from fastlora_verify.reports.sections import oracle_row


def answer(ok: bool | None, summary: str, *, compared: bool = False) -> OracleRecord:
    """What the oracle `calls` says of the kernel `qkv`."""
    return OracleRecord(oracle="calls", kernel="qkv", ok=ok, summary=summary, column="head:cpu", compared=compared)


def record(of_mutant: OracleRecord) -> RunRecord:
    """A run in which the oracle objects to the unmutated kernel, and one mutant."""
    mutant = MutantRecord(
        name="m@k:f",
        mutation="m",
        family="f",
        kernels=("qkv",),
        file="k.py",
        line=1,
        scope="f",
        gist="g",
        diff="d",
        oracles=(of_mutant,),
    )
    return RunRecord(
        tool_version="0",
        command=(),
        started_at="",
        target=TargetRecord(name="t", file="t.toml", kernels=("qkv",), tests=()),
        environment=Environment(),
        columns=(),
        mutants=(mutant,),
        oracles=(answer(False, "deep copy"),),
    )


def test_an_answer_that_was_compared_is_heard_though_the_unmutated_kernel_is_objected_to() -> None:
    (mutant,) = discounted(record(answer(False, "dX: 9; unmutated 1", compared=True))).mutants
    assert [told.summary for told in sightings(mutant)] == ["dX: 9; unmutated 1"]


def test_one_that_was_not_is_not_heard() -> None:
    (mutant,) = discounted(record(answer(False, "deep copy"))).mutants
    assert sightings(mutant) == ()


def test_an_answer_that_only_tells_is_told() -> None:
    assert oracle_row(answer(None, "told, not judged: products: 8"))[2] == "told"
    assert oracle_row(answer(None, "not run: no CUDA device"))[2] == "could not say"


def test_what_is_told_is_not_counted_as_silent() -> None:
    def first(ok: bool | None, summary: str) -> str:
        asked = replace(record(answer(True, "")), mutants=(), oracles=(answer(ok, summary),))
        return render(asked).splitlines()[2]

    assert first(None, "told, not judged: products: 8") == "**No oracle objects.**"
    assert first(None, "not run: no CUDA device") == "**No oracle objects.** 1 could not say."
