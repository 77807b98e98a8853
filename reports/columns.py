"""What the columns say of each other: tests of one tree on the source of another, and trees that can't be made."""

from __future__ import annotations

from collections.abc import Sequence

from fastlora_verify.reports.cells import counted
from fastlora_verify.reports.escape import code, prose
from fastlora_verify.reports.findings import noticed_beside
from fastlora_verify.reports.record import Column, MutantRecord, RunRecord, Stopped
from fastlora_verify.reports.tables import table

WORKING_TREE = "working tree"


def origin(name: str, revision: str) -> str:
    """A side's tree as the user calls it, with its commit or the beginning of its digest."""
    short = code(revision[: 9 if len(revision) in (40, 64) else 19], 40) if revision else ""
    return f"{prose(name, 80)} {short}".strip()


def crossings(record: RunRecord) -> list[str]:
    """A sentence for each column that runs the tests of one tree on the source of another."""
    return [_crossing(column, record.columns) for column in record.columns if column.source != column.tests]


def _crossing(column: Column, columns: Sequence[Column]) -> str:
    what = f"the tests of {_named(column.tests)} on the source of {_named(column.source)}"
    if column.baseline is None:
        return f"{what}: not run ({prose(column.not_run or 'no reason is known', 160)})"
    counts = counted(column.baseline)
    own = next((other for other in columns if not other.beside), None)
    is_new = own is not None and column.tests == own.tests and _differ(column, own)
    red = next((control for control in column.controls if not control.ok), None)
    if red is not None and red.name == "unmutated":
        so = "they fail there, so they hold something that the change does; " if is_new else ""
        return f"**{what}: {counts}** ({so}{prose(red.summary.partition('; ')[2] or red.summary, 400)})"
    if red is not None:
        return f"{what}: {counts}, and no mutant was judged there ({prose(red.summary, 400)})"
    if is_new:
        return f"**{what}: {counts}: none of them sees what the change does**"
    return f"{what}: {counts}"


def _differ(one: Column, other: Column) -> bool:
    """Whether two columns' sources do, by content where it is known."""
    if one.source_digest and other.source_digest:
        return one.source_digest != other.source_digest
    return one.source != other.source


def _named(tree: str) -> str:
    return f"the {tree}" if tree == WORKING_TREE else prose(tree, 80)


def lost_to(survivors: Sequence[MutantRecord]) -> str:
    """How many survivors die in columns beside the tree under review; empty if none does."""
    beside = [noticed_beside(mutant) for mutant in survivors]
    columns = dict.fromkeys(column for found in beside for column in found)
    if not columns:
        return ""
    number = sum(bool(found) for found in beside)
    return f"**{number} of these {'is' if number == 1 else 'are'} killed in {prose(', '.join(columns), 120)}.**"


def stopped_text(target: str, stopped: Stopped) -> str:
    """The report of a run that had no tree to run on: conflicts by path and kind."""
    number = len(stopped.conflicts)
    rows = [(code(one.path, 200), prose(one.kind, 40), prose(one.text, 300)) for one in stopped.conflicts]
    title = f"## fastlora-verify: {prose(target, 80)}: {prose(stopped.step, 200)}"
    verdict = f"**{number} path{'' if number == 1 else 's'} in conflict; nothing was run.**"
    return f"{title}: conflict\n\n{verdict}\n\n{table(('path', 'kind', 'git says'), rows)}"
