"""Tables of the report a row a mutant, and of the oracles' answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastlora_verify.reports.escape import code, prose
from fastlora_verify.reports.findings import is_unexplained, split_columns
from fastlora_verify.reports.fit import Part
from fastlora_verify.reports.names import short_name
from fastlora_verify.reports.record import Figure, MutantRecord, OracleRecord, RunRecord
from fastlora_verify.reports.tables import table


def paragraphs(*texts: str) -> str:
    """The texts that aren't empty, with a blank line between them: what ends a table, and what HTML needs."""
    return "\n\n".join(text for text in texts if text)


def left_out(number: int, record: RunRecord, what: str = "more") -> str:
    """The sentence that says how much a shortened part lacks, and where it is."""
    if not number:
        return ""
    place = f" in {code(record.saved_as, 300)}" if record.saved_as else " in the JSON record (`--json FILE`)"
    return f"*{number:,} {what} left out to fit into a comment; all of them are{place}.*"


def folded(summary: str, *body: str) -> str:
    """A `<details>` block; `summary` is HTML."""
    return paragraphs(f"<details><summary>{summary}</summary>", *body, "</details>")


def rows(
    title: str,
    headers: Sequence[str],
    mutants: Sequence[MutantRecord],
    row: Callable[[MutantRecord], Sequence[str]],
    record: RunRecord,
    expendable: int,
) -> Part:
    """A titled table, a row a mutant."""
    told = [row(mutant) for mutant in mutants]

    def text(number: int) -> str:
        if not told:
            return ""
        body = table(headers, told[:number]) if number else ""
        return paragraphs(title, body, left_out(len(told) - number, record))

    return Part(text, len(told), expendable)


def allowed_row(mutant: MutantRecord) -> tuple[str, str]:
    """An allowed survivor and its written reason."""
    return code(short_name(mutant.name), 120), prose(mutant.allowed or "", 300)


def exception_row(mutant: MutantRecord) -> tuple[str, str]:
    """A mutant killed only by exceptions, and the first of them."""
    killers = [k for result in mutant.results.values() for k in result.killers]
    first = killers[0] if killers else None
    raised = f"{code(f'{first.exception}: {first.message}', 160)} in {code(first.test, 120)}" if first else ""
    return code(short_name(mutant.name), 120), raised


def no_verdict_row(mutant: MutantRecord) -> tuple[str, str]:
    """A mutant without a verdict, and why, column by column."""
    told = []
    for column, result in mutant.results.items():
        if is_unexplained(result) or result.status == "not-run":
            why = prose(result.note, 160)
            if result.status == "killed":
                why = "no test is known to have run the changed code"
            told.append(f"{prose(column, 40)}: {result.status.replace('-', ' ')}{f' ({why})' if why else ''}")
    return code(short_name(mutant.name), 120), "; ".join(told) or "not run"


def split_row(mutant: MutantRecord) -> tuple[str, str, str]:
    """A mutant that some columns kill and others don't."""
    killed, survived = split_columns(mutant)
    name = code(short_name(mutant.name), 120)
    return name, prose(", ".join(killed), 80), prose(", ".join(survived), 80)


def oracle_row(answer: OracleRecord) -> tuple[str, str, str, str]:
    """An oracle's answer on an unmutated kernel."""
    verdict = {True: "no objection", False: "**objects**", None: "could not say"}[answer.ok]
    if answer.ok is None and answer.summary.startswith("told, not judged"):
        verdict = "told"
    return prose(answer.oracle, 40), prose(answer.kernel, 40), verdict, prose(answer.summary, 160)


def figure_rows(answers: Sequence[OracleRecord]) -> list[tuple[str, str, str]]:
    """Every figure of the answers, a row each; those that a limit judges come first."""
    figures = [(answer.kernel, figure) for answer in answers for figure in answer.figures]
    figures.sort(key=lambda pair: pair[1].ok is None)
    return [(prose(kernel, 40), prose(f.name, 80), value_of(f)) for kernel, f in figures]


def value_of(figure: Figure) -> str:
    """A figure with its unit and its limit."""
    shown = f"{_number(figure.value)} {prose(figure.unit, 40)}".strip()
    return shown + (f" (limit {_number(figure.limit)})" if figure.limit is not None else "")


def _number(value: float | int | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else prose(str(value), 80)
