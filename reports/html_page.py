"""The report as one HTML page: the Markdown, whole, through a CommonMark processor. No script, nothing loaded."""

from __future__ import annotations

import html

from markdown_it import MarkdownIt

from fastlora_verify.reports import markdown
from fastlora_verify.reports.escape import one_line
from fastlora_verify.reports.record import RunRecord

NAME = "html"
_NO_LIMIT = 1 << 40
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 100em; padding: 0 1em; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ border: 1px solid #ccc; padding: .3em .6em; text-align: left; vertical-align: top; }}
code, pre {{ background: #f4f4f4; font: 13px ui-monospace, monospace; }}
pre {{ overflow-x: auto; padding: .8em; }}
details {{ margin: 1em 0; }}
</style>
</head>
<body>
{body}</body>
</html>
"""


def render(record: RunRecord) -> str:
    """The page; what the Markdown shortens to fit into a comment is whole here."""
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    body = reader.render(markdown.render(record, limit=_NO_LIMIT))
    return _PAGE.format(title=html.escape(one_line(f"fastlora-verify: {record.target.name}")), body=body)
