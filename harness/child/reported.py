"""What pytest's reports say beside the outcome: failed collectors, reasons, failures without an exception."""

from __future__ import annotations

from typing import Any

import pytest

from fastlora_verify.harness.child.exception import MESSAGE, exception_fact


def failed_collection(report: Any, root: str) -> dict[str, Any] | None:
    """The fact of a collector that found an error, or skipped itself; None of any other."""
    if not (report.failed or report.skipped):
        return None
    fact: dict[str, Any] = {"event": "collect", "test": report.nodeid}
    fact["category"] = "error" if report.failed else "skipped"
    call = getattr(report, "call", None)
    if report.failed and call is not None and call.excinfo is not None:
        fact["exception"] = exception_fact(_cause(call.excinfo.value), root)
    else:
        fact["reason"] = skip_reason(report)
    return fact


def _cause(error: BaseException) -> BaseException:
    """What a CollectError was made of: pytest wraps import and syntax errors of test modules."""
    while isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def skip_reason(report: Any) -> str:
    """Why a test or a collector was skipped, without pytest's own words."""
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) and len(longrepr) == 3 else str(longrepr or "")
    return str(text).removeprefix("Skipped: ")[:MESSAGE]


def unraised(text: str) -> dict[str, Any]:
    """A failure without an exception: a strict xfail that passed, or a plugin's verdict."""
    first = text.strip().splitlines()[0][:MESSAGE] if text.strip() else ""
    kind = "XPASS(strict)" if first.startswith("[XPASS(strict)]") else "Failed"
    return {"type": kind, "mro": [kind], "judges": True, "message": first, "name": None, "frames": []}
