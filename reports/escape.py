"""Text of the target made harmless in Markdown.

Test ids, messages, diffs and gists are written by whoever wrote the target. In a comment on a pull request
they must not break a table, close a `<details>`, mention a person, refer to or close an issue, or show as a
link or an image. Code spans and fenced blocks switch all of that off; so everything goes into one of them,
except words of prose that no Markdown processor reads as anything else.
"""

from __future__ import annotations

import re
import unicodedata

# Words that are safe outside of code: letters and digits, joined by signs that mean nothing to Markdown.
_WORD = re.compile(r"[^\W_]+(?:[-'’.,/×+][^\W_]+)*|[=×≤≥–—%@&/-]|\d[\d.,:]*[%×]?")
_LINK = re.compile(r"www\.|://|^[a-z]+\.[a-z]{2,}$|^gh-\d", re.IGNORECASE)
_MARKUP = re.compile(r"[\\*_\[\]<>|~#]")
_REFERS = re.compile(r"@|#\d|://|www\.|\bgh-\d", re.IGNORECASE)  # a backslash would not stop GitHub
_SHA = re.compile(r"^[0-9a-fA-F]{7,64}$")
_TOKEN = re.compile(r"(?<!\S)([(\"]*)(`[^`\n]+`|\S+?)([.,;:!?)\"…]*)(?!\S)")


def one_line(text: str, limit: int = 200) -> str:
    """`text` on one line of at most `limit` characters, control and direction characters made visible."""
    flat = " ".join(visible(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def code(text: str, limit: int = 200) -> str:
    """`text` as an inline code span that is also safe in a table's cell; an empty text gives an empty string.

    A pipe in a code span would end the cell, and an escaped one shows its backslash outside of tables; so a
    text with a pipe or a backtick becomes an HTML element with every sign as an entity.
    """
    flat = one_line(text, limit)
    if not flat:
        return ""
    if re.search(r"[|`]", flat):
        return html_code(flat, limit)
    return f"`{flat}`"


def html_code(text: str, limit: int = 200) -> str:
    """`text` as a `<code>` element that no Markdown processor reads into; for table cells and `<summary>`."""
    flat = one_line(text, limit)
    return f"<code>{''.join(map(_entity, flat))}</code>" if flat else ""


def prose(text: str, limit: int = 400) -> str:
    """`text` as a sentence: words as they are, whatever could mean something to Markdown as code."""
    return _TOKEN.sub(_safe_word, one_line(text, limit))


def own(text: str) -> str:
    """A sentence of this tool's own in Markdown: as it is, the signs that Markdown reads escaped, code in backticks."""
    if _REFERS.search(text):
        return prose(text)
    parts = re.split(r"`([^`]+)`", one_line(text, 400))
    return "".join(code(part) if i % 2 else _MARKUP.sub(r"\\\g<0>", part) for i, part in enumerate(parts))


def gist(text: str, limit: int = 200) -> str:
    """What an edit is: a sentence with code in backticks if it has any, else code as a whole."""
    return prose(text, limit) if "`" in text else code(text, limit)


def fence(text: str, language: str = "") -> str:
    """`text` as a fenced block, whatever backticks it holds."""
    lines = visible(text.replace("\r\n", "\n"), keep="\n\t").rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", lines)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{lines}\n{ticks}"


def _safe_word(match: re.Match[str]) -> str:
    before, word, after = match.groups()
    if after.startswith(")") and word.count("(") > word.count(")"):
        word, after = f"{word})", after[1:]
    if word.startswith("`") and word.endswith("`") and len(word) > 2:
        return before + code(word[1:-1]) + after
    if _WORD.fullmatch(word) and not _LINK.search(word) and not _SHA.match(word):
        return before + word + after
    return before + code(word) + after


def _entity(sign: str) -> str:
    return sign if sign.isalnum() or sign in " -,=+()" else f"&#{ord(sign)};"


def visible(text: str, keep: str = "") -> str:
    """Control, format and surrogate characters but those in `keep` become escapes, white space becomes spaces."""
    return "".join(sign if sign in keep else _shown(sign) for sign in text)


def _shown(sign: str) -> str:
    if sign in "\n\r\t\v\f":
        return " "
    if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return f"<U+{ord(sign):04X}>"
    return sign
