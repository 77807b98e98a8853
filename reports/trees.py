"""Which tree a column is of, by the content of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fastlora_verify.reports.record import Column, RunRecord

SIDES = ("source", "tests")


@dataclass(frozen=True)
class Of:
    """A column of a record, and what messages call the record."""

    name: str
    record: RunRecord
    column: Column


def digest_of(files: Mapping[str, str]) -> str:
    """`sha256:` and the digest of lines `PATH NUL HASH`, in the order of the paths; "" of no files."""
    if not files:
        return ""
    text = "".join(f"{path}\0{content}\n" for path, content in sorted(files.items()))
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}"


def sealed(column: Column) -> Column:
    """The column with the digest of its revisions and digests, by which an edit of one of them shows."""
    return replace(column, identity=_identity(column))


def _identity(column: Column) -> str:
    said = (column.source_rev, column.tests_rev, column.source_digest, column.tests_digest, column.tree_digest)
    return digest_of(dict(zip(("source_rev", "tests_rev", "source", "tests", "tree"), said, strict=True)))


def tree_name(column: Column) -> str:
    """`head` of the columns `head:cpu` and `head:cpu (Some Card)`; the id itself where it has another form."""
    return column.id.rpartition(f":{column.device}")[0] or column.id


def digest(column: Column, side: str) -> str:
    """The digest of a side's files."""
    return column.source_digest if side == "source" else column.tests_digest


def revision(column: Column, side: str) -> str:
    """What a side was called: a commit, or a digest of the files that were looked into."""
    return column.source_rev if side == "source" else column.tests_rev


def side_differs(one: Of, other: Of, side: str) -> str | None:
    """What differs between one side of two columns' trees, in words; "" if nothing does, None if it can't be told.

    Digests of contents decide; in records that are older than these, equal revisions do.
    """
    digests, revisions = (
        [digest(of.column, side) for of in (one, other)],
        [revision(of.column, side) for of in (one, other)],
    )
    contents = all(text.startswith("sha256:") for text in revisions)
    if not all(digests):
        if not all(revisions):
            return None
        return "" if revisions[0] == revisions[1] else _each("revision ", revisions, one, other)
    if digests[0] != digests[1]:
        mine, theirs = one.record.files.get(digests[0]), other.record.files.get(digests[1])
        return _files_differ(mine, theirs, one, other) if mine and theirs else _each("", digests, one, other)
    return _each("revision ", revisions, one, other) if contents and revisions[0] != revisions[1] else ""


def _each(what: str, told: Sequence[str], one: Of, other: Of) -> str:
    return f"{what}{told[0]} in {one.name}, {told[1]} in {other.name}"


def _files_differ(mine: Mapping[str, str], theirs: Mapping[str, str], one: Of, other: Of) -> str:
    told = [
        *(f"{path} has another content" for path in mine if path in theirs and mine[path] != theirs[path]),
        *(f"only {one.name} has {path}" for path in mine if path not in theirs),
        *(f"only {other.name} has {path}" for path in theirs if path not in mine),
    ]
    more = len(told) - 1
    return told[0] + (f", and {more} more {'file differs' if more == 1 else 'files differ'}" if more else "")


def contradiction(record: RunRecord) -> str:
    """What a record says of its files that can't be true; "" if nothing. An edit by hand shows here."""
    for name, files in record.files.items():
        if digest_of(files) != name:
            return f"the list of files called {name} has another digest"
    for column in record.columns:
        for side in SIDES:
            if digest(column, side) and digest(column, side) not in record.files:
                return f"{side}_digest of column {column.id} is that of no list of files in it"
        if column.identity and column.identity != _identity(column):
            return f"the revisions and digests of column {column.id} are not those that it was written with"
    return ""
