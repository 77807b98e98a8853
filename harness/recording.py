"""What the runner hands back, as a run record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from fastlora_verify.harness import plan
from fastlora_verify.harness.selection import allowance_of
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.trees.scratch_git import Conflicts
from fastlora_verify.mutations.base import Mutant, NoSite
from fastlora_verify.reports import record
from fastlora_verify.reports.trees import digest_of, sealed


@dataclass(frozen=True)
class Told:
    """What only the caller knows of a run as a whole."""

    tool_version: str
    command: tuple[str, ...]
    started_at: str  # ISO 8601, UTC
    seconds: float
    cpu: str | None
    tests: tuple[str, ...]
    saved_as: str
    notes: tuple[str, ...] = ()  # for the reader of the report


def run_record(
    target: Target,
    told: Told,
    outcomes: Sequence[plan.ColumnOutcome],
    mutants: Sequence[Mutant] = (),
    no_sites: Sequence[NoSite] = (),
    faults: tuple[str, ...] = (),
    faults_elsewhere: tuple[str, ...] = (),
) -> record.RunRecord:
    """The record of a run of `mutants` in the columns of `outcomes`."""
    results = [{outcome.mutant: outcome for outcome in column.mutants} for column in outcomes]
    by_column = dict(zip((column.column.id for column in outcomes), results, strict=True))
    beside = {outcome.column.id for outcome in outcomes if outcome.tree.beside}
    return record.RunRecord(
        tool_version=told.tool_version,
        command=told.command,
        started_at=told.started_at,
        seconds=told.seconds,
        target=record.TargetRecord(
            name=target.name,
            file=str(target.file),
            kernels=tuple(kernel.name for kernel in target.kernels),
            tests=told.tests,
        ),
        environment=_environment(outcomes, told),
        columns=tuple(_column(outcome, told) for outcome in outcomes),
        mutants=tuple(_mutant(mutant, by_column, beside, target) for mutant in mutants),
        no_sites=tuple(record.NoSiteRecord(**asdict(no)) for no in no_sites),
        faults=faults,
        faults_elsewhere=faults_elsewhere,
        oracles=tuple(_oracle(a, o.column.id) for o in outcomes for a in o.oracles),
        audit=_audit(outcomes),
        saved_as=told.saved_as,
        files={digest_of(files): files for o in outcomes for files in (o.blobs.source, o.blobs.tests) if files},
    )


def stopped_record(target: Target, told: Told, found: Conflicts) -> record.RunRecord:
    """The record of a run that found conflicts in place of a tree to run on."""
    conflicts = (record.ConflictRecord(path=one.path, kind=one.kind, text=one.text) for one in found.conflicts)
    stopped = record.Stopped(step=found.step, conflicts=tuple(conflicts))
    return replace(run_record(target, told, ()), stopped=stopped)


def environment(
    versions: Mapping[str, str | None], cpu: str | None, device_name: str | None = None
) -> record.Environment:
    """What the record says of a machine, by what the target's interpreter has."""
    known = {name: versions.get(name) for name in record.LIBRARIES}
    return record.Environment(**known, cpu=cpu, device_name=device_name)


def _environment(outcomes: Sequence[plan.ColumnOutcome], told: Told) -> record.Environment:
    """What the outcomes ran on; where they differ, the first of them."""
    versions: dict[str, str] = {}
    for outcome in outcomes:
        versions = {**outcome.versions, **versions}
    names = (outcome.device_name for outcome in outcomes if outcome.device_name)
    return environment(versions, told.cpu, next(names, None))


def _column(outcome: plan.ColumnOutcome, told: Told) -> record.Column:
    base = outcome.baseline
    column = record.Column(
        id=outcome.column.id,
        device=outcome.column.device,
        source=outcome.tree.source,
        tests=outcome.tree.tests,
        source_rev=outcome.tree.source_rev,
        tests_rev=outcome.tree.tests_rev,
        tree_digest=outcome.tree.digest,
        beside=outcome.tree.beside,
        baseline=record.Baseline(**asdict(base.counts), seconds=base.seconds) if base else None,
        controls=_controls(outcome),
        mode=cast(record.Mode, outcome.mode),
        asked=cast(record.Asked, outcome.asked),
        reused=outcome.reused,
        needs_card=base.skipped_here if base else (),
        printed=tuple(map(_printed, base.printed)) if base else (),
        printed_note=base.printed_note if base else "",
        device_name=outcome.device_name or None,
        not_run=outcome.reason if outcome.status == plan.NOT_RUN else None,
        notes=(*outcome.notes, *told.notes) if outcome.status != plan.NOT_RUN else outcome.notes,
        source_digest=digest_of(outcome.blobs.source),
        tests_digest=digest_of(outcome.blobs.tests),
        environment=_environment([outcome], told),
    )
    return sealed(column)


def _controls(outcome: plan.ColumnOutcome) -> tuple[record.Control, ...]:
    found = [*outcome.controls, *([outcome.red] if outcome.red is not None else [])]
    return tuple(
        record.Control(name=one.name, ok=one is not outcome.red, summary=one.detail, seconds=one.seconds)
        for one in found
    )


def _printed(found: plan.Printed) -> record.Printed:
    sections = tuple(record.Section(title=title, text=text) for title, text in found.sections)
    return record.Printed(test=found.test, sections=sections)


def _mutant(
    mutant: Mutant,
    by_column: Mapping[str, Mapping[str, plan.MutantOutcome]],
    beside: Set[str],
    target: Target,
) -> record.MutantRecord:
    outcomes = {column: found[mutant.name] for column, found in by_column.items() if mutant.name in found}
    return record.MutantRecord(
        name=mutant.name,
        mutation=mutant.mutation,
        family=mutant.family,
        kernels=mutant.kernels,
        file=mutant.path,
        line=mutant.line,
        scope=mutant.scope,
        gist=mutant.gist,
        diff=mutant.diff,
        options=mutant.options,
        results={column: _result(outcome, beside=column in beside) for column, outcome in outcomes.items()},
        oracles=tuple(_oracle(a, column) for column, outcome in outcomes.items() for a in outcome.oracles),
        allowed=allowance_of(mutant.name, target),
    )


def _result(outcome: plan.MutantOutcome, *, beside: bool) -> record.Result:
    return record.Result(
        **asdict(outcome.counts),
        status=cast(record.Status, outcome.status),
        how=cast(record.How, outcome.how) if outcome.how else None,
        reached=outcome.reached,
        triggered=outcome.triggered,
        reached_import=outcome.reached_import,
        triggered_import=outcome.triggered_import,
        killers=tuple(record.Killer(**{**asdict(k), "how": cast(record.How, k.how)}) for k in outcome.killers),
        reached_tests=tuple(
            record.ReachedTest(test=test, triggered=triggered) for test, triggered in outcome.reached_tests
        ),
        seconds=outcome.seconds,
        stopped=outcome.stopped,
        note=outcome.reason,
        beside=beside,
    )


def _oracle(answer: Mapping[str, Any], column: str) -> record.OracleRecord:
    figures = [record.Figure(**{name: f.get(name) for name in _FIGURE}) for f in answer.get("figures", ())]
    return record.OracleRecord(
        oracle=answer["oracle"],
        kernel=answer["kernel"],
        ok=answer.get("ok"),
        summary=answer.get("summary") or answer.get("error") or "",
        figures=tuple(figures),
        column=column,
        compared=bool(answer.get("compared")),
    )


_FIGURE = ("name", "value", "limit", "unit", "ok")


def _audit(outcomes: Sequence[plan.ColumnOutcome]) -> record.Audit | None:
    checked = sum(len(outcome.audited) for outcome in outcomes)
    differences = tuple(
        record.AuditDifference(mutant=other.mutant, column=other.column, recorded=other.recorded, plain=other.audited)
        for outcome in outcomes
        for other in outcome.audit_differences
    )
    return record.Audit(checked=checked, differences=differences) if checked else None


def save(text: str, path: Path) -> None:
    """Writes a file whole or not at all; into a device or a pipe, such as /dev/stdout, as it comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():  # never replaced: root would lose /dev/null
        path.write_text(text, encoding="utf-8")
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
