"""Every exit status, and the one that a finished run earns."""

from __future__ import annotations

from enum import IntEnum

from fastlora_verify.reports.findings import Class, class_of, deciding
from fastlora_verify.reports.record import MutantRecord, RunRecord
from fastlora_verify.reports.suite_record import EXCEPTIONS, UNTOLD
from fastlora_verify.reports.sweep_record import GOOD, SKIPPED, SweepRecord

NOT_JUDGED = ("not-run", "no-site")  # statuses that say nothing, and hide nothing: their columns say why


class ExitCode(IntEnum):
    """Statuses of the command. Where several apply, the first in ORDER is given."""

    OK = 0  # every mutant killed or allowed
    SURVIVORS = 1  # survivors that the target's table does not allow; an oracle, a sweep or a suite objects
    USAGE = 2  # the command line, a target file or a record is wrong, or a device is missing
    UNEXPLAINED = 3  # timeouts, crashes, mutants not viable or never reached, without an allowance
    RED_CONTROL = 4  # a control is red, or a merge conflicts: no verdict would mean anything
    NOTHING_TO_RUN = 5  # no mutant, no test or no record was selected
    FAULT = 70  # a fault of ours


ORDER = (
    ExitCode.FAULT,
    ExitCode.USAGE,
    ExitCode.RED_CONTROL,
    ExitCode.NOTHING_TO_RUN,
    ExitCode.SURVIVORS,
    ExitCode.UNEXPLAINED,
    ExitCode.OK,
)


def of_run(record: RunRecord) -> ExitCode:
    """The status of a run that came to its end.

    A mutant counts as a survivor when it survived in some column and was killed in none: what the CPU suite
    can't show may be shown on a card.
    """
    applying = {ExitCode.OK} | {_of_mutant(mutant) for mutant in record.mutants}
    if not _verdicts(record):
        applying.add(ExitCode.NOTHING_TO_RUN)
    if record.stopped is not None or _is_red(record):
        applying.add(ExitCode.RED_CONTROL)
    if record.faults or (record.audit and record.audit.differences):
        applying.add(ExitCode.FAULT)
    if record.faults_elsewhere:
        applying.add(ExitCode.USAGE)
    return next(code for code in ORDER if code in applying)


def of_oracles(record: RunRecord) -> ExitCode:
    """The status of oracles that were asked of the unmutated kernels: those of the tree under review decide."""
    if record.stopped is not None:
        return ExitCode.RED_CONTROL
    beside = {column.id for column in record.columns if column.beside}
    red = any(answer.ok is False for answer in record.oracles if answer.column not in beside)
    return ExitCode.SURVIVORS if red else ExitCode.OK


def of_sweep(record: SweepRecord) -> ExitCode:
    """The status of a sweep that came to its end: whether each run that judged anything passed."""
    runs = [run.outcome for column in record.columns for arm in column.arms for run in arm.runs]
    judged = [outcome for outcome in runs if outcome not in (SKIPPED, *NOT_JUDGED)]
    if not judged:
        return ExitCode.NOTHING_TO_RUN
    return ExitCode.OK if all(outcome in GOOD for outcome in judged) else ExitCode.SURVIVORS


def of_suite(record: RunRecord) -> ExitCode:
    """The status of two suites that were compared: what was lost comes before what can't be told."""
    kinds = {finding.kind for finding in record.suite.findings} if record.suite is not None else set()
    if kinds & set(EXCEPTIONS):
        return ExitCode.SURVIVORS
    return ExitCode.UNEXPLAINED if kinds & set(UNTOLD) else ExitCode.OK


def _of_mutant(mutant: MutantRecord) -> ExitCode:
    kind = class_of(mutant)
    if kind is Class.SURVIVOR:
        return ExitCode.SURVIVORS
    judged = any(result.status not in NOT_JUDGED for result in deciding(mutant))
    if kind is Class.NO_VERDICT and judged and mutant.allowed is None:
        return ExitCode.UNEXPLAINED
    return ExitCode.OK


def _is_red(record: RunRecord) -> bool:
    """Whether a red suite is more than a finding: it is none where one tree's tests run on another's source."""
    red = [column for column in record.columns if not all(control.ok for control in column.controls)]
    return any(column.source == column.tests for column in red) or (bool(red) and not _verdicts(record))


def _verdicts(record: RunRecord) -> bool:
    if record.shard is not None and not record.shard.part:  # nothing was to be judged, where it could have been
        return any(column.not_run is None for column in record.columns)
    results = [result for mutant in record.mutants for result in mutant.results.values()]
    return any(result.status not in NOT_JUDGED for result in results)
