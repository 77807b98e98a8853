"""The report's section on survivors: what each is, what the tests did with it, where a pin could start."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fastlora_verify.reports.escape import code, fence, gist, prose
from fastlora_verify.reports.findings import nearest_test, sightings
from fastlora_verify.reports.fit import Part
from fastlora_verify.reports.record import MutantRecord, Result, RunRecord
from fastlora_verify.reports.sections import left_out, paragraphs

WHOLE = 10  # survivors that are told whole even if the tables must be shortened for it
DIFF_LINES = 40
DIFF_CHARACTERS = 2500
OF_THE_RUN = ("--target", "--python", "--tests")  # what a mutant by hand must be given as the run was
EDITS = (("--insert",), ("--replace",), ("--patch",))  # options that are all of a mutant


def survivors(mutants: Sequence[MutantRecord], record: RunRecord, expendable: int) -> Part:
    """Each survivor with what is known about it and its diff."""
    items = [survivor(number, mutant, record) for number, mutant in enumerate(mutants, 1)]

    def text(number: int) -> str:
        if not items:
            return ""
        return paragraphs("### Survivors", *items[:number], left_out(len(items) - number, record))

    return Part(text, len(items), expendable, keep=WHOLE)


def survivor(number: int, mutant: MutantRecord, record: RunRecord) -> str:
    """One survivor: where, what the tests did with it, where a pin could start, the oracles, the diff."""
    facts = [
        f"- name: {code(mutant.name, 300)}, {code(f'{mutant.file}:{mutant.line}')}",
        f"- tests: {'; '.join(_tests(mutant))}",
        f"- nearest test: {_nearest(mutant, record)}",
        f"- oracles: {_oracles(mutant)}",
        f"- by hand: {code(_by_hand(mutant, record), 500)}",
    ]
    kernels = f" ({prose(', '.join(mutant.kernels), 80)})" if mutant.kernels else ""
    heading = f"#### {number}. {gist(mutant.gist, 150) or code(mutant.mutation)}{kernels}"
    return "\n".join([heading, "", *facts, "", fence(_shortened(mutant.diff), "diff")])


def _by_hand(mutant: MutantRecord, record: RunRecord) -> str:
    """The command that writes the mutant into a copy, of the target that the run was of."""
    same = shlex.join(word for option in OF_THE_RUN for word in _given(record.command, option))
    first = " -x" if any(column.asked == "verdict" for column in record.columns) else ""
    words = [] if mutant.options[:1] in EDITS else [mutant.name]
    return f"fastlora-verify apply {shlex.join([*words, *mutant.options])} --to DIR{first}{f' {same}' if same else ''}"


def _given(command: Sequence[str], option: str) -> list[str]:
    """The option with each of its values, as a command line has them."""
    found = []
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == option:
            found += [option, following]
        elif word.startswith(f"{option}="):
            found += [option, word.partition("=")[2]]
    return found


def _tests(mutant: MutantRecord) -> list[str]:
    told = {column: _built(r, mutant) for column, r in mutant.results.items() if r.status == "survived"}
    if len(set(told.values())) == 1:
        return [next(iter(told.values()))]
    return [f"{prose(column, 40)}: {text}" for column, text in told.items()]


def _built(result: Result, mutant: MutantRecord) -> str:
    """Whether the case was built: 12 green tests that built it are another finding than no test at all."""
    if result.triggered:
        return f"**{_tests_that(result.triggered, 'built')} it, all green**"
    if result.triggered_import:
        return "built outside of any test (import or collection); no test asserts on it"
    if result.reached:
        scope = code(mutant.scope, 100)
        return f"**no test builds this**; {_tests_that(result.reached, 'ran')} {scope} without it"
    return f"**no test builds this**; none runs {code(mutant.scope, 100)} at all"


def _tests_that(number: int, verb: str) -> str:
    return f"{number} test{'' if number == 1 else 's'} {verb}"


def _nearest(mutant: MutantRecord, record: RunRecord) -> str:
    test = nearest_test(mutant, record)
    return code(test.test) if test else "none runs this code"


def _oracles(mutant: MutantRecord) -> str:
    seen = sightings(mutant)
    if seen:
        told = [f"{prose(answer.oracle, 40)}: {prose(answer.summary, 160)}" for answer in seen]
        return f"**seen**, so the tests have a gap: {'; '.join(told)}"
    asked = [answer for answer in mutant.oracles if answer.ok]
    if asked:
        names = ", ".join(dict.fromkeys(prose(answer.oracle, 40) for answer in asked))
        return f"not seen by {names}"
    return "could not say" if mutant.oracles else "not asked"


def _shortened(diff: str) -> str:
    lines = diff[:DIFF_CHARACTERS].splitlines()
    cut = len(lines) > DIFF_LINES or len(diff) > DIFF_CHARACTERS
    return "\n".join([*lines[:DIFF_LINES], *(["… shortened; `fastlora-verify diff` gives all of it"] if cut else [])])
