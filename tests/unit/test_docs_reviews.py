"""docs/reviews.md: every entry leads somewhere, and the page is what its two sources give."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from fastlora_verify.mutations.plan import Plan
from fastlora_verify.reports import record

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import review_page
import review_results
import reviews
from review_entries import entries_of, planned, read_rounds

ROOT = Path(__file__).parents[2]
PATTERN = "delegates-on-2d"
TEST = "tests/suites/test_node.py::test_the_kernel_runs_on_every_4_bit_base"
OTHER_TEST = "tests/suites/test_node.py::test_the_kernel_runs_for_every_dtype_bias_and_rank_of_input"
ROUND = '[[round]]\nid = "M0"\nthread = "swiglu-mlp"\nhead = "8dca1a53"\ntitle = "a review"\nkernel = "swiglu"\n'
ENTRY = '[[round.entry]]\nkind = "edit"\nwhat = "2-D inputs"\ntheirs = "4 failed"\n'
HEADS = {
    "swiglu-mlp": ["5b2167ce", "", "8dca1a53", "ae25111a", "de508b7f", "4eea730c", "662a5259", "5b2167ce", "5b2167ce"],
    "kernel-taken-pin": ["5b6b180b", "5b6b180b", "5b6b180b", "aa39479e", "aa39479e"],
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """All mutants of the reference kernels."""
    return reviews.plan_reference()


@pytest.fixture
def docs(tmp_path: Path, plan: Plan) -> Callable[..., reviews.Files]:
    """A folder with one entry, as `write` makes it from a record of the entry's mutants."""

    def make(fields: str = f'mutants = ["{PATTERN}"]\n', *, head: str = ROUND + ENTRY) -> reviews.Files:
        files = reviews.Files(ROOT, tmp_path / "reviews.toml", tmp_path / "results.json", tmp_path / "reviews.md")
        files.entries.write_text(head + fields, encoding="utf-8")
        rounds = read_rounds(files.entries)
        wanted = {mutant.name for entry in entries_of(rounds) for mutant in plan.mutants if mutant.mutation == PATTERN}
        results = review_results.condensed(run_record(plan, sorted(wanted)), MEASURED, rounds, plan, {})
        reviews.write(files, rounds, plan, results)
        return files

    return make


MEASURED: dict[str, Any] = {
    "oracles": {"fastlora-verify oracle gemms": [{"kernel": "qkv", "name": "products, forward", "value": 7}]},
    "measures": {"silu-slope": {"mean": 0.001}},
    "tests": {TEST: {"passed": 24}},
}


def run_record(plan: Plan, names: list[str], *, failed: int = 4) -> record.RunRecord:
    """A record in which each of these mutants was killed by one file."""
    killers = tuple(record.Killer(test=f"test_node.py::test_{n}", exception="AssertionError") for n in range(failed))
    result = record.Result(status="killed", how="assertion", passed=9, failed=failed, killers=killers)
    mutants = tuple(
        record.MutantRecord(
            name=m.name, mutation=m.mutation, family=m.family, kernels=m.kernels, file=m.path, line=m.line,
            scope=m.scope, gist=m.gist, diff=m.diff, results={"head:cpu": result},
        )
        for m in plan.mutants
        if m.name in names
    )  # fmt: skip
    return record.RunRecord(
        tool_version="0", command=("mutate",), started_at="",
        target=record.TargetRecord(name="reference", file="", kernels=(), tests=()),
        environment=record.Environment(torch="2.13.0"),
        columns=(record.Column(id="head:cpu", device="cpu", baseline=record.Baseline(passed=13, skipped=2)),),
        mutants=mutants,
    )  # fmt: skip


def test_the_page_is_true(plan: Plan) -> None:
    assert reviews.check(reviews.HERE, plan) == []


def test_every_review_and_reply_has_its_round() -> None:
    rounds = read_rounds(reviews.HERE.entries)
    found = {thread: [each.head for each in rounds if each.thread == thread] for thread in HEADS}
    assert found == HEADS


def test_the_page_renders_as_one_table_a_round_with_whole_rows() -> None:
    rounds = read_rounds(reviews.HERE.entries)
    tokens = MarkdownIt("commonmark").enable("table").parse(reviews.HERE.page.read_text(encoding="utf-8"))
    opened = [token.type for token in tokens if token.type in ("table_open", "tr_open", "td_open")]
    rows = sum(len(each.entries) for each in rounds)
    assert opened.count("table_open") == len(rounds) + 1
    assert opened.count("tr_open") == rows + 2 * len(rounds) + 2
    cells = [
        token.content for token in tokens if token.type == "inline" and re.fullmatch(r"[MP]\d\.\d\d", token.content)
    ]
    assert cells == [entry.id for entry in entries_of(rounds)]


def test_a_written_page_is_true(docs: Callable[..., reviews.Files], plan: Plan) -> None:
    assert reviews.check(docs(), plan) == []


@pytest.mark.parametrize(
    "fields, complaint",
    [
        ('mutants = ["delegates-on-4d"]', "match nothing planned"),
        ('mutants = ["delegates-on-2d@elsewhere"]', "match nothing planned"),
        ('mutants = ["silu-slope-term-dropped"]\nkernel = "qkv"', "match nothing planned"),
        (
            'tests = ["tests/suites/test_node.py::test_that_is_gone"]',
            "no test tests/suites/test_node.py::test_that_is_gone",
        ),
        ('tests = ["tests/suites/test_gone.py::test_the_kernel_runs"]', "no test"),
        ('tests = ["tests/suites/test_node.py::each_kernel"]', "no test"),
        ('measure = ["nobody-measures-this"]\nfigures = ["*"]', "measures no nobody-measures-this"),
        ('oracle = "fastlora-verify oracle delphi"\nfigures = ["*"]', "names no oracle"),
        ('oracle = "pytest"\nfigures = ["*"]', "names no oracle"),
        ('oracle = "fastlora-verify oracle gemms"', "figures go with"),
        ("", "neither a command nor a reason"),
        (f'mutants = ["{PATTERN}"]\napplies = "because"', "both a command and a reason"),
    ],
)
def test_an_entry_that_leads_nowhere_is_told(
    docs: Callable[..., reviews.Files], plan: Plan, tmp_path: Path, fields: str, complaint: str
) -> None:
    files = docs()
    files.entries.write_text(ROUND + ENTRY + fields, encoding="utf-8")
    (told,) = reviews.check(files, plan)
    assert "M0.01" in told and complaint in told


@pytest.mark.parametrize("old, new", [('"edit"', '"opinion"'), ('"2-D inputs"', '""'), ('"4 failed"', '""')])
def test_an_entry_without_its_parts_is_told(docs: Callable[..., reviews.Files], plan: Plan, old: str, new: str) -> None:
    files = docs()
    files.entries.write_text(files.entries.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    (told,) = reviews.check(files, plan)
    assert "kind, what or theirs is missing" in told


@pytest.mark.parametrize("field", ['mutant = ["x"]', 'mutants = "x"', "baseline = false", "note = 3"])
def test_an_unknown_field_is_refused(docs: Callable[..., reviews.Files], field: str) -> None:
    with pytest.raises(ValueError, match="is no field of an entry"):
        docs(field)


def test_a_page_edited_by_hand_is_stale(docs: Callable[..., reviews.Files], plan: Plan) -> None:
    files = docs()
    text = files.page.read_text(encoding="utf-8")
    assert "killed: 4 failed (test\\_node 4)" in text
    files.page.write_text(text.replace("4 failed (", "5 failed ("), encoding="utf-8")
    assert reviews.check(files, plan) == ["reviews.md is not what reviews.toml and results.json give"]


def test_results_changed_without_the_page_are_stale(docs: Callable[..., reviews.Files], plan: Plan) -> None:
    files = docs()
    text = files.results.read_text(encoding="utf-8")
    files.results.write_text(text.replace('"failed": 4', '"failed": 7'), encoding="utf-8")
    assert len(reviews.check(files, plan)) == 1


def test_a_planned_mutant_without_a_result_is_told(docs: Callable[..., reviews.Files], plan: Plan) -> None:
    files = docs()
    results = json.loads(files.results.read_text(encoding="utf-8"))
    name, _ = results["mutants"].popitem()
    files.results.write_text(json.dumps(results), encoding="utf-8")
    assert reviews.check(files, plan) == [f"M0.01: no result of {name}; record it again"]


def test_what_an_entry_refers_to_has_a_result(docs: Callable[..., reviews.Files], plan: Plan) -> None:
    there = (
        'oracle = "fastlora-verify oracle gemms"\nmeasure = ["silu-slope"]\nfigures = ["products, *", "mean"]\n'
        f'tests = ["{TEST}"]\n'
    )
    files = docs(there)
    assert reviews.check(files, plan) == []
    assert "qkv: products, forward: 7<br>mean: 0.001<br>" in files.page.read_text(encoding="utf-8")
    for old, new in (("gemms", "streaming"), ("silu-slope", "saturation"), (TEST, OTHER_TEST), ('"mean"', '"median"')):
        files.entries.write_text(ROUND + ENTRY + there.replace(old, new), encoding="utf-8")
        assert any(told.startswith("M0.01: no ") for told in reviews.check(files, plan)), new


def test_a_record_of_some_mutants_replaces_those_and_drops_what_no_entry_means(
    docs: Callable[..., reviews.Files], plan: Plan, tmp_path: Path
) -> None:
    files = docs('mutants = ["delegates-on-2d"]\nkernel = ""\n')
    results = json.loads(files.results.read_text(encoding="utf-8"))
    names = list(results["mutants"])
    assert len(names) == 5
    not_named = next(mutant.name for mutant in plan.mutants if mutant.mutation == "delegates-on-3d")
    results["mutants"] |= {name: {"status": "killed"} for name in ("delegates-on-2d@gone:forward", not_named)}
    files.results.write_text(json.dumps(results), encoding="utf-8")
    run = tmp_path / "run.json"
    run.write_text(record.dumps(run_record(plan, names[:1], failed=6)), encoding="utf-8")
    assert reviews.record(files, plan, run, None) == []
    assert reviews.check(files, plan) == []
    found = json.loads(files.results.read_text(encoding="utf-8"))
    assert [result["failed"] for result in found["mutants"].values()] == [6, 4, 4, 4, 4]
    assert found["baseline"] == {"passed": 13, "skipped": 2} and found["tests"] == MEASURED["tests"]


def test_survivors_are_loud_and_exceptions_are_told_apart() -> None:
    assert review_page.outcome({"status": "survived", "passed": 9, "skipped": 2}) == "**survived**: 9 passed, 2 skipped"
    assert review_page.outcome({"status": "survived", "allowed": "twice guarded"}) == "survives, allowed: twice guarded"
    killed = {"status": "killed", "how": "exception", "failed": 2, "errors": 1, "files": {"test_qkv.py": 3}}
    assert review_page.outcome(killed) == "killed, by an exception only: 3 failed (test\\_qkv 3)"
    assert review_page.outcome({"status": "timeout", "passed": 1}) == "**timeout**: 1 passed"
    assert review_page.outcome({}) == "**no result**"


def test_many_mutants_are_one_line_and_each_that_is_not_killed(plan: Plan) -> None:
    (entry,) = [e for e in entries_of(read_rounds(reviews.HERE.entries)) if e.mutants == ("*",)][:1]
    mutants = planned(replace(entry, mutants=("delegates-*",)), plan)
    recorded = {m.name: {"status": "killed", "failed": 3 + n % 2} for n, m in enumerate(mutants)}
    recorded[mutants[2].name] = {"status": "survived", "passed": 5}
    first, second = review_page.mutant_lines(entry, mutants, recorded)
    assert first == f"{len(mutants) - 1} of {len(mutants)} killed, by 3 to 4 failures each"
    assert second.endswith("**survived**: 5 passed")


@pytest.mark.parametrize(
    "text, safe",
    [
        ("a | b", "a \\| b"),
        ("16**3 of [N, f]", "16\\*\\*3 of \\[N, f\\]"),
        ("<img src=x> & `a|b*`", "&lt;img src=x&gt; & `a\\|b*`"),
        ("act_fn", "act\\_fn"),
    ],
)
def test_text_stays_text_in_a_cell(text: str, safe: str) -> None:
    assert review_page.plain(text) == safe
    tokens = MarkdownIt("commonmark").enable("table").parse(f"| a |\n|---|\n| {safe} |\n")
    (cell,) = [token for token in tokens if token.type == "inline"][1:]
    children = cell.children or []
    assert "".join(child.content for child in children) == text.replace("`", "")
