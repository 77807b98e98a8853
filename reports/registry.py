"""The formats that a record can be shown in. A new one: a module with `NAME` and `render`, a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastlora_verify.reports import csv_text, html_page, json_text, junit, markdown
from fastlora_verify.reports.record import RunRecord

FORMATS: Mapping[str, Callable[[RunRecord], str]] = {
    markdown.NAME: markdown.render,
    json_text.NAME: json_text.render,
    csv_text.NAME: csv_text.render,
    junit.NAME: junit.render,
    html_page.NAME: html_page.render,
}
