"""Whatever the target's texts hold, a Markdown processor reads them as text."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

import pytest
from fastlora_verify.reports.escape import code, fence, html_code, one_line, prose
from fastlora_verify.reports.tables import table
from markdown_it import MarkdownIt

HOSTILE = [
    "a | b || c",
    "back`tick ``two`` ```three```",
    "ends with `",
    "`starts",
    "trailing backslash \\",
    "a\\|b",
    "line\nbreak\r\nand\rmore",
    "@octocat and @some/team",
    "fixes #1, closes owner/repo#12, resolves GH-7",
    "fixes https://github.com/o/r/issues/1 and www.example.com",
    "mail someone@example.com",
    "</details></table><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- comment",
    "[link](https://example.com) ![image](https://example.com/x.png)",
    "**bold** _em_ ~~gone~~ # heading",
    "$x^2$ and $`y`$",
    "commit 0123456789abcdef0123456789abcdef01234567 deadbeef",
    "&lt;b&gt; &#35;1 &amp;",
    "esc \x1b[31mred\x1b[0m nul \x00 bell \x07",
    "right \u202eto left\u2066 zero\u200bwidth",
    "```\nfenced\n```\n</details>",
    "~~~\n@user\n~~~",
    ":smile: 1. - + item",
    "|---|---|",
    "lone surrogate \ud800",
]
ALPHABET = [
    *list("ab1@#`|\\<>&*_[]()!~$:/.-+\"' \n\r\t"),
    "```",
    "</details>",
    "@bob",
    "#12",
    "GH-3",
    "https://",
    "www.",
]


def generated(count: int) -> list[str]:
    source = random.Random(7)
    return ["".join(source.choices(ALPHABET, k=source.randint(1, 30))) for _ in range(count)]


class Reader(HTMLParser):
    """What GitHub's own filters look at: the tags, and the text outside of code."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.loose = ""
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in ("br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.cells and ("td" in self.open or "th" in self.open):
            self.cells[-1] += data
        if not {"code", "pre"} & set(self.open):
            self.loose += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


REFERENCES = re.compile(r"@\w|#\w|\bGH-\d|://|www\.\w|\w@\w|\b[0-9a-f]{7,40}\b|\$\S|:\w+:", re.IGNORECASE)


def read(markdown: str) -> Reader:
    reader = Reader()
    html = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader


def assert_harmless(markdown: str, tags: set[str]) -> Reader:
    reader = read(markdown)
    assert set(reader.tags) <= tags, reader.tags
    assert not REFERENCES.search(reader.loose), reader.loose
    return reader


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
    assert prose("column head:cpu") == "column head:cpu"


def test_an_empty_text_gives_no_empty_code() -> None:
    assert code("") == code(" \n ") == html_code("") == prose("") == ""


def test_long_text_is_cut_and_says_so() -> None:
    assert code("x" * 300, 10) == "`xxxxxxxxx…`"


def test_direction_and_control_characters_become_visible() -> None:
    assert one_line("a\u202eb\x1bc\x00") == "a<U+202E>b<U+001B>c<U+0000>"
