"""The run record survives JSON, and what isn't one is refused with a sentence."""

from __future__ import annotations

import json

import pytest

from fastlora_verify.reports import record as rec


def small_record() -> rec.RunRecord:
    killer = rec.Killer(test="tests/test_a.py::test_b[bf16]", exception="AssertionError", message="no", how="assertion")
    survivor = rec.Result(
        status="survived",
        passed=3,
        reached_tests=(rec.ReachedTest(test="tests/test_a.py::test_c", triggered=True),),
    )
    return rec.RunRecord(
        tool_version="0.1.0",
        command=("fastlora-verify", "mutate", "--all"),
        started_at="2026-01-02T03:04:05+00:00",
        seconds=12,
        target=rec.TargetRecord(name="t", file="t.toml", kernels=("linear",), tests=("tests",)),
        environment=rec.Environment(python="3.11.2", torch="2.13.0"),
        columns=(
            rec.Column(
                id="head:cpu",
                device="cpu",
                baseline=rec.Baseline(passed=3, skipped=1, seconds=0.5),
                controls=(rec.Control(name="unmutated", ok=True, summary="3 passed", seconds=0.5),),
                needs_card=("tests/test_a.py::test_card",),
            ),
            rec.Column(id="head:cuda", device="cuda", not_run="no CUDA device"),
        ),
        mutants=(
            rec.MutantRecord(
                name="m@a:f[x]",
                mutation="m",
                family="delegation",
                kernels=("linear", "qkv"),
                file="a.py",
                line=3,
                scope="f",
                gist="return",
                diff="-a\n+b\n",
                results={"head:cpu": rec.Result(status="killed", how="assertion", failed=1, killers=(killer,))},
                oracles=(
                    rec.OracleRecord(
                        oracle="float64",
                        kernel="linear",
                        ok=False,
                        summary="dX 4.93",
                        figures=(rec.Figure(name="dX", value=4.93, limit=2.0, unit="x", ok=False),),
                    ),
                ),
            ),
            rec.MutantRecord(
                name="n@a:f[x]",
                mutation="n",
                family="delegation",
                kernels=("linear",),
                file="a.py",
                line=3,
                scope="f",
                gist="return",
                diff="",
                results={"head:cpu": survivor},
                allowed="behind another guard",
            ),
        ),
        no_sites=(rec.NoSiteRecord(mutation="m", kernel="swiglu", reason="has no bias"),),
        audit=rec.Audit(checked=1),
    )


def test_a_record_read_back_from_its_json_is_equal() -> None:
    record = small_record()
    assert rec.loads(rec.dumps(record)) == record


def test_the_json_has_the_names_that_other_programs_read() -> None:
    data = json.loads(rec.dumps(small_record()))
    assert data["schema_version"] == 1
    assert data["columns"][0]["baseline"] == {
        "passed": 3,
        "failed": 0,
        "errors": 0,
        "skipped": 1,
        "xfailed": 0,
        "xpassed": 0,
        "seconds": 0.5,
    }
    mutant = data["mutants"][0]
    assert mutant["kernel"] == "linear, qkv"
    result = mutant["results"]["head:cpu"]
    assert {
        "status",
        "how",
        "passed",
        "failed",
        "reached",
        "triggered",
        "killers",
        "seconds",
    } <= result.keys()
    assert result["killers"][0] == {
        "test": "tests/test_a.py::test_b[bf16]",
        "effect": "fails",
        "exception": "AssertionError",
        "message": "no",
        "how": "assertion",
        "gpu": None,
    }


def test_an_unknown_name_is_ignored_so_that_later_releases_can_add_some() -> None:
    data = rec.to_json(small_record()) | {"later": 1}
    assert rec.from_json(data) == small_record()


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_schema_version_is_refused_with_a_sentence(version: object) -> None:
    data = rec.to_json(small_record()) | {"schema_version": version}
    with pytest.raises(rec.RecordError, match=r"version .* is unknown: this fastlora-verify reads version 1"):
        rec.from_json(data)


def test_text_that_is_no_record_is_refused() -> None:
    with pytest.raises(rec.RecordError, match="not JSON"):
        rec.loads("{")
    with pytest.raises(rec.RecordError, match="has no schema_version"):
        rec.loads("[]")


def test_a_status_that_does_not_exist_is_refused_and_named() -> None:
    data = json.loads(rec.dumps(small_record()))
    data["mutants"][0]["results"]["head:cpu"]["status"] = "fine"
    with pytest.raises(rec.RecordError, match=r"mutants\[0\]\.results\.head:cpu\.status is 'fine', allowed"):
        rec.from_json(data)


def test_a_missing_name_and_a_wrong_type_are_refused_and_named() -> None:
    data = json.loads(rec.dumps(small_record()))
    del data["mutants"][1]["gist"]
    with pytest.raises(rec.RecordError, match=r"record\.mutants\[1\] has no 'gist'"):
        rec.from_json(data)
    data = json.loads(rec.dumps(small_record()))
    data["mutants"][1]["line"] = "3"
    with pytest.raises(rec.RecordError, match=r"record\.mutants\[1\]\.line is '3', not of type int"):
        rec.from_json(data)
