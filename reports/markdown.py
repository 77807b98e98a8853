"""The report that a reviewer pastes: Markdown, from a run record alone, short enough for a comment on GitHub.

Order: verdict, what was run on what, the table (the unmutated control first), survivors with their diffs,
then what needs a reader's eye, the oracles' figures, every mutant by family folded away, the legend. Where
all of it doesn't fit, the folded tables are shortened first and the report says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fastlora_verify.reports import sections
from fastlora_verify.reports.columns import stopped_text
from fastlora_verify.reports.escape import code, html_code, prose
from fastlora_verify.reports.findings import Classified, class_word, classify, discounted, is_stopped, split_columns
from fastlora_verify.reports.fit import Part, fit, fixed
from fastlora_verify.reports.header import heading, what_ran
from fastlora_verify.reports.last_round import change_parts, gone_part
from fastlora_verify.reports.names import counted
from fastlora_verify.reports.printed import printed_parts
from fastlora_verify.reports.record import MutantRecord, OracleRecord, RunRecord
from fastlora_verify.reports.rounds import lost
from fastlora_verify.reports.side_by_side import is_several, side_by_side
from fastlora_verify.reports.suite import suite_parts
from fastlora_verify.reports.survivors import survivors
from fastlora_verify.reports.tables import mutant_table, table

NAME = "markdown"
LIMIT = 65_000  # bytes; GitHub takes 65,536 characters in a comment
WHOLE_TABLE = 30  # so many mutants are shown in one open table; more are folded away by family

LEGEND = """\
<details><summary>How to read this</summary>

- **none**: the unmutated suite. Every other row is one small edit of the kernel's source, alone.
- **killed** (*12 failed*): tests that pass without the edit fail with it. The suite notices.
- **survives**: every test that passes without the edit passes with it. If this bug were real, the suite
  would be green: a test is missing. A mutant that one column kills counts as killed.
- *no test builds this*: the suite never makes the case. *12 tests built it, all green*: it makes the case
  and asserts nothing about it.
- *needs a card*: tests that are skipped in this column could still kill it.
- *dies only on a card*: nothing that runs without one kills it, so CI stays green.
- **by exception only**: nothing but an exception in the edited code showed it, which says little about
  what the tests assert.
- **allowed**: a survivor with a written reason in the target's table.
- **not viable, timeout, crash, not run**: no verdict; counted neither as killed nor as survived.
- **oracle**: a check of the kernel against float64, unpatched PEFT or counted bytes, independent of the
  tests. A survivor that it sees is a proven gap; one that it doesn't see may be harmless.

</details>"""


AT_LEAST = "- *≥ 1 failed*: the tests were stopped at the first that killed; how many more fail is not known.\n"


def render(record: RunRecord, limit: int = LIMIT, *, output: bool = False) -> str:
    """The report in at most `limit` bytes of UTF-8; with `output` also what passing tests print."""
    record = discounted(record)
    parts = _parts(record)
    if output:
        parts[-1:-1] = printed_parts(record)
    whole = fit(parts, limit)
    if whole is not None:
        return whole
    rest = sections.left_out(len(record.mutants), record)
    return sections.paragraphs(parts[0].text(0), f"The rest does not fit into {limit:,} bytes.", rest) + "\n"


def _parts(record: RunRecord) -> list[Part]:
    if record.stopped is not None:
        return [fixed(stopped_text(record.target.name, record.stopped)), fixed(what_ran(record, suite=False))]
    if record.mutants or record.shard is not None:
        return _mutant_parts(record)
    if record.suite is not None and not record.oracles:
        return suite_parts(record, alone=True)
    return _oracle_parts(record)


def _mutant_parts(record: RunRecord) -> list[Part]:
    found = classify(record)
    split = [mutant for mutant in record.mutants if all(split_columns(mutant))]
    verdictless = "### No verdict\n\nNeither killed nor survived."
    exceptions = "### Killed by an exception only\n\nNo assertion of a test failed; the edited code raised."
    if any(map(is_stopped, found.by_exception)):
        exceptions = (
            "### Killed by an exception first\n\nThe edited code raised; the tests were stopped before one asserted."
        )
    columns = "### Killed in some columns only"
    return [
        fixed(heading(record, found)),
        fixed(what_ran(record)),
        *change_parts(record),
        _open_table(record, found, split),
        survivors(found.survivors, record, 3),
        *suite_parts(record),
        sections.rows(verdictless, ("mutant", "why"), found.no_verdict, sections.no_verdict_row, record, 2),
        sections.rows("### Allowed survivors", ("mutant", "reason"), found.allowed, sections.allowed_row, record, 2),
        sections.rows(columns, ("mutant", "killed in", "survives in"), split, sections.split_row, record, 4),
        sections.rows(exceptions, ("mutant", "first"), found.by_exception, sections.exception_row, record, 4),
        *_oracles(record),
        *_families(record),
        gone_part(record),
        _no_sites(record),
        fixed(_legend(record)),
    ]


def _legend(record: RunRecord) -> str:
    """The legend, with what stands in this report and in few others."""
    survives = LEGEND.index("- **survives**")
    more = AT_LEAST if any(column.asked == "verdict" for column in record.columns) else ""
    return LEGEND[:survives] + more + LEGEND[survives:]


def _oracle_parts(record: RunRecord) -> list[Part]:
    columns = dict.fromkeys(answer.column for answer in record.oracles)
    told = [_objections([answer for answer in record.oracles if answer.column == column]) for column in columns]
    if len(told) > 1:
        told = [f"{prose(column, 60)}: {text}" for column, text in zip(columns, told, strict=True)]
    verdict = " ".join(told) or "**No oracle was asked.**"
    heading = f"## fastlora-verify: oracles on {prose(record.target.name, 80)}\n\n{verdict}"
    return [fixed(heading), fixed(what_ran(record, suite=False)), *_oracles(record, opened=True)]


def _objections(answers: Sequence[OracleRecord]) -> str:
    red = sum(answer.ok is False for answer in answers)
    silent = sum(sections.oracle_row(answer)[2] == "could not say" for answer in answers)
    told = f"{counted(red, 'answer')} of {len(answers)} {'objects' if red == 1 else 'object'}"
    return f"**{told if red else 'No oracle objects'}.**" + (f" {silent} could not say." if silent else "")


def _open_table(record: RunRecord, found: Classified, split: Sequence[MutantRecord]) -> Part:
    eye: Sequence[MutantRecord] = (*found.survivors, *split, *found.allowed, *found.no_verdict)
    eye = (*(change.mutant for change in lost(record)), *eye)
    shown = tuple({mutant.name: mutant for mutant in eye}.values())
    if len(record.mutants) <= WHOLE_TABLE:
        shown = tuple({mutant.name: mutant for mutant in (*shown, *record.mutants)}.values())
    layout = mutant_table(record)
    rows = [layout.row(mutant) for mutant in shown]

    def text(number: int) -> str:
        rest = len(record.mutants) - len(shown)
        verb = "is killed; it is" if rest == 1 else "are killed; they are"
        below = f"*The other {counted(rest, 'mutant')} {verb} below, by family.*" if rest else ""
        return sections.paragraphs(layout.text(rows[:number]), sections.left_out(len(shown) - number, record), below)

    return Part(text, len(shown), 1)


def _oracles(record: RunRecord, *, opened: bool = False) -> list[Part]:
    if not record.oracles:
        return []
    if is_several(record):
        return side_by_side(record, opened=opened)
    title, headers = "### Oracles on the unmutated kernels", ("oracle", "kernel", "verdict", "worst figure")
    rows = [sections.oracle_row(answer) for answer in record.oracles]

    def answers(number: int) -> str:
        return sections.paragraphs(title, table(headers, rows[:number]), sections.left_out(len(rows) - number, record))

    names = dict.fromkeys(answer.oracle for answer in record.oracles)
    return [Part(answers, len(rows), 2), *(_figures(name, record, opened=opened) for name in names)]


def _figures(oracle: str, record: RunRecord, *, opened: bool) -> Part:
    """Every figure of one oracle, the judged ones first; ratios outlast the others where space is short."""
    told = [answer for answer in record.oracles if answer.oracle == oracle]
    rows = sections.figure_rows(told)
    ratios = any(figure.unit.startswith("x") for answer in told for figure in answer.figures)

    def text(number: int) -> str:
        if not number:
            rest = sections.left_out(len(rows), record, "figures")
            return f"{code(oracle, 40)}: {rest}" if rest else ""
        rest = sections.left_out(len(rows) - number, record)
        body = table(("kernel", "figure", "value"), rows[:number])
        if opened:
            return sections.paragraphs(f"#### {prose(oracle, 40)}", body, rest)
        return sections.folded(f"{html_code(oracle)}: {counted(len(rows), 'figure')}", body, rest)

    return Part(text, len(rows), 5 if ratios else 7)


def _families(record: RunRecord) -> list[Part]:
    if len(record.mutants) <= WHOLE_TABLE:
        return []
    layout = mutant_table(record, named=True)
    families: dict[str, list[MutantRecord]] = {}
    for mutant in record.mutants:
        families.setdefault(mutant.family, []).append(mutant)

    def part(family: str, mutants: list[MutantRecord]) -> Part:
        counts = Counter(class_word(mutant) for mutant in mutants)
        told = ", ".join(f"{number} {word}" for word, number in counts.items())
        summary = f"{html_code(family)}: {counted(len(mutants), 'mutant')}; {told}"
        rows = [layout.row(mutant) for mutant in mutants]

        def text(number: int) -> str:
            return sections.folded(summary, layout.text(rows[:number]), sections.left_out(len(rows) - number, record))

        return Part(text, len(mutants), 6)

    return [fixed("### Every mutant, by family"), *(part(*item) for item in families.items())]


def _no_sites(record: RunRecord) -> Part:
    rows = [(code(no.mutation, 80), prose(no.kernel, 40), prose(no.reason, 160)) for no in record.no_sites]
    summary = f"{counted(len(rows), 'pair')} of mutation and kernel without a site"

    def text(number: int) -> str:
        if not rows:
            return ""
        body = table(("mutation", "kernel", "why it has no site"), rows[:number])
        return sections.folded(summary, body, sections.left_out(len(rows) - number, record))

    return Part(text, len(rows), 8)
