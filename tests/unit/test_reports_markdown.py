"""The report has the reviews' shape, fits into a comment, and no text of the target can break it."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest
from hostile_text import HOSTILE, assert_harmless, generated
from report_text import ALLOWED_TAGS, hostile, many, rows_of
from synthetic_record import PIN, cpu, delegation, killers, seen, synthetic_record, unseen

from fastlora_verify.reports import record as rec
from fastlora_verify.reports.findings import classify, nearest_test
from fastlora_verify.reports.fit import Part, fit, fixed
from fastlora_verify.reports.markdown import LIMIT, render
from fastlora_verify.reports.names import short_name
from fastlora_verify.reports.registry import FORMATS

GOLDEN = Path(__file__).parent.parent / "golden" / "report.md"


def test_the_report_of_a_record_with_one_of_everything_is_the_golden_one() -> None:
    text = render(synthetic_record())
    if os.environ.get("REWRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_the_table_has_the_unmutated_control_first_and_says_which_arms_died() -> None:
    text = render(synthetic_record())
    rows = rows_of(text[text.index("| mutation |") :])
    assert list(rows)[:2] == ["mutation", "none"]
    assert rows["none"][:2] == ["37 passed, 2 skipped", "39 passed"]
    itemsize = rows["`if x.dtype.itemsize != 4: return original_forward(x)`"]
    assert itemsize[0] == "12 failed (the bf16, fp16 and mixed arms)"
    assert itemsize[1].startswith("13 failed (the bf16, fp16 and mixed arms + `TestNf4::")
    mixed = rows["`if lora_a.dtype != x.dtype: return original_forward(x)`"]
    assert mixed[:2] == ["4 failed (the mixed arms)", "4 failed (the mixed arms)"]


def test_a_survivor_is_loud_and_says_how_many_tests_need_a_card() -> None:
    rows = rows_of(render(synthetic_record()))
    quant = rows['`if getattr(base.weight, "quant_state", None) is not None: return original_forward(x)`']
    assert quant[0] == "**37 passed, 2 skipped (survives; 1 test needs a card)**"
    assert quant[1].startswith("1 failed (`TestNf4::")


def test_without_a_card_every_skipped_test_might_still_kill() -> None:
    record = synthetic_record()
    record = dataclasses.replace(record, columns=record.columns[:1])
    mutant = delegation("x", "True", {"head:cpu": cpu(status="survived", passed=37)})
    rows = rows_of(render(dataclasses.replace(record, mutants=(mutant,))))
    assert rows["`if True: return original_forward(x)`"][0] == (
        "**37 passed, 2 skipped (survives; 2 tests need a card)**"
    )


def test_a_column_that_could_not_run_says_why_in_every_cell() -> None:
    record = synthetic_record()
    cuda = dataclasses.replace(record.columns[1], baseline=None, not_run="no CUDA device", controls=())
    text = render(dataclasses.replace(record, columns=(record.columns[0], cuda)))
    rows = rows_of(text[text.index("| mutation |") :])
    assert rows["none"][1] == "not run: no CUDA device"
    assert rows["`if lora_a.dtype != x.dtype: return original_forward(x)`"][1] == "not run: no CUDA device"


def test_survivors_that_an_oracle_sees_come_first_then_those_that_tests_build() -> None:
    green = {"head:cpu": cpu(status="survived", passed=37, triggered=12)}
    unbuilt = {"head:cpu": cpu(status="survived", passed=37, triggered=0)}
    mutants = (
        delegation("c", "c", unbuilt, oracles=(unseen(),)),
        delegation("b", "b", green, oracles=(unseen(),)),
        delegation("a", "a", unbuilt, oracles=(seen(),)),
    )
    found = classify(dataclasses.replace(synthetic_record(), mutants=mutants))
    assert [mutant.mutation for mutant in found.survivors] == ["delegates-a", "delegates-b", "delegates-c"]


def test_a_survivor_tells_built_and_green_from_never_built() -> None:
    text = render(synthetic_record())
    assert "- tests: **12 tests built it, all green**" in text
    assert "- tests: **no test builds this**; 25 tests ran `patch.forward` without it" in text
    nowhere = delegation("x", "x", {"head:cpu": cpu(status="survived", passed=37, reached=0, triggered=0)})
    text = render(dataclasses.replace(synthetic_record(), mutants=(nowhere,)))
    assert "- tests: **no test builds this**; none runs `patch.forward` at all" in text


@pytest.mark.parametrize("words", [("--target", "a b/t.toml"), ("--target=a b/t.toml",)])
def test_the_command_to_repeat_a_survivor_names_the_target(words: tuple[str, ...]) -> None:
    record = dataclasses.replace(synthetic_record(), command=("fastlora-verify", "mutate", *words, "--all"))
    assert "--to DIR --target 'a b/t.toml'`" in render(record)
    assert "--target" not in render(dataclasses.replace(record, command=("fastlora-verify", "mutate", "--all")))


def test_the_nearest_test_is_the_reached_one_most_like_the_mutant() -> None:
    reached = tuple(
        rec.ReachedTest(test=f"tests/test_a.py::test_{name}", triggered=False)
        for name in ("saved_bytes", "autocast_keeps_the_dtype", "gradcheck")
    )
    result = cpu(status="survived", passed=37, reached_tests=reached)
    mutant = delegation("under-autocast", "torch.is_autocast_enabled('cpu')", {"head:cpu": result})
    near = nearest_test(mutant, synthetic_record())
    assert near is not None
    assert near.test == "tests/test_a.py::test_autocast_keeps_the_dtype"


def test_killers_of_the_same_scope_stand_in_for_reached_tests() -> None:
    record = synthetic_record()
    mutant = delegation("on-mixed-2d", "x", {"head:cpu": cpu(status="survived", passed=37)})
    near = nearest_test(mutant, record)
    assert near is not None
    assert near.test.startswith(f"{PIN}[mixed-2d")
    assert nearest_test(dataclasses.replace(mutant, scope="elsewhere"), record) is None


def test_a_kill_by_exception_only_is_told_apart() -> None:
    found = classify(synthetic_record())
    assert [mutant.mutation for mutant in found.by_exception] == ["delegates-bias-dropped"]
    text = render(synthetic_record())
    assert "by an assertion of the tests, 1 by an exception only" in text
    assert text.index("### Killed by an exception only") < text.index("`delegates-bias-dropped@patch.forward")


def test_nothing_without_a_verdict_counts_as_killed_or_survived() -> None:
    statuses: tuple[rec.Status, ...] = ("timeout", "crash", "not-viable", "not-run")
    mutants = tuple(
        delegation(status, status, {"head:cpu": cpu(status=status, note="why @you")}) for status in statuses
    )
    record = dataclasses.replace(synthetic_record(), mutants=mutants)
    assert len(classify(record).no_verdict) == 4
    text = render(record)
    assert "**Nothing was judged:** none of the 4 mutants has a verdict." in text
    assert "`head:cpu`: not viable (why `@you`)" in text


def test_a_kill_without_the_mutant_having_run_is_no_verdict() -> None:
    result = cpu(status="killed", how="assertion", failed=1, reached=0, killers=killers("fp32-2d-T"))
    record = dataclasses.replace(synthetic_record(), mutants=(delegation("x", "x", {"head:cpu": result}),))
    assert len(classify(record).no_verdict) == 1
    assert "no test is known to have run the changed code" in render(record)


def test_an_audit_difference_and_a_stale_allowance_are_told() -> None:
    record = synthetic_record()
    difference = rec.AuditDifference(mutant="m", column="head:cpu", recorded="12 failed", plain="11 failed")
    record = dataclasses.replace(record, audit=rec.Audit(checked=5, differences=(difference,)))
    stale = dataclasses.replace(record.mutants[0], allowed="was needed once")
    text = render(dataclasses.replace(record, mutants=(stale, *record.mutants[1:])))
    assert "**1 differs, do not trust this report**" in text
    assert "allowed but killed, the allowance can go" in text


def test_a_record_of_oracles_alone_is_a_report_of_oracles() -> None:
    text = render(dataclasses.replace(synthetic_record(), mutants=()))
    assert text.startswith("## fastlora-verify: oracles on reference\n\n**No oracle objects.**")
    assert "#### float64\n" in text
    assert "| linear | gate `lora_B`, seed 7 | 1.7 x (limit 2) |" in text
    assert "unmutated |" not in text


def test_an_oracle_that_objects_to_the_unmutated_kernel_sees_nothing_in_a_mutant() -> None:
    record = synthetic_record()
    answer = dataclasses.replace(record.oracles[0], ok=False, summary="broken")
    text = render(dataclasses.replace(record, oracles=(answer,)))
    assert "sees it" not in text
    assert "The oracles see 0 of the 2." in text
    assert "**objects**: broken" in text


def test_many_mutants_are_folded_by_family_and_a_killed_one_is_not_in_the_open_table() -> None:
    text = render(many(60, survivors=2))
    opened, folded = text.split("### Every mutant, by family")
    assert "The other 58 mutants are killed; they are below, by family." in opened
    assert "x.dim() == 3:" not in opened
    assert folded.count("<details><summary><code>family") == 7
    assert "`delegates-number-3@patch.forward[number-3]`" in folded


@pytest.mark.parametrize(("count", "survivors"), [(500, 3), (2000, 30), (1500, 1500)])
def test_a_long_report_is_shortened_says_so_and_keeps_the_survivors(count: int, survivors: int) -> None:
    text = render(many(count, survivors))
    assert LIMIT - 4000 < len(text.encode()) <= LIMIT < 65_536
    assert re.search(r"more left out to fit into a comment; all of them are in `run\.json`", text)
    assert text.count("<details>") == text.count("</details>")
    assert "#### 1. " in text
    assert text.rstrip().endswith("</details>")
    told = assert_harmless(text, ALLOWED_TAGS)
    assert not any("left out" in cell for cell in told.cells)
    if survivors < 100:
        assert f"#### {survivors}. " in text


def test_a_report_that_cannot_be_shortened_enough_keeps_its_verdict() -> None:
    text = render(many(50), limit=700)
    assert len(text.encode()) <= 700
    assert "No mutant survives unexplained" in text
    assert "The rest does not fit into 700 bytes" in text


def test_parts_give_up_items_in_the_order_of_their_expendability() -> None:
    def part(name: str, expendable: int) -> Part:
        return Part(lambda n: name * n, 10, expendable)

    assert fit([fixed("head"), part("a", 1), part("b", 2)], 26) == "head\n\naaaaaaaaaa\n\nbbbbbbb\n"
    assert fit([fixed("head"), part("a", 1), part("b", 2)], 12) == "head\n\naaaaa\n"
    assert fit([fixed("head"), part("a", 1)], 3) is None


def test_parts_of_one_rank_give_up_together_the_longest_first() -> None:
    long, short = Part(lambda n: "l" * n, 10, 1), Part(lambda n: "s" * n, 3, 1)
    assert fit([long, short], 11) == "lllll\n\nsss\n"
    assert fit([long, short], 7) == "ll\n\nss\n"


def test_what_a_part_keeps_is_given_up_last() -> None:
    keeps = Part(lambda n: "k" * n, 10, 2, keep=4)
    other = Part(lambda n: "o" * n, 10, 1)
    assert fit([keeps, other], 11) == "kkkk\n\noooo\n"
    assert fit([keeps, other], 5) == "kkkk\n"
    assert fit([keeps, other], 3) == "kk\n"


@pytest.mark.parametrize("text", [*HOSTILE, *generated(25)])
def test_no_text_of_the_target_breaks_the_report_or_refers_to_anything(text: str) -> None:
    report = render(hostile(text))
    assert_harmless(report, ALLOWED_TAGS)
    harmless = render(hostile("plain" + "x" * (len(text) % 2)))
    assert report.count("<details>") <= len(re.findall("<details>", harmless)) + 2


def test_a_short_name_has_no_module() -> None:
    assert short_name("m@a.b.c:outer.inner[x: 1]") == "m@outer.inner[x: 1]"
    assert short_name("m@a.b.c[x]") == "m@a.b.c[x]"


def test_the_formats_are_found_by_name() -> None:
    record = synthetic_record()
    assert FORMATS["markdown"](record).startswith("## fastlora-verify")
    assert rec.loads(FORMATS["json"](record)) == record


def test_one_edit_in_several_places_of_a_kernel_says_where() -> None:
    record = synthetic_record()
    first = record.mutants[0]
    twin = dataclasses.replace(first, name=f"{first.name}~twin", scope="other_forward")
    text = render(dataclasses.replace(record, mutants=(first, twin)))
    labels = [label for label in rows_of(text) if " in `" in label]
    assert any(label.endswith("in `other_forward`") for label in labels)
    assert len(labels) == 2


@pytest.mark.parametrize(("by", "line"), [("seen", "see the survivor."), ("unseen", "don't see the survivor.")])
def test_one_survivor_is_told_without_a_fraction(by: str, line: str) -> None:
    alive = {"head:cpu": cpu(status="survived", passed=37)}
    one = delegation("a", "a", alive, oracles=(seen() if by == "seen" else unseen(),))
    assert f"The oracles {line}" in render(dataclasses.replace(synthetic_record(), mutants=(one,)))
