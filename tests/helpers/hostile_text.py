"""Texts that try to break Markdown, and a reader that tells whether they did."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

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
