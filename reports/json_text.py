"""The run record itself, as JSON text."""

from __future__ import annotations

from fastlora_verify.reports.record import dumps as render

NAME = "json"

__all__ = ["NAME", "render"]
