"""This round beside the last: what was lost comes first and loudly; what was gained, is new or gone is told."""

from __future__ import annotations

import dataclasses

import pytest
from hostile_text import HOSTILE, assert_harmless
from machines import (
    KILLED,
    KILLED_BY_MARKED,
    ON_CARD,
    ON_CPU,
    SOURCE,
    SURVIVED,
    column,
    of_a_card,
    of_ci,
    record_of,
)
from report_text import ALLOWED_TAGS, hostile, many, rows_of
from synthetic_record import cpu, seen, synthetic_record

from fastlora_verify.reports import record as rec
from fastlora_verify.reports.findings import classify
from fastlora_verify.reports.markdown import LIMIT, render
from fastlora_verify.reports.merge import merge
from fastlora_verify.reports.rounds import ComparisonError, check_comparable, with_last_round
from fastlora_verify.reports.trees import digest_of

OTHER = SOURCE | {"src/pkg/linear.py": "9" * 64}
THEN = of_ci(
    {
        "kept": KILLED,
        "alive": SURVIVED,
        "lost": KILLED,
        "gained": SURVIVED,
        "gone": KILLED,
        "late": cpu(status="timeout"),
    },
    started_at="2025-12-24T10:00:00+00:00",
)


def of_another_source(record: rec.RunRecord, files: dict[str, str] = OTHER) -> rec.RunRecord:
    changed = dataclasses.replace(record.columns[0], source_digest=digest_of(files))
    return dataclasses.replace(record, columns=(changed,), files={**record.files, digest_of(files): files})


NOW = of_another_source(
    of_ci({"kept": KILLED, "alive": SURVIVED, "lost": SURVIVED, "gained": KILLED, "new": KILLED, "late": KILLED})
)
BESIDE = with_last_round(NOW, THEN, "old.json")


def cells(record: rec.RunRecord) -> dict[str, str]:
    """The column of the last round, by mutant."""
    text = render(record)
    rows = rows_of("| mutation |" + text.partition("| mutation |")[2])
    place = rows["mutation"].index("last round")
    return {mutant.mutation.removeprefix("delegates-"): rows[f"`{mutant.gist}`"][place] for mutant in record.mutants}


def test_the_column_of_the_last_round_says_what_each_was() -> None:
    assert cells(BESIDE) == {
        "kept": "2 failed",
        "alive": "37 passed (survived)",
        "lost": "**2 failed; survives now**",
        "gained": "**37 passed (survived); killed now**",
        "new": "new",
        "late": "timeout",
    }


def test_the_unmutated_suite_of_the_last_round_stands_in_the_first_row() -> None:
    then = dataclasses.replace(THEN.columns[0], baseline=rec.Baseline(passed=27, skipped=1, seconds=3.0))
    beside = with_last_round(NOW, dataclasses.replace(THEN, columns=(then,)), "old.json")
    rows = rows_of("| mutation |" + render(beside).partition("| mutation |")[2])
    assert rows["none"] == ["37 passed, 2 skipped", "27 passed, 1 skipped"]


def test_without_an_earlier_record_there_is_no_such_column() -> None:
    assert "last round" not in render(NOW).lower()


def test_what_was_lost_is_the_first_word_and_the_first_finding() -> None:
    text = render(BESIDE)
    verdict = text.splitlines()[2]
    assert verdict.startswith("**1 mutant that the last round killed survives now, in `head:cpu`.** ")
    lost = text.index("### Killed in the last round, survive now")
    assert lost < text.index("| mutation |")
    section = text[lost:].partition("### ")[2].partition("| mutation |")[0]
    assert (
        "| `delegates-lost@patch.forward[lost]` | `if x is lost: return original_forward(x)` | `head:cpu` |" in section
    )
    assert "| 2 failed | **37 passed, 2 skipped** |" in section
    assert "delegates-kept" not in section.partition("### Survived")[0]
    assert classify(BESIDE).survivors[0].mutation == "delegates-lost"
    seen_one = dataclasses.replace(NOW.mutants[1], oracles=(seen(),))
    assert classify(dataclasses.replace(BESIDE, mutants=(seen_one, *BESIDE.mutants[2:]))).survivors[0] != seen_one


def test_what_was_gained_and_what_is_gone_is_listed() -> None:
    text = render(BESIDE)
    gained = text[text.index("### Survived in the last round, killed now") :].partition("\n\n")[2]
    assert gained.startswith("| mutant | edit | column | then | now |")
    assert "| `delegates-gained@patch.forward[gained]` |" in gained
    gone = text[text.index("<summary>1 mutant only in the last round") :]
    assert "| `delegates-gone@patch.forward[gone]` | `if x is gone: return original_forward(x)` |" in gone
    assert "`head:cpu`: 2 failed |" in gone
    assert "Mutants: 1 killed then, **survive now**; 1 survived then, **killed now**; 1 new; 1 only in it." in text


def test_a_mutant_that_was_not_selected_is_not_called_gone() -> None:
    def why(*command: str) -> str:
        return render(dataclasses.replace(BESIDE, command=command)).partition("only in the last round: ")[2][:60]

    assert why("fastlora-verify", "mutate", "--all").startswith("no site has such a name now</summary>")
    assert why("fastlora-verify", "mutate", "--all", "--kernel", "qkv").startswith(
        "no site has such a name now, or it was not"
    )
    assert why("fastlora-verify", "mutate", "delegates-kept").startswith("no site has such a name now, or it was not")


def test_a_mutant_that_still_dies_on_a_card_and_no_longer_in_ci_is_lost() -> None:
    now = merge([("c.json", of_ci({"lost": SURVIVED})), ("d.json", of_a_card({"lost": KILLED_BY_MARKED}))])
    text = render(with_last_round(now, THEN, "old.json"))
    assert "**1 mutant that the last round killed survives now, in `head:cpu`.**" in text
    assert text.index("### Killed in the last round, survive now") < text.index("| mutation |")


def test_a_column_that_only_stands_beside_the_tree_under_review_raises_no_alarm() -> None:
    beside = dataclasses.replace(SURVIVED, beside=True)
    now = record_of((column("head:cpu", ON_CPU, beside=True),), {"lost": {"head:cpu": beside}})
    text = render(with_last_round(now, THEN, "old.json"))
    assert "### Killed in the last round" not in text
    assert "that the last round killed" not in text


# -- the trees ---------------------------------------------------------------------------------------------


def test_the_same_blobs_are_noticed_and_said() -> None:
    same = of_ci({"kept": KILLED, "alive": SURVIVED})
    text = render(with_last_round(same, THEN, "old.json"))
    assert "Last round: `old.json` of 2025-12-24 10:00 UTC" in text
    assert "same blobs, so the earlier record still holds" in text
    assert "Mutants: 4 only in it." in text


def test_same_blobs_with_other_verdicts_are_a_warning() -> None:
    differs = of_ci({"lost": SURVIVED})
    text = render(with_last_round(differs, THEN, "old.json"))
    assert "**same blobs, and yet verdicts differ**, so something beside the tree changed" in text
    assert "still holds" not in text


def test_same_blobs_under_other_libraries_do_not_say_that_the_record_holds() -> None:
    newer = column("head:cpu", dataclasses.replace(ON_CPU, torch="2.14.0"))
    text = render(with_last_round(record_of((newer,), {"kept": {"head:cpu": KILLED}}), THEN, "old.json"))
    assert "same blobs (torch 2.13.0 then, 2.14.0 now)" in text
    assert "still holds" not in text


def test_another_source_or_other_tests_are_not_the_same_blobs() -> None:
    text = render(BESIDE)
    assert "blobs" not in text
    tests = {"tests/test_pin.py": "8" * 64}
    column_ = dataclasses.replace(THEN.columns[0], tests_digest=digest_of(tests))
    other = dataclasses.replace(THEN, columns=(column_,), files={**THEN.files, digest_of(tests): tests})
    text = render(with_last_round(of_ci({"kept": KILLED}), other, "old.json"))
    assert "the same source, other tests" in text
    fewer = dataclasses.replace(THEN, target=dataclasses.replace(THEN.target, tests=("tests/test_pin.py::test_one",)))
    assert "the same source, other tests" in render(with_last_round(of_ci({"kept": KILLED}), fewer, "old.json"))


def test_columns_are_matched_by_id_else_by_the_only_one_of_the_device() -> None:
    renamed = record_of((column("change:cpu", ON_CPU),), {"kept": {"change:cpu": KILLED}})
    last = with_last_round(renamed, THEN, "old.json").last_round
    assert last is not None
    assert last.columns == {"change:cpu": "head:cpu"}
    assert "`change:cpu` beside its `head:cpu`" in render(with_last_round(renamed, THEN, "old.json"))
    two = record_of((column("a:cpu", ON_CPU), column("b:cpu", ON_CPU)), {"kept": {"a:cpu": KILLED}})
    found = with_last_round(two, THEN, "old.json").last_round
    assert found is not None
    assert found.columns == {}
    assert "compared in no column. Mutants" in render(with_last_round(two, THEN, "old.json"))


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(ComparisonError, match=r"old.json has none of these mutants: it is of another target"):
        check_comparable(["m@x"], NOW.columns, THEN, "old.json")
    with pytest.raises(ComparisonError, match=r"old.json has none of these columns: it has head:cpu"):
        check_comparable([THEN.mutants[0].name], (column("head:cuda", ON_CARD),), THEN, "old.json")
    edited = dataclasses.replace(THEN, files={digest_of(SOURCE): OTHER})
    with pytest.raises(ComparisonError, match=r"old.json contradicts itself, so it was edited or damaged"):
        check_comparable([THEN.mutants[0].name], NOW.columns, edited, "old.json")


def test_the_comparison_is_in_the_json_and_survives_it() -> None:
    assert rec.loads(rec.dumps(BESIDE)) == BESIDE


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_an_earlier_record_breaks_the_report(text: str) -> None:
    then = dataclasses.replace(hostile(text), started_at=text)
    now = dataclasses.replace(then, mutants=then.mutants[:2])
    assert_harmless(render(with_last_round(now, then, text)), ALLOWED_TAGS)
    assert_harmless(render(with_last_round(synthetic_record(), then, text)), ALLOWED_TAGS)


def test_many_lost_and_gone_mutants_fit_into_a_comment() -> None:
    then = many(900)
    now = dataclasses.replace(many(600, survivors=600), command=("fastlora-verify", "mutate", "--all"))
    text = render(with_last_round(now, then, "old.json"))
    assert len(text.encode()) <= LIMIT
    assert "300 mutants only in the last round" in text
    assert "**600 mutants that the last round killed survive now, in `head:cpu`.**" in text
    assert_harmless(text, ALLOWED_TAGS)
