"""Records of different machines become one table, if they are of the same trees; else a sentence says why not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hostile_text import HOSTILE, assert_harmless
from machines import (
    KILLED,
    KILLED_BY_MARKED,
    ON_CARD,
    ON_CPU,
    SOURCE,
    SURVIVED,
    SURVIVED_ON_CARD,
    TESTS,
    column,
    of_a_card,
    of_ci,
    record_of,
)
from report_text import ALLOWED_TAGS, hostile, many, rows_of
from synthetic_record import seen, synthetic_record

from fastlora_verify.reports import record as rec
from fastlora_verify.reports.markdown import LIMIT, render
from fastlora_verify.reports.merge import MergeError, merge
from fastlora_verify.reports.trees import contradiction, digest_of, sealed

CI = of_ci({"a": KILLED, "b": SURVIVED, "c": SURVIVED})
CARD = of_a_card({"a": KILLED, "b": KILLED_BY_MARKED, "c": SURVIVED_ON_CARD})


def merged(*records: rec.RunRecord) -> rec.RunRecord:
    return merge([(f"{number}.json", record) for number, record in enumerate(records, 1)])


def edited(record: rec.RunRecord, edit: Callable[[dict[str, Any]], None]) -> rec.RunRecord:
    """The record after an edit of its JSON."""
    data = json.loads(rec.dumps(record))
    edit(data)
    return rec.from_json(data)


def refusal(*records: rec.RunRecord) -> str:
    with pytest.raises(MergeError) as caught:
        merged(*records)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_two_machines_make_one_table() -> None:
    both = merged(CI, CARD)
    assert [c.id for c in both.columns] == ["head:cpu", "head:cuda"]
    assert [list(mutant.results) for mutant in both.mutants] == [["head:cpu", "head:cuda"]] * 3
    rows = rows_of(render(both).partition("| mutation |")[2])
    assert rows["`if x is a: return original_forward(x)`"][0].startswith("2 failed")
    assert rows["`if x is b: return original_forward(x)`"][1].startswith("1 failed")


def test_each_column_carries_its_machine_and_versions() -> None:
    text = render(merged(CI, CARD))
    table = rows_of(text[text.index("| column | machine |") : text.index("| mutation |")])
    assert table["`head:cpu`"] == ["CI's CPU", "3.11.2", "2.13.0", "0.21.2"]
    assert table["`head:cuda`"][0] == "Their CPU"
    assert "cuda A Card" in text
    assert "- `1.json` (`head:cpu`): Ran " in text
    assert "- `2.json` (`head:cuda`): Ran `fastlora-verify mutate --all` on 2026-01-05 06:07 UTC" in text


def test_columns_on_one_machine_have_no_table_of_machines() -> None:
    one = record_of((column("head:cpu", ON_CPU), column("base:cpu", ON_CPU)), {})
    assert "| machine |" not in render(one)


def test_a_merged_record_can_be_read_and_merged_again() -> None:
    both = merged(CI, CARD)
    again = rec.loads(rec.dumps(both))
    assert again == both
    late = of_ci({"a": KILLED}, started_at="2026-02-01T00:00:00+00:00")
    late = dataclasses.replace(late, columns=(column("head:cpu", dataclasses.replace(ON_CPU, torch="2.12.0")),))
    three = merged(again, late)
    assert [c.id for c in three.columns] == ["head:cpu (torch 2.13.0)", "head:cpu (torch 2.12.0)", "head:cuda"]
    assert [one.columns for one in three.merged] == [
        ("head:cpu (torch 2.13.0)",),
        ("head:cuda",),
        ("head:cpu (torch 2.12.0)",),
    ]


def test_a_record_alone_stays_as_it_is() -> None:
    assert merged(CI) is CI


# -- other trees -------------------------------------------------------------------------------------------


def test_a_byte_of_the_source_hash_edited_is_refused_with_a_sentence() -> None:
    def edit(data: dict[str, Any]) -> None:
        digest = data["columns"][0]["source_digest"]
        data["columns"][0]["source_digest"] = digest[:-1] + ("0" if digest[-1] != "0" else "1")

    told = refusal(CI, edited(CARD, edit))
    assert told.startswith("1.json and 2.json are not of the same tree: the source of head differs (sha256:")
    assert "2.json contradicts itself: source_digest of column head:cuda is that of no list of files in it" in told


def test_a_byte_of_a_files_hash_edited_is_refused() -> None:
    def edit(data: dict[str, Any]) -> None:
        data["files"][digest_of(SOURCE)]["src/pkg/helper.py"] = "e" + "b" * 63

    told = refusal(CI, edited(CARD, edit))
    assert "2.json contradicts itself, so it was edited or damaged: the list of files called sha256:" in told


@pytest.mark.parametrize("name", ["source_rev", "tests_rev"])
def test_a_byte_of_a_commit_edited_is_refused_and_another_commit_of_the_same_files_is_not(name: str) -> None:
    def edit(data: dict[str, Any]) -> None:
        data["columns"][0][name] = "0" * 39 + "1"

    told = refusal(CI, edited(CARD, edit))
    assert "2.json contradicts itself" in told
    assert told.endswith("the revisions and digests of column head:cuda are not those that it was written with")
    merge_commit = column("head:cuda", ON_CARD, **{name: "0" * 39 + "1"})
    assert len(merged(CI, record_of((merge_commit,), {})).columns) == 2


def test_a_revision_that_is_a_hash_of_content_must_be_the_same() -> None:
    def rev(record: rec.RunRecord, name: str, text: str) -> rec.RunRecord:
        return dataclasses.replace(record, columns=(sealed(dataclasses.replace(record.columns[0], **{name: text})),))

    for name, side in (("source_rev", "source"), ("tests_rev", "tests")):
        ones = [rev(record, name, f"sha256:{end}") for record, end in ((CI, "0a"), (CARD, "0b"))]
        assert f"the {side} of head differs (revision sha256:0a in 1.json, sha256:0b in 2.json)" in refusal(*ones)
    other_commit = rev(CARD, "source_rev", "1" * 40)
    assert "of revision `1111111111111111111`, which has the same files" in render(merged(CI, other_commit))


@pytest.mark.parametrize(
    ("side", "files", "told"),
    [
        ("source", SOURCE | {"src/pkg/linear.py": "f" * 64}, "src/pkg/linear.py has another content"),
        ("tests", TESTS | {"tests/test_more.py": "f" * 64}, "only 2.json has tests/test_more.py"),
        ("source", {"src/pkg/linear.py": "f" * 64}, "linear.py has another content, and 1 more file differs"),
    ],
)
def test_another_file_is_named(side: str, files: dict[str, str], told: str) -> None:
    other = dataclasses.replace(
        CARD,
        columns=(dataclasses.replace(CARD.columns[0], **{f"{side}_digest": digest_of(files)}),),
        files={**CARD.files, digest_of(files): files},
    )
    assert f"the {side} of head differs (" in refusal(CI, other)
    assert told in refusal(CI, other)


def test_records_without_a_common_tree_are_refused() -> None:
    files = {"src/pkg/linear.py": "f" * 64}
    other = column("base:cuda", ON_CARD, source_digest=digest_of(files))
    alone = record_of((other,), {}, files={digest_of(files): files, digest_of(TESTS): TESTS})
    assert refusal(CI, alone).startswith("1.json and 2.json have no tree in common: head in the first and base in")
    beside = record_of((other, CARD.columns[0]), {}, files={**CARD.files, digest_of(files): files})
    both = merged(CI, beside)
    assert [c.id for c in both.columns] == ["head:cpu", "base:cuda", "head:cuda"]
    assert both.files == {**CI.files, digest_of(files): files}
    assert contradiction(both) == ""


def test_trees_of_other_names_are_the_same_if_their_content_is() -> None:
    renamed = record_of((column("change:cuda", ON_CARD),), {})
    assert [c.id for c in merged(CI, renamed).columns] == ["head:cpu", "change:cuda"]


def test_older_records_are_compared_by_their_revisions_and_say_so() -> None:
    def old(record: rec.RunRecord, revision: str) -> rec.RunRecord:
        revisions = {"source_rev": revision, "tests_rev": revision}
        plain = dataclasses.replace(record.columns[0], source_digest="", tests_digest="", identity="", **revisions)
        return dataclasses.replace(record, columns=(plain,), files={})

    both = merged(old(CI, "sha256:1"), old(CARD, "sha256:1"))
    assert "has no hashes of files: its revisions were compared" in both.columns[1].notes[0]
    assert "(revision sha256:1 in 1.json, sha256:2 in 2.json)" in refusal(old(CI, "sha256:1"), old(CARD, "sha256:2"))
    assert "does not say of which source" in refusal(old(CI, ""), old(CARD, "sha256:1"))


def test_other_tests_are_refused() -> None:
    target = dataclasses.replace(CARD.target, tests=("tests/test_pin.py", "tests/test_two.py"))
    told = refusal(CI, dataclasses.replace(CARD, target=target))
    assert told == "1.json and 2.json are not of the same tests: only 2.json ran tests/test_two.py"


def test_a_name_that_stands_for_two_edits_is_refused() -> None:
    other = dataclasses.replace(CARD.mutants[1], diff=CARD.mutants[1].diff + "+more\n")
    told = refusal(CI, dataclasses.replace(CARD, mutants=(CARD.mutants[0], other)))
    assert told.startswith("1.json and 2.json do not have the same mutants: delegates-b@")
    assert told.endswith("is two edits, its diff is another")


# -- the same column twice ---------------------------------------------------------------------------------


def test_the_same_run_twice_is_refused_also_inside_a_merged_record() -> None:
    assert refusal(CI, CI).startswith("1.json and 2.json hold the same run, of 2026-01-02T03:04:05+00:00")
    assert "hold the same run, of 2026-01-05" in refusal(merged(CI, CARD), CARD)


@pytest.mark.parametrize(
    ("environment", "ids"),
    [
        (dataclasses.replace(ON_CPU, cpu="Another CPU"), ["head:cpu (CI's CPU)", "head:cpu (Another CPU)"]),
        (dataclasses.replace(ON_CPU, torch="2.12.0"), ["head:cpu (torch 2.13.0)", "head:cpu (torch 2.12.0)"]),
        (ON_CPU, ["head:cpu (2026-01-02 03:04:05)", "head:cpu (2026-02-03 00:00:00)"]),
    ],
)
def test_two_runs_of_one_column_are_kept_and_told_apart(environment: rec.Environment, ids: list[str]) -> None:
    other = of_ci({"a": SURVIVED}, started_at="2026-02-03T00:00:00+00:00")
    other = dataclasses.replace(other, columns=(column("head:cpu", environment),))
    both = merged(CI, other)
    assert [c.id for c in both.columns] == ids
    assert {id_: result.status for id_, result in both.mutants[0].results.items()} == dict(
        zip(ids, ("killed", "survived"), strict=True)
    )


def test_a_column_that_did_not_run_gives_way_to_the_one_that_did() -> None:
    without = column("head:cuda", ON_CPU, not_run="no CUDA device", baseline=None)
    not_run = rec.Result(status="not-run", note="no CUDA device")
    ci = record_of((CI.columns[0], without), {"a": {"head:cpu": KILLED, "head:cuda": not_run}})
    for pair in ((ci, CARD), (CARD, ci)):
        both = merged(*pair)
        assert sorted(c.id for c in both.columns) == ["head:cpu", "head:cuda"]
        assert {m.name: m.results["head:cuda"].status for m in both.mutants}[ci.mutants[0].name] == "killed"
    assert [c.not_run for c in merged(ci, of_ci({}, started_at="later")).columns if c.device == "cuda"] == [
        "no CUDA device"
    ]


# -- what else a record holds ------------------------------------------------------------------------------


def test_mutants_that_one_machine_judged_are_not_run_on_the_other() -> None:
    both = merged(CI, of_a_card({"b": KILLED_BY_MARKED, "d": SURVIVED_ON_CARD}))
    rows = rows_of(render(both).partition("| mutation |")[2])
    assert rows["`if x is a: return original_forward(x)`"][1] == "not run"
    assert rows["`if x is d: return original_forward(x)`"][0] == "not run"


def test_an_allowance_holds_only_where_every_record_has_it() -> None:
    allow = dataclasses.replace(CI.mutants[2], allowed="a second guard")
    there = dataclasses.replace(CARD.mutants[2], allowed="another reason")
    ci = dataclasses.replace(CI, mutants=(allow,))
    assert merged(ci, dataclasses.replace(CARD, mutants=(there,))).mutants[0].allowed == "a second guard"
    assert merged(ci, CARD).mutants[0].allowed is None


def test_oracles_audits_and_gaps_are_kept_with_the_columns_new_names() -> None:
    difference = rec.AuditDifference(mutant="m", column="head:cpu", recorded="1 failed", plain="2 failed")
    answer = dataclasses.replace(synthetic_record().oracles[0], column="head:cpu")
    gap = rec.NoSiteRecord(mutation="m", kernel="linear", reason="none")
    more = {"oracles": (answer,), "no_sites": (gap,), "audit": rec.Audit(checked=3, differences=(difference,))}
    one = of_ci({"a": KILLED}, **more)
    one = dataclasses.replace(one, mutants=(dataclasses.replace(one.mutants[0], oracles=(seen(),)),))
    two = dataclasses.replace(one, started_at="2026-03-01T00:00:00+00:00")
    both = merged(one, two)
    ids = ("head:cpu (2026-01-02 03:04:05)", "head:cpu (2026-03-01 00:00:00)")
    assert tuple(answer.column for answer in both.oracles) == ids
    assert tuple(answer.column for answer in both.mutants[0].oracles) == ids
    assert both.no_sites == (gap,)
    assert both.audit is not None
    assert (both.audit.checked, tuple(d.column for d in both.audit.differences)) == (6, ids)


# -- the text ----------------------------------------------------------------------------------------------


def three_machines(count: int) -> rec.RunRecord:
    """Three columns and many mutants, some of which survive and some of which die on a card only."""
    base = many(count)
    columns = (column("base:cpu", ON_CPU), column("head:cpu", ON_CPU), column("head:cuda", ON_CARD))

    def results(number: int) -> dict[str, rec.Result]:
        then = SURVIVED if number % 5 == 0 else KILLED
        return {"base:cpu": then, "head:cpu": then, "head:cuda": KILLED_BY_MARKED if number % 10 == 0 else then}

    mutants = tuple(dataclasses.replace(m, results=results(number)) for number, m in enumerate(base.mutants))
    return record_of(columns, {}, mutants=mutants)


def test_a_merged_report_of_three_columns_and_330_mutants_fits_into_a_comment() -> None:
    whole = three_machines(330)

    def part(ids: tuple[str, ...], **changes: object) -> rec.RunRecord:
        columns = tuple(c for c in whole.columns if c.id in ids)
        found = [{id_: result for id_, result in mutant.results.items() if id_ in ids} for mutant in whole.mutants]
        mutants = tuple(dataclasses.replace(m, results=r) for m, r in zip(whole.mutants, found, strict=True))
        return dataclasses.replace(whole, columns=columns, mutants=mutants, **changes)  # type: ignore[arg-type]

    text = render(merged(part(("base:cpu", "head:cpu")), part(("head:cuda",), started_at="2026-05-05T00:00:00+00:00")))
    assert len(text.encode()) <= LIMIT < 65_536
    assert len(text) < 65_536
    assert "left out to fit into a comment; all of them are in `1.json and 2.json`" in text
    assert "by a card too: 297 of 330" in text
    assert_harmless(text, ALLOWED_TAGS)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_merged_records_breaks_the_report(text: str) -> None:
    first = hostile(text)
    second = dataclasses.replace(
        first,
        started_at=f"2{text}",
        columns=tuple(dataclasses.replace(c, environment=rec.Environment(torch=text, cpu=text)) for c in first.columns),
    )
    both = merge([(text, first), (f"2{text}", second)])
    assert_harmless(render(both), ALLOWED_TAGS)
