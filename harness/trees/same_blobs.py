"""Says where the files that matter are the same as in another column or in the run before, so that its results hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastlora_verify.reports.record import Column, RunRecord


def with_same_blobs(record: RunRecord, earlier: RunRecord | None) -> RunRecord:
    """The record with a note in every column whose source and tests were run before, by content."""
    columns = []
    for place, column in enumerate(record.columns):
        note = _beside(column, record.columns[:place]) or _before(column, record, earlier)
        columns.append(replace(column, notes=(*column.notes, note)) if note else column)
    return replace(record, columns=tuple(columns))


def _beside(column: Column, others: Sequence[Column]) -> str:
    for other in others:
        if _same(column, other) and column.tree_digest != other.tree_digest:
            return f"source and tests have the same blobs as {other.id}; only other files differ"
    return ""


def _before(column: Column, record: RunRecord, earlier: RunRecord | None) -> str:
    """A run whose every result was taken over has said so itself."""
    if earlier is None or _asked(earlier) != _asked(record) or any("earlier run" in note for note in column.notes):
        return ""
    for other in earlier.columns:
        ran = other.not_run is None and (other.baseline is None) == (column.baseline is None)
        if _same(column, other) and ran and other.environment == column.environment:
            when = f"{earlier.started_at[:16].replace('T', ' ')} UTC"
            return f"source and tests have the same blobs as {other.id} in the run of {when}: that record still holds"
    return ""


def _asked(record: RunRecord) -> tuple[object, ...]:
    """What two runs must have in common beside the files."""
    return record.tool_version, record.target.name, record.target.tests, record.shard


def _same(one: Column, other: Column) -> bool:
    def contents(column: Column) -> tuple[str, ...]:
        return column.device, column.source_digest, column.tests_digest

    return bool(one.source_digest and one.tests_digest) and contents(one) == contents(other)
