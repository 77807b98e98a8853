"""`report` of several records, `--previous`, and the formats, on the command line; and killers with the gpu marker."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from machines import KILLED, KILLED_BY_MARKED, SURVIVED, of_a_card, of_ci
from synthetic_record import synthetic_record

from fastlora_verify.harness import cli
from fastlora_verify.harness.runner.evidence import Case, Raised, SuiteFacts
from fastlora_verify.harness.runner.judge import End, Subject, judge
from fastlora_verify.harness.runner.store import outcome_from_json
from fastlora_verify.reports import record as rec
from fastlora_verify.reports.markdown import render

TINY = Path(__file__).parent.parent / "testdata" / "tiny"
COMMAND = (sys.executable, "-P", "-c", "from fastlora_verify.harness.cli import main; main()")
LEFT = "forward-left-behind@tiny.kernel:unpatch"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own, with CI's record, a card's and an earlier one."""
    monkeypatch.chdir(tmp_path)
    records = {
        "cpu": of_ci({"a": KILLED, "b": SURVIVED}),
        "card": of_a_card({"a": KILLED, "b": KILLED_BY_MARKED}),
        "old": of_ci({"a": SURVIVED, "b": KILLED}, started_at="2025-12-24T10:00:00+00:00"),
    }
    for name, record in records.items():
        (tmp_path / f"{name}.json").write_text(rec.dumps(record))
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.run(list(argv)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line of a refusal, which has status 2 and prints no report."""
    assert cli.run(list(argv)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line.removeprefix("fastlora-verify: ")


def test_two_records_are_one_report(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "report", "cpu.json", "card.json")
    assert text.count("## fastlora-verify: ") == 1
    assert "| mutation | `head:cpu` | `head:cuda` |" in text
    assert "**Killed by what CI runs: 1 of 2; by a card too: 2 of 2**" in text


def test_the_merged_record_is_written_as_json_and_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    merged = shown(capsys, "report", "cpu.json", "card.json", "--format", "json")
    Path("merged.json").write_text(merged)
    assert shown(capsys, "report", "merged.json") == shown(capsys, "report", "cpu.json", "card.json")


def test_separate_shows_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    told = [shown(capsys, "report", name) for name in ("cpu.json", "card.json")]
    assert shown(capsys, "report", "cpu.json", "card.json", "--separate") == "".join(told)


@pytest.mark.parametrize("name", ["source_digest", "tests_digest"])
def test_one_byte_of_a_hash_edited_is_a_sentence_and_status_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("card.json").read_text()
    digest = json.loads(text)["columns"][0][name]
    place = text.index(digest, text.index(f'"{name}"')) + 20
    Path("card.json").write_text(f"{text[:place]}{'0' if text[place] != '0' else '1'}{text[place + 1 :]}")
    told = refused(capsys, "report", "cpu.json", "card.json")
    side = name.partition("_")[0]
    assert told.startswith(f"cpu.json and card.json are not of the same tree: the {side} of head differs (sha256:")
    assert told.endswith("; nothing is merged, --separate shows one after the other")
    assert shown(capsys, "report", "cpu.json", "card.json", "--separate")


def test_previous_compares_with_an_earlier_record(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "report", "cpu.json", "--previous", "old.json")
    assert "**1 mutant that the last round killed survives now, in `head:cpu`.**" in text
    assert "| mutation | `head:cpu` | last round |" in text
    assert "Last round: `old.json` of 2025-12-24 10:00 UTC" in text


def test_rounds_of_several_machines_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    now = ("report", "cpu.json", "card.json", "--previous", "old.json")
    record = rec.loads(shown(capsys, *now, "--format", "json"))
    assert record.last_round is not None
    assert record.last_round.columns == {"head:cpu": "head:cpu"}
    both = rec.loads(shown(capsys, *now, "--previous", "card.json", "--format", "json")).last_round
    assert both is not None
    assert (both.columns, both.file) == (
        {"head:cpu": "head:cpu", "head:cuda": "head:cuda"},
        "old.json and card.json",
    )


def test_an_earlier_record_with_nothing_in_common_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.json").write_text(rec.dumps(synthetic_record()))
    told = refused(capsys, "report", "cpu.json", "--previous", "other.json")
    assert told.startswith("--previous: other.json has none of these mutants")
    assert refused(capsys, "report", "cpu.json", "--previous", "none.json").startswith("none.json: cannot be read")
    assert "has none of these columns: it has head:cuda" in refused(
        capsys, "report", "cpu.json", "--previous", "card.json"
    )


def test_an_earlier_record_is_read_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(TINY, "tiny")
    told = refused(capsys, "mutate", "--all", "--target", "tiny", "--previous", "cpu.json")
    assert told.startswith("--previous: cpu.json has none of these mutants")


@pytest.mark.parametrize(
    ("how", "first"),
    [("csv", "mutant,mutation,"), ("junit", "<?xml "), ("html", "<!doctype html>"), ("json", "{"), ("markdown", "## ")],
)
def test_each_format_is_printed(how: str, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "report", "cpu.json", "card.json", "--format", how).startswith(first)


def test_csv_of_a_record_without_mutants_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("oracles.json").write_text(rec.dumps(dataclasses.replace(synthetic_record(), mutants=())))
    assert "there is no mutant in the record" in refused(capsys, "report", "oracles.json", "--format", "csv")


# -- from a run to the report --------------------------------------------------------------------------------


def run(*argv: str) -> tuple[int, str]:
    done = subprocess.run([*COMMAND, *argv], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_run_beside_the_last_round_says_what_its_tests_no_longer_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    shutil.copytree(TINY, "tiny")
    tests = Path("tiny/tests/test_tiny.py")
    plain = tests.read_text()
    pin = "def test_left_behind():\n    assert 'del ' in __import__('inspect').getsource(tiny.kernel.unpatch)\n"
    tests.write_text(f"{plain}\n\nimport tiny.kernel\n\n{pin}")
    status, _ = run("mutate", "forward-left-behind", "--target", "tiny", "--json", "then.json")
    assert status == 0
    tests.write_text(plain)
    status, text = run(
        "mutate", "forward-left-behind", "--target", "tiny", "--json", "now.json", "--previous", "then.json"
    )
    assert status == 1
    assert "**1 mutant that the last round killed survives now, in `head:cpu`.**" in text
    assert "the same source, other tests" in text
    assert "#### 1. `del module.forward` is skipped" in text
    record = rec.loads(Path("now.json").read_text())
    assert render(record) == text
    (then, now) = (rec.loads(Path(name).read_text()).columns[0] for name in ("then.json", "now.json"))
    assert (then.source_digest == now.source_digest, then.tests_digest == now.tests_digest) == (True, False)
    assert set(record.files[now.tests_digest]) == {"tests/test_tiny.py"}
    assert now.environment is not None
    assert now.environment.python
    assert [
        killer.gpu for killer in rec.loads(Path("then.json").read_text()).mutants[0].results["head:cpu"].killers
    ] == [False]


# -- killers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("how", ["module lost", "failed", "failed without an exception"])
def test_a_killer_says_whether_it_has_the_gpu_marker(gpu: bool, how: str) -> None:
    """Also where the mutant keeps the test's module from being collected, so that only the unmutated run knows."""
    name, raised = "tests/test_a.py::test_x", Raised("AssertionError", ("AssertionError",), judges=True)
    before = SuiteFacts({name: Case(name, "passed", gpu=gpu)}, ended=True)
    failed = {name: Case(name, "failed", raised if how == "failed" else None, gpu=gpu)}
    lost = {"tests/test_a.py": Case("tests/test_a.py", "error", raised)}
    after = SuiteFacts({}, lost, ended=True) if how == "module lost" else SuiteFacts(failed, ended=True)
    subject = Subject("m", ("src/k.py",), ())
    outcome = judge(subject, "head:cuda", before, after, End("exit", 0), lambda path: path.startswith("src"))
    assert [killer.gpu for killer in outcome.killers] == [gpu]
    stored = json.loads(json.dumps(dataclasses.asdict(outcome)))
    assert outcome_from_json(stored).killers == outcome.killers
