"""Shards of one run become the record of that run; what is no complete run is refused in one sentence."""

from __future__ import annotations

import dataclasses

import pytest
from machines import KILLED, ON_CARD, ON_CPU, SURVIVED, SURVIVED_ON_CARD, column, of_a_card, of_ci, record_of
from report_text import rows_of

from fastlora_verify.harness.exit_code import ExitCode, of_run
from fastlora_verify.harness.trees.same_blobs import with_same_blobs
from fastlora_verify.reports import record as rec
from fastlora_verify.reports.markdown import render
from fastlora_verify.reports.merge import MergeError, merge
from fastlora_verify.reports.merge_shards import is_whole_run, with_whole_runs
from fastlora_verify.reports.rounds import with_last_round

CI = of_ci({"a": KILLED, "b": SURVIVED, "c": KILLED, "d": KILLED, "e": SURVIVED})
CARD = of_a_card({"a": KILLED, "b": SURVIVED_ON_CARD, "c": KILLED, "d": KILLED, "e": SURVIVED_ON_CARD})
NAMES = [mutant.name for mutant in CI.mutants]


def shard(number: int, of: int, whole: rec.RunRecord = CI, **changes: object) -> rec.RunRecord:
    """What one of several machines would have written."""
    part = rec.Shard(number=number, of=of, names=tuple(mutant.name for mutant in whole.mutants))
    values: dict[str, object] = {
        "command": (*whole.command, "--shard", str(part)),
        "started_at": f"2026-02-03T04:05:0{number}+00:00",
        "shard": part,
        "mutants": tuple(mutant for mutant in whole.mutants if mutant.name in part.part),
    }
    return dataclasses.replace(whole, **(values | changes))  # type: ignore[arg-type]


def shards(of: int, whole: rec.RunRecord = CI) -> list[rec.RunRecord]:
    return [shard(number, of, whole) for number in range(1, of + 1)]


def merged(*records: rec.RunRecord) -> rec.RunRecord:
    return merge(with_whole_runs([(f"{number}.json", record) for number, record in enumerate(records, 1)]))


def refusal(*records: rec.RunRecord) -> str:
    with pytest.raises(MergeError) as caught:
        merged(*records)
    text = str(caught.value)
    assert "\n" not in text
    return text


def first_column(record: rec.RunRecord, **changes: object) -> rec.RunRecord:
    """The record with another first column."""
    return dataclasses.replace(
        record,
        columns=(dataclasses.replace(record.columns[0], **changes), *record.columns[1:]),  # type: ignore[arg-type]
    )


def without_runs(text: str) -> str:
    """A report without the lines that tell of runs."""
    return "\n".join(line for line in text.splitlines() if line and "Ran `" not in line and "torch 2." not in line)


@pytest.mark.parametrize("of", [1, 2, 3, 5, 7])
def test_shards_are_even_and_hold_every_mutant_once(of: int) -> None:
    parts = [one.shard.part for one in shards(of) if one.shard is not None]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert parts[0] == tuple(NAMES[::of])


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_all_shards_in_any_order_are_the_whole_run(of: int) -> None:
    found = merged(*reversed(shards(of)))
    assert is_whole_run(found)
    assert found.mutants == CI.mutants
    assert (found.shard, found.no_sites, found.oracles, found.command) == (None, CI.no_sites, CI.oracles, CI.command)
    assert without_runs(render(found)) == without_runs(render(CI))
    assert of_run(found) == of_run(CI) == ExitCode.SURVIVORS
    assert [one.shard for one in found.merged] == [f"{number}/{of}" for number in range(1, of + 1)]
    assert rec.loads(rec.dumps(found)) == found


def test_shards_of_several_columns_and_of_two_machines() -> None:
    both = record_of(
        (column("head:cpu", ON_CPU), column("base:cpu", ON_CPU)),
        {what: {"head:cpu": KILLED, "base:cpu": SURVIVED} for what in "abc"},
    )
    assert merged(*shards(2, both)).mutants == both.mutants
    found = merged(*shards(3), *shards(2, CARD))
    assert [one.id for one in found.columns] == ["head:cpu", "head:cuda"]
    assert found.mutants == merge([("ci", CI), ("card", CARD)]).mutants
    assert is_whole_run(found)


def test_a_shard_alone_says_that_it_is_one() -> None:
    (alone,) = [merged(shard(2, 3))]
    text = render(alone)
    assert text.startswith("## fastlora-verify: reference: 2 of 2 mutants survive (shard 2/3)\n")
    assert "**Shard 2 of 3: 2 of 5 mutants, not the whole run.**" in text
    assert not is_whole_run(alone)
    assert "shard" not in render(CI).lower()


def test_an_empty_shard_is_a_part_like_any_other() -> None:
    empty = shard(7, 7)
    assert of_run(empty) == ExitCode.OK
    text = render(rec.loads(rec.dumps(empty)))
    assert "**Shard 7 of 7: 0 of 5 mutants, not the whole run.**" in text
    assert "None had to be judged here" in text
    assert list(rows_of(text.partition("| mutation |")[2])) == ["none"]
    assert of_run(first_column(empty, not_run="no card")) == ExitCode.NOTHING_TO_RUN
    assert of_run(dataclasses.replace(CI, mutants=())) == ExitCode.NOTHING_TO_RUN


def test_missing_and_overlapping_shards_are_named() -> None:
    assert "shard 2/3 is missing" in refusal(shard(1, 3), shard(3, 3))
    assert "shards 2/4, 4/4 are missing" in refusal(shard(1, 4), shard(3, 4))
    assert "shard 2/2 is missing" in refusal(shard(1, 2), CARD)
    assert "1.json and 3.json are both shard 1/2" in refusal(shard(1, 2), shard(2, 2), shard(1, 2))
    assert "1.json is shard 1/2 and 2.json shard 2/3" in refusal(shard(1, 2), shard(2, 3))


def test_shards_of_other_trees_and_selections_are_refused() -> None:
    whole = dataclasses.replace(CI, mutants=CI.mutants[:4])
    assert f"different selections: only 1.json has {NAMES[4]}" in refusal(shard(1, 2), shard(2, 2, whole))
    swapped = dataclasses.replace(CI, mutants=CI.mutants[::-1])
    assert "the order of their mutants differs" in refusal(shard(1, 2), shard(2, 2, swapped))
    other = dataclasses.replace(
        CI, columns=(column("head:cpu", ON_CPU, source_digest="", tests_digest="", source_rev="1" * 40),)
    )
    assert "not of the same tree" in refusal(shard(1, 2), shard(2, 2, other))
    assert "one release" in refusal(shard(1, 2), shard(2, 2, tool_version="0.2.0"))
    target = dataclasses.replace(CI.target, tests=("tests/other.py",))
    assert "not of the same tests" in refusal(shard(1, 2), shard(2, 2, target=target))


def test_what_shards_found_before_their_mutants_must_agree() -> None:
    one, two = shards(2)
    baseline = rec.Baseline(passed=36, failed=0, skipped=3)
    assert (
        "the unmutated counts of head:cpu: 37 passed, 2 skipped in 1.json, 36 passed, 3 skipped in 2.json"
        in refusal(one, first_column(two, baseline=baseline))
    )
    controls = two.columns[0].controls[1:]
    assert "do not agree on the controls of head:cpu" in refusal(one, first_column(two, controls=controls))
    older = dataclasses.replace(ON_CPU, torch="2.12.0")
    assert "torch 2.13.0" in refusal(one, first_column(two, environment=older))
    assert "--mode verdict in 2.json" in refusal(one, first_column(two, asked="verdict"))
    assert "not run (no card) in 2.json" in refusal(one, first_column(two, not_run="no card"))
    answer = rec.OracleRecord(oracle="float64", kernel="linear", ok=True, summary="fine", column="head:cpu")
    red = dataclasses.replace(answer, ok=False)
    told = refusal(dataclasses.replace(one, oracles=(answer,)), dataclasses.replace(two, oracles=(red,)))
    assert "the oracle float64 answers otherwise on the unmutated linear in head:cpu" in told


def test_another_machine_of_the_same_versions_is_a_note() -> None:
    one, two = shards(2)
    other = dataclasses.replace(ON_CPU, cpu="Another CPU")
    found = merged(one, first_column(two, environment=other, notes=("2 of 3 results are those of an earlier run",)))
    assert found.columns[0].environment == ON_CPU
    assert "shard 2/2 ran on Another CPU" in found.columns[0].notes
    assert "2 of 3 results are those of an earlier run" in found.columns[0].notes
    assert ON_CARD.cpu not in str(found.columns)


def test_an_edited_shard_is_refused() -> None:
    one, two = shards(2)
    assert "contradicts itself" in refusal(one, dataclasses.replace(two, mutants=two.mutants[1:]))
    assert two.shard is not None
    off = dataclasses.replace(two.shard, of=0)
    assert "it is shard 2/0" in refusal(dataclasses.replace(two, shard=off))


def test_audits_are_added_and_what_was_reused_is_in_order() -> None:
    one, two = shards(2)
    wrong = [
        rec.AuditDifference(mutant=name, column="head:cpu", recorded="killed", plain="survived") for name in NAMES[:2]
    ]
    one = dataclasses.replace(one, audit=rec.Audit(checked=3, differences=(wrong[0],)))
    two = dataclasses.replace(two, audit=rec.Audit(checked=2, differences=(wrong[1],)))
    found = merged(two, one)
    assert found.audit == rec.Audit(checked=5, differences=tuple(wrong))
    assert of_run(found) == ExitCode.FAULT
    reused = [first_column(part, reused=tuple(m.name for m in part.mutants)) for part in shards(2)]
    assert merged(*reused).columns[0].reused == tuple(NAMES)


def test_a_last_round_is_that_of_the_whole_run() -> None:
    earlier = of_ci({"a": SURVIVED, "b": KILLED, "e": SURVIVED, "gone": KILLED})
    whole = with_last_round(CI, earlier, "old.json")
    parts = [with_last_round(part, earlier, "old.json") for part in shards(3)]
    assert whole.last_round is not None
    assert all(one.last_round is not None and one.last_round.gone == whole.last_round.gone for one in parts)
    assert "1 only in it" in render(parts[1])
    found = merged(*parts)
    assert found.last_round == whole.last_round
    assert list(found.last_round.then if found.last_round else ()) == [NAMES[0], NAMES[1], NAMES[4]]
    others = merged(parts[0], parts[1], with_last_round(shard(3, 3), earlier, "other.json"))
    assert others.last_round is None
    assert any("give --previous again" in note for note in others.columns[0].notes)


def test_the_record_of_another_shard_does_not_hold_for_this_one() -> None:
    mine = shard(2, 3)
    assert any("still holds" in note for note in with_same_blobs(mine, mine).columns[0].notes)
    assert with_same_blobs(mine, shard(1, 3)) == mine
    assert with_same_blobs(mine, CI) == mine
