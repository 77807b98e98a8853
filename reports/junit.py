"""The record as JUnit XML: a test suite a column, a test case a mutant, for what CI services show.

A survivor is a failure, also where another column kills it: in this one a test is missing. Killed passes; allowed
and not run are skipped; what has no verdict, or never ran, is an error. The oracles' answers on the unmutated
kernels are cases, too, and so are red controls and conflicts. Columns beside the tree under review fail nothing.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence

from fastlora_verify.reports.cells import counted
from fastlora_verify.reports.escape import one_line, visible
from fastlora_verify.reports.findings import is_unexplained, split_columns
from fastlora_verify.reports.record import Column, Control, MutantRecord, OracleRecord, Result, RunRecord, Stopped

NAME = "junit"
_VERSIONS = ("python", "torch", "peft", "bitsandbytes", "transformers", "pytest", "cpu")


def render(record: RunRecord) -> str:
    """XML that every reader takes: without the characters that XML 1.0 can't hold."""
    suites = ET.Element("testsuites", name=_text(f"fastlora-verify {record.target.name}"))
    for column in record.columns:
        suites.append(_suite(column, record))
    if record.stopped is not None:
        suites.append(_conflicts(record.stopped))
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _suite(column: Column, record: RunRecord) -> ET.Element:
    results = {mutant.name: mutant.results.get(column.id) for mutant in record.mutants}
    seconds = sum(result.seconds for result in results.values() if result is not None)
    suite = ET.Element("testsuite", name=_text(column.id), time=f"{seconds:.3f}", timestamp=_text(record.started_at))
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(column, record).items():
        if value:
            ET.SubElement(properties, "property", name=name, value=_text(value))
    cases = [_case(mutant, results[mutant.name], column) for mutant in record.mutants]
    cases += [_oracle(answer) for answer in record.oracles if answer.column == column.id]
    cases += [_control(control) for control in column.controls if not control.ok]
    if column.beside:
        for case in cases:
            _shown_only(case)
    suite.extend(cases)
    _count(suite, cases)
    return suite


def _count(suite: ET.Element, cases: Sequence[ET.Element]) -> None:
    ends = Counter(child.tag for case in cases for child in case)
    counts = {"tests": len(cases), "failures": ends["failure"], "errors": ends["error"], "skipped": ends["skipped"]}
    for name, number in counts.items():
        suite.set(name, str(number))


def _conflicts(stopped: Stopped) -> ET.Element:
    suite = ET.Element("testsuite", name=_text(stopped.step), time="0.000")
    for conflict in stopped.conflicts:
        case = ET.SubElement(suite, "testcase", classname="conflict", name=_text(conflict.path), time="0.000")
        ET.SubElement(case, "error", type=_text(conflict.kind), message=_text(conflict.text or conflict.kind))
    _count(suite, list(suite))
    return suite


def _control(control: Control) -> ET.Element:
    case = ET.Element("testcase", classname="control", name=_text(control.name), time=f"{control.seconds:.3f}")
    ET.SubElement(case, "error", type="red", message=_text(control.summary))
    return case


def _shown_only(case: ET.Element) -> None:
    """What a column beside the tree under review has to say is no failure of that tree."""
    for end in case:
        if end.tag in ("failure", "error"):
            end.tag = "skipped"


def _properties(column: Column, record: RunRecord) -> dict[str, str | None]:
    own = column.environment or record.environment
    return {
        "device": column.device,
        "device_name": column.device_name,
        "mode": column.asked,
        "source_rev": column.source_rev,
        "tests_rev": column.tests_rev,
        **{name: getattr(own, name) for name in _VERSIONS},
        "unmutated": counted(column.baseline) if column.baseline else None,
    }


def _case(mutant: MutantRecord, result: Result | None, column: Column) -> ET.Element:
    case = ET.Element("testcase", classname=_text(f"{mutant.file}:{mutant.scope}"), name=_text(mutant.name))
    case.set("time", f"{result.seconds if result is not None else 0:.3f}")
    if result is None or result.status in ("not-run", "no-site"):
        why = result.note if result is not None and result.note else column.not_run or "not run"
        ET.SubElement(case, "skipped", message=_text(why))
    elif result.status == "survived" and mutant.allowed is not None:
        ET.SubElement(case, "skipped", message=_text(f"survives, allowed: {mutant.allowed}"))
    elif result.status == "survived":
        _survivor(case, mutant, result)
    elif is_unexplained(result):
        why = result.note if result.status != "killed" else "no test is known to have run the changed code"
        ET.SubElement(case, "error", type=result.status, message=_text(f"{result.status}: {why}"))
    return case


def _survivor(case: ET.Element, mutant: MutantRecord, result: Result) -> None:
    killed, _ = split_columns(mutant)
    elsewhere = f"; killed in {', '.join(killed)}" if killed else ""
    message = f"survives: {mutant.gist or mutant.mutation} ({counted(result)}{elsewhere})"
    failure = ET.SubElement(case, "failure", type="survived", message=_text(message))
    failure.text = _valid(visible(mutant.diff.replace("\r\n", "\n"), keep="\n\t"))


def _oracle(answer: OracleRecord) -> ET.Element:
    case = ET.Element("testcase", classname=_text(f"oracle:{answer.kernel}"), name=_text(answer.oracle), time="0.000")
    if answer.ok is False:
        ET.SubElement(case, "failure", type="objects", message=_text(answer.summary))
    elif answer.ok is None:
        told = answer.summary.startswith("told, not judged")
        ET.SubElement(case, "skipped", message=_text(answer.summary if told else f"could not say: {answer.summary}"))
    return case


def _text(text: str) -> str:
    return _valid(one_line(text, 2000))


def _valid(text: str) -> str:
    """Without the two characters that are neither controls nor in XML 1.0."""
    return text.replace("\ufffe", "<U+FFFE>").replace("\uffff", "<U+FFFF>")
