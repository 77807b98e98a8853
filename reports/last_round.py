"""What the report says of the last round: the verdict's first words, a column, what changed, what is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastlora_verify.reports import sections
from fastlora_verify.reports.cells import counted, failures, then_text
from fastlora_verify.reports.escape import code, gist, prose
from fastlora_verify.reports.fit import Part
from fastlora_verify.reports.names import short_name
from fastlora_verify.reports.record import LastRound, RunRecord, Then
from fastlora_verify.reports.rounds import Change, gained, is_new, lost
from fastlora_verify.reports.tables import table


def alarm(record: RunRecord) -> str:
    """The sentence that comes before every other: what the tests no longer see."""
    mutants = {change.mutant.name for change in lost(record)}
    columns = dict.fromkeys(prose(change.column, 60) for change in lost(record))
    if not mutants:
        return ""
    survive = "survives" if len(mutants) == 1 else "survive"
    return f"**{_mutants(len(mutants))} that the last round killed {survive} now, in {', '.join(columns)}.**"


def summary(record: RunRecord) -> str:
    """Which round this one is compared with, whether it was of the same blobs, and how much changed."""
    last = record.last_round
    if last is None:
        return ""
    of = prose(last.started_at[:16].replace("T", " "))
    changes = [(lost(record), "killed then, **survive now**"), (gained(record), "survived then, **killed now**")]
    counts = [f"{len({c.mutant.name for c in found})} {told}" for found, told in changes if found]
    new = sum(is_new(mutant, record) for mutant in record.mutants)
    counts += [f"{new} new"] if new else []
    counts += [f"{len(last.gone)} only in it"] if last.gone else []
    told = "; ".join(counts) or "no verdict changed"
    return f"Last round: {code(last.file, 200)} of {of} UTC, {_trees(record, last)}. Mutants: {told}."


def change_parts(record: RunRecord) -> list[Part]:
    """The tables of the verdicts that changed: first what was lost."""
    titles = (
        (lost(record), "### Killed in the last round, survive now", 1),
        (gained(record), "### Survived in the last round, killed now", 4),
    )
    return [_changes(found, title, record, rank) for found, title, rank in titles if found]


def gone_part(record: RunRecord) -> Part:
    """The mutants that only the last round has."""
    last = record.last_round
    gone = last.gone if last is not None else ()
    whole = "--all" in record.command and not {"--kernel", "--family"} & set(record.command)
    why = "no site has such a name now" if whole else "no site has such a name now, or it was not selected"
    rows = [(code(short_name(one.name), 120), gist(one.gist, 110), _by_column(one.then)) for one in gone]

    def text(number: int) -> str:
        if not rows:
            return ""
        told = f"{_mutants(len(rows))} only in the last round: {why}"
        body = table(("mutant", "edit", "then"), rows[:number]) if number else ""
        return sections.folded(told, body, sections.left_out(len(rows) - number, record))

    return Part(text, len(rows), 6)


def _changes(found: Sequence[Change], title: str, record: RunRecord, rank: int) -> Part:
    rows = [
        (
            code(short_name(change.mutant.name), 120),
            gist(change.mutant.gist, 110),
            prose(change.column, 60),
            then_text(change.then),
            f"**{counted(change.now)}**" if change.now.status == "survived" else failures(change.now),
        )
        for change in found
    ]

    def text(number: int) -> str:
        body = table(("mutant", "edit", "column", "then", "now"), rows[:number]) if number else ""
        return sections.paragraphs(title, body, sections.left_out(len(rows) - number, record))

    return Part(text, len(rows), rank)


def _by_column(then: Mapping[str, Then]) -> str:
    return "; ".join(f"{prose(column, 60)}: {then_text(outcome)}" for column, outcome in then.items())


def _trees(record: RunRecord, last: LastRound) -> str:
    """Same blobs, or which side is another; and what else was."""
    pairs = [prose(mine if mine == then else f"{mine} beside its {then}", 80) for mine, then in last.columns.items()]
    told = f"compared in {', '.join(pairs) or 'no column'}"
    versions = f" ({prose(', '.join(last.other_versions), 200)})" if last.other_versions else ""
    if last.columns and set(last.same_blobs) == set(last.columns):
        if lost(record) or gained(record):
            return f"{told}: **same blobs, and yet verdicts differ**{versions}, so something beside the tree changed"
        if versions:
            return f"{told}: same blobs{versions}"
        return f"{told}: same blobs, so the earlier record still holds"
    if last.same_blobs:
        return f"{told}: same blobs in {prose(', '.join(last.same_blobs), 80)}{versions}"
    if last.columns and set(last.same_source) == set(last.columns):
        return f"{told}: the same source, other tests{versions}"
    return told + versions


def _mutants(number: int) -> str:
    return f"{number} mutant{'' if number == 1 else 's'}"
