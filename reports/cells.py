"""The texts of the report's table cells: counts as pytest says them, and which arms of the tests died."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastlora_verify.reports.escape import code, prose
from fastlora_verify.reports.record import Column, Counts, MutantRecord, Result, RunRecord

_PARAMETERS = re.compile(r"\[(.+)\]$")
MANY_ARMS = 3  # parameter values that a cell lists before it says nothing


def counted(counts: Counts, *, only_bad: bool = False) -> str:
    """`37 passed, 2 skipped`; with `only_bad`, failures and errors alone."""
    names = ("failed", "errors") if only_bad else ("failed", "passed", "errors", "skipped", "xfailed", "xpassed")
    parts = [(getattr(counts, name), name) for name in names]
    told = [f"{number} {_noun(name, number)}" for number, name in parts if number]
    return ", ".join(told) or ("" if only_bad else "no test ran")


def baseline_cell(column: Column) -> str:
    """The cell of the first row: the unmutated suite."""
    if column.not_run is not None:
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
    if column.not_run is not None:
        return f"not run: {prose(column.not_run, 120)}"
    result = mutant.results.get(column.id)
    if result is None:
        return "not run"
    if result.status == "killed":
        return _killed(result, column, context)
    if result.status == "survived":
        return _survived(mutant, result, column, context)
    note = f": {prose(result.note, 120)}" if result.note else ""
    return result.status.replace("-", " ") + note


def _killed(result: Result, column: Column, context: Context) -> str:
    text = counted(result, only_bad=True)
    if not text and result.killers:
        effect = prose(result.killers[0].effect, 40)
        text = f"{len(result.killers)} {_noun('tests', len(result.killers))}: {effect}"
    notes = [arms([killer.test for killer in result.killers], context.known, column.device)]
    if result.how == "exception":
        notes.append("by exception only")
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
        if other.status in ("killed", "survived")
    ]
    if not judged:
        return set(column.needs_card)
    return set(column.needs_card) & {killer.test for other in judged for killer in other.killers}


def arms(tests: Sequence[str], known: Sequence[str] = (), device: str = "") -> str:
    """Which arms died: `the bf16 arms`, `the bf16 and fp16 arms`, the test's name if it is one, or nothing.

    An arm is a part of the parameter id, `bf16` in `test_x[bf16-2d]`. `known` is every test known to die of
    something: a part that all of them share (`cpu`) tells nothing and isn't named.
    """
    functions = list(dict.fromkeys(map(_function, tests)))
    split = [_parameters(test) for test in tests]
    if len(tests) > 1 and all(split):
        shared = set.intersection(*map(set, split)) - _everywhere(tests, known) - {device}
        named = [part for part in split[0] if part in shared] or _values_at_one_place(tests, split, known)
        if named:
            return _named(named)
    if len(functions) == 2:
        groups = [[test for test in tests if _function(test) == function] for function in functions]
        return " + ".join(arms(group, known, device) for group in groups)
    return _test_name(tests[0] if len(tests) == 1 else functions[0]) if len(functions) == 1 else ""


def _everywhere(tests: Sequence[str], known: Sequence[str]) -> set[str]:
    """Parts that tests of the vocabulary have in common, if it holds more than `tests`."""
    parts = [set(_parameters(test)) for test in known if _parameters(test)]
    return set.intersection(*parts) if parts and not set(known) <= set(tests) else set()


def _values_at_one_place(tests: Sequence[str], split: list[tuple[str, ...]], known: Sequence[str]) -> list[str]:
    """A few values of one parameter of one test function, where the function has other values too."""
    functions = {_function(test) for test in tests}
    if len(functions) != 1 or len({len(parts) for parts in split}) != 1:
        return []
    all_parts = [_parameters(test) for test in known if _function(test) in functions]
    for place, values in enumerate(zip(*split, strict=True)):
        found = list(dict.fromkeys(values))
        everything = {parts[place] for parts in all_parts if len(parts) == len(split[0])}
        if len(found) <= MANY_ARMS and len(found) < len(everything):
            return found
    return []


def _named(parts: list[str]) -> str:
    names = [prose(part, 24) for part in dict.fromkeys(parts)]
    if not names:
        return ""
    listed = " ".join(names) if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"the {listed} arms"


def _test_name(test: str) -> str:
    return code(test.partition("::")[2] or test, 80)


def _parameters(test: str) -> tuple[str, ...]:
    match = _PARAMETERS.search(test)
    return tuple(match[1].split("-")) if match else ()


def _function(test: str) -> str:
    return _PARAMETERS.sub("", test)


def _noun(plural: str, number: int) -> str:
    return {"errors": "error", "tests": "test"}.get(plural, plural) if number == 1 else plural
