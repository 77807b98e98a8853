"""Every oracle, in the order in which they are run and reported: one line each."""

from __future__ import annotations

from fastlora_verify.oracles import (
    calls,
    dropout,
    exact,
    float64,
    gemms,
    lifecycle,
    node_taken,
    saved_bytes,
    second_order,
    streaming,
    unchanged,
)
from fastlora_verify.oracles.base import Oracle

ORACLES: tuple[Oracle, ...] = (
    node_taken.ORACLE,
    exact.ORACLE,
    float64.ORACLE,
    saved_bytes.ORACLE,
    gemms.ORACLE,
    streaming.ORACLE,
    calls.ORACLE,
    unchanged.ORACLE,
    second_order.ORACLE,
    dropout.ORACLE,
    lifecycle.ORACLE,
)
