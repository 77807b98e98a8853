"""Whatever the target's texts hold, a Markdown processor reads them as text."""

from __future__ import annotations

import pytest
from hostile_text import HOSTILE, assert_harmless, generated, read

from fastlora_verify.reports.escape import code, fence, html_code, one_line, prose
from fastlora_verify.reports.tables import table


@pytest.mark.parametrize("inline", [code, html_code, prose])
@pytest.mark.parametrize("text", HOSTILE)
def test_inline_text_makes_no_markup_and_no_reference(inline: object, text: str) -> None:
    assert callable(inline)
    assert_harmless(f"before {inline(text)} after", {"p", "code"})


@pytest.mark.parametrize("inline", [code, html_code, prose])
def test_generated_inline_text_makes_no_markup_and_no_reference(inline: object) -> None:
    assert callable(inline)
    for text in generated(1500):
        assert_harmless(f"before {inline(text)} after", {"p", "code"})


@pytest.mark.parametrize("inline", [code, html_code, prose])
def test_a_cell_stays_a_cell(inline: object) -> None:
    assert callable(inline)
    tags = {"table", "thead", "tbody", "tr", "th", "td", "code"}
    for text in [*HOSTILE, *generated(700)]:
        reader = assert_harmless(table(("left", "right"), [(inline(text), "end")]), tags)
        assert len(reader.cells) == 4
        assert reader.cells[0] == "left"
        assert reader.cells[-1] == "end"


@pytest.mark.parametrize("text", HOSTILE)
def test_code_shows_the_text_itself(text: str) -> None:
    assert "".join(table_cells(code(text, 400))) == one_line(text, 400)


def table_cells(cell: str) -> list[str]:
    return read(table(("head",), [(cell,)])).cells[1:]


@pytest.mark.parametrize("ticks", ["`", "```", "`" * 40])
def test_a_fence_is_longer_than_any_run_of_backticks_in_it(ticks: str) -> None:
    text = f"+{ticks}\n{ticks}\n</details>\n@user #1\n{ticks}python"
    reader = assert_harmless(f"<details>\n\n{fence(text, 'diff')}\n\n</details>", {"details", "pre", "code"})
    assert reader.loose.strip() == ""


def test_generated_fences_hold() -> None:
    for text in generated(500):
        reader = assert_harmless(f"{fence(text, 'diff')}\n\nafter", {"pre", "code", "p"})
        assert reader.loose.strip() == "after"


def test_plain_words_stay_plain_and_identifiers_become_code() -> None:
    assert prose("a guard, 3.4 times 1e-3 (12%)") == "a guard, 3.4 times 1e-3 (12%)"
    assert prose("behind `x.y` and lora_bias, too") == "behind `x.y` and `lora_bias`, too"
    assert prose("(see f(x), g())") == "(see `f(x)`, `g()`)"
    assert prose("at 03:04 in head:cpu") == "at 03:04 in `head:cpu`"


def test_an_empty_text_gives_no_empty_code() -> None:
    assert code("") == code(" \n ") == html_code("") == prose("") == ""


def test_long_text_is_cut_and_says_so() -> None:
    assert code("x" * 300, 10) == "`xxxxxxxxx…`"


def test_direction_and_control_characters_become_visible() -> None:
    assert one_line("a\u202eb\x1bc\x00") == "a<U+202E>b<U+001B>c<U+0000>"


def test_a_word_that_was_cut_off_is_no_code() -> None:
    assert prose("PEFT gives torch.float32", 12) == "PEFT gives…"
    assert prose("(not run: more than 10 s of CPU tim…)") == "(not run: more than 10 s of CPU tim…)"
    assert prose("in test_a_long_na…") == "in `test_a_long_na`…"
