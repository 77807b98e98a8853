"""The texts of the report's table cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastlora_verify.reports.arms import arms
from fastlora_verify.reports.escape import prose
from fastlora_verify.reports.gates import dies_only_on_a_card
from fastlora_verify.reports.record import Column, Counts, MutantRecord, Result, RunRecord, Then
from fastlora_verify.reports.trees import tree_name


def counted(counts: Counts, *, only_bad: bool = False) -> str:
    """`37 passed, 2 skipped`; with `only_bad`, failures and errors alone."""
    names = ("failed", "errors") if only_bad else ("failed", "passed", "errors", "skipped", "xfailed", "xpassed")
    parts = [(getattr(counts, name), name) for name in names]
    told = [f"{number} {_noun(name, number)}" for number, name in parts if number]
    return ", ".join(told) or ("" if only_bad else "no test ran")


def failures(result: Result | Then) -> str:
    """`12 failed`; `≥ 1 failed` where the tests were not run to the end."""
    counts = Counts(failed=result.failed, errors=result.errors)
    text = counted(counts, only_bad=True)
    return f"≥ {text}" if text and result.stopped else text


def baseline_cell(column: Column) -> str:
    """The cell of the first row: the unmutated suite."""
    if column.not_run is not None and column.baseline is None:
        return f"not run: {prose(column.not_run, 120)}"
    return counted(column.baseline) if column.baseline else "not run"


@dataclass(frozen=True)
class Context:
    """What a cell needs to know of the other cells."""

    columns: Mapping[str, Column]  # by id
    known: Sequence[str]  # every test known to die of something


def context_of(record: RunRecord) -> Context:
    """The context of the record's cells."""
    columns = {column.id: column for column in record.columns}
    results = (result for mutant in record.mutants for result in mutant.results.values())
    return Context(columns, list(dict.fromkeys(killer.test for result in results for killer in result.killers)))


def cell(mutant: MutantRecord, column: Column, context: Context) -> str:
    """What became of `mutant` in `column`."""
    result = mutant.results.get(column.id)
    if column.not_run is not None and (result is None or result.status != "no-site"):
        return f"not run: {prose(column.not_run, 120)}"
    if result is None:
        return "not run"
    if result.status == "killed":
        return _killed(mutant, result, column, context)
    if result.status == "survived":
        return _survived(mutant, result, column, context)
    note = f": {prose(result.note, 120)}" if result.note else ""
    return result.status.replace("-", " ") + note


def last_round_cell(mutant: MutantRecord, record: RunRecord) -> str:
    """The mutant's cell in the column of the last round."""
    last = record.last_round
    if last is None or mutant.name not in last.then:
        return "new"
    then = last.then[mutant.name]
    return _by_column({column: _round_cell(outcome, mutant, column) for column, outcome in then.items()})


def last_round_control(record: RunRecord) -> str:
    """The unmutated suite's cell in the column of the last round."""
    last = record.last_round
    return _by_column({column: counted(counts) for column, counts in last.unmutated.items()} if last else {})


def _by_column(told: Mapping[str, str]) -> str:
    """The one text, or each column's."""
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{prose(column, 60)}: {text}" for column, text in told.items()) or "not run"


def _round_cell(then: Then, mutant: MutantRecord, column: str) -> str:
    now = mutant.results.get(column)
    verdicts = (then.status, now.status if now is not None else "")
    if verdicts == ("killed", "survived"):
        return f"**{then_text(then)}; survives now**"
    if verdicts == ("survived", "killed"):
        return f"**{then_text(then)}; killed now**"
    return then_text(then)


def then_text(then: Then) -> str:
    """An outcome of the last round."""
    counts = Counts(passed=then.passed, failed=then.failed, errors=then.errors)
    if then.status == "killed":
        return failures(then) or "killed"
    if then.status == "survived":
        return f"{counted(counts)} (survived)"
    return then.status.replace("-", " ")


def _killed(mutant: MutantRecord, result: Result, column: Column, context: Context) -> str:
    text = failures(result)
    if not text and result.killers:
        effect = prose(result.killers[0].effect, 40)
        text = f"{len(result.killers)} {_noun('tests', len(result.killers))}: {effect}"
    died = [killer.test for killer in result.killers]
    notes = [f"first {arms(died[:1])}" if result.stopped and died else ""]
    if not result.stopped:  # which arms die is known only where all were run
        notes = [arms(died, context.known, (column.device, *mutant.kernels))]
    if result.how == "exception":
        notes.append("by exception so far" if result.stopped else "by exception only")
    if dies_only_on_a_card(mutant, column, tuple(context.columns.values())):
        notes.append("dies only on a card: CI stays green")
    told = "; ".join(note for note in notes if note)
    return f"{text or 'killed'} ({told})" if told else text or "killed"


def _survived(mutant: MutantRecord, result: Result, column: Column, context: Context) -> str:
    notes = ["survives" if mutant.allowed is None else "survives, allowed"]
    waiting = len(_waiting_for_a_card(mutant, column, context))
    if waiting:
        notes.append(f"{waiting} {_noun('tests', waiting)} {'needs' if waiting == 1 else 'need'} a card")
    text = f"{counted(result)} ({'; '.join(notes)})"
    return text if mutant.allowed is not None else f"**{text}**"


def _waiting_for_a_card(mutant: MutantRecord, column: Column, context: Context) -> set[str]:
    """Tests skipped here that kill the mutant on a card; where no card judged it, all that might."""
    judged = [
        other
        for key, other in mutant.results.items()
        if key in context.columns and context.columns[key].device != column.device
        if tree_name(context.columns[key]) == tree_name(column)
        if other.status in ("killed", "survived") and not other.stopped
    ]
    if not judged:
        return set(column.needs_card)
    return set(column.needs_card) & {killer.test for other in judged for killer in other.killers}


def _noun(plural: str, number: int) -> str:
    return {"errors": "error", "tests": "test"}.get(plural, plural) if number == 1 else plural
