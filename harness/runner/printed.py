"""What the unmutated suite's passing tests print, within what a record has room for."""

from __future__ import annotations

import json

from fastlora_verify.harness.plan import Printed
from fastlora_verify.harness.runner.evidence import SuiteFacts

TOTAL = 128_000  # bytes of JSON, of one column

_SHOWN = ("passed", "xpassed")


def printed_by(facts: SuiteFacts) -> tuple[tuple[Printed, ...], str]:
    """The texts of passing tests, in the suite's order, and what is missing.

    A test whose text has no room any more is left out whole; the others are shortened by the child alone.
    """
    if not facts.captures:
        return (), "what tests print is not kept: the suite runs without pytest's capture"
    kept: list[Printed] = []
    left, left_out = TOTAL, 0
    for case in facts.tests.values():
        if not case.printed or case.category not in _SHOWN:
            continue
        size = len(json.dumps([case.test, case.printed]))
        if size > left:
            left_out += 1
            continue
        left -= size
        kept.append(Printed(case.test, case.printed))
    tests = f"{left_out} more tests print" if left_out > 1 else "1 more test prints"
    return tuple(kept), f"{tests} something that found no room in the record" if left_out else ""
