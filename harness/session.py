"""One run from target to record: plan, select, run, write down. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import monotonic

from fastlora_verify.harness.ask import Question, ask_columns
from fastlora_verify.harness.editing.own import with_base
from fastlora_verify.harness.errors import Failure, NoDevice, PythonError, TargetError, UnknownName
from fastlora_verify.harness.loading import check_whole, tell_faults
from fastlora_verify.harness.plan import COUNT, LOCAL, NOT_RUN, Column, ColumnOutcome, Events, RunOptions
from fastlora_verify.harness.plans import Plans
from fastlora_verify.harness.recording import Told, run_record, stopped_record
from fastlora_verify.harness.records import compared, kills_in, read_previous
from fastlora_verify.harness.run_folder import RECORD, keep, near, prepare_run_dir, record_in
from fastlora_verify.harness.runner.raising import raising_sources
from fastlora_verify.harness.runner.run import run_columns
from fastlora_verify.harness.selection import Selection, wanted_mutations
from fastlora_verify.harness.several import (
    Fitted,
    Ready,
    each_tree_once,
    fitted,
    ready,
    side_by_side,
    under_review,
    without_tests,
)
from fastlora_verify.harness.suite_diff.revisions import suite_or_why
from fastlora_verify.harness.targets.described import why_not_asked
from fastlora_verify.harness.targets.instead import inner_tests, with_python
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.harness.trees.column_trees import Tree, trees_of
from fastlora_verify.harness.trees.columns import Wanted, ids_of, specs_of
from fastlora_verify.harness.trees.revision import cpu_model
from fastlora_verify.harness.trees.same_blobs import with_same_blobs
from fastlora_verify.harness.trees.scratch_git import Conflicts
from fastlora_verify.reports.record import RunRecord, Shard


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    command: tuple[str, ...]
    target: Path | None = None
    python: str | None = None
    devices: tuple[str, ...] = ("cpu",)
    tests: tuple[str, ...] = ()
    columns: Wanted = field(default_factory=Wanted)
    run_dir: Path | None = None
    json: Path | None = None
    previous: tuple[Path, ...] = ()  # records of an earlier round
    workers: int = 0
    threads: int = 1
    audit: int = 0
    oracles: bool = True
    select: bool = True
    resume: bool = True
    mode: str = COUNT
    executor: str = LOCAL
    address: str | None = None  # of the Ray cluster
    shard: tuple[int, int] | None = None  # (K, N): of the mutants, part K of N


def version() -> str:
    """This distribution's version."""
    return metadata.version("fastlora-verify")


class _Session:
    """What `mutate` and `oracle` share: target, columns, the run's folder, the clock."""

    def __init__(self, request: Request, tests: Sequence[str] | None) -> None:
        self._clock, self._started = monotonic(), datetime.now(UTC)
        self.request = request
        self.specs = specs_of(request.columns, request.devices)
        self.target = with_python(load_target(request.target), request.python)
        own = inner_tests(self.target, tests) if tests is not None else ()
        self.tests = own or self.target.tests
        self.run_dir = prepare_run_dir(request.run_dir, self.target)
        self.several = len(self.specs) > 1 and not request.columns.is_plain
        self._earlier = record_in(self.run_dir)
        self.kills = kills_in(self._earlier)

    def trees(self) -> AbstractContextManager[list[Tree]]:
        """Each column's tree. Raises GitError and Conflicts."""
        return trees_of(self.target, self.request.columns, self.specs, self.tests, self.run_dir)

    def fitted(self, trees: Sequence[Tree]) -> list[Fitted]:
        """Each column with what its tree has of the target."""
        columns = [Column(name, spec.device) for name, spec in zip(ids_of(self.specs), self.specs, strict=True)]
        return fitted(list(zip(columns, trees, strict=True)), self.tests)

    def options(self, one: Fitted) -> RunOptions:
        """How a column is run; the same for every column of its tree."""
        return RunOptions(
            run_dir=self.run_dir,
            threads=self.request.threads,
            tests=one.tests if one.tests != self.target.tests else None,
            several=self.several,
        )

    def named(self, columns: Sequence[Fitted], outcomes: Sequence[ColumnOutcome]) -> list[ColumnOutcome]:
        """The outcomes with what their trees are called. Raises NoDevice if nothing ran for want of a device."""
        if all(outcome.no_device for outcome in outcomes):
            raise NoDevice(outcomes[0].column.device, outcomes[0].reason)
        decides = under_review(self.specs)
        return [
            replace(outcome, tree=one.told(beside=not here), notes=(*one.notes, *outcome.notes))
            for one, outcome, here in zip(columns, outcomes, decides, strict=True)
        ]

    def told(self, *notes: str) -> Told:
        """What the record says of the run as a whole."""
        return Told(
            tool_version=version(),
            command=self.request.command,
            started_at=self._started.isoformat(timespec="seconds"),
            seconds=monotonic() - self._clock,
            cpu=cpu_model(),
            tests=tuple(self.tests),
            saved_as=str(self.request.json) if self.request.json else near(self.run_dir / RECORD),
            notes=notes,
        )

    def with_suite(self, record: RunRecord) -> RunRecord:
        """The record with the suite set against that of the other revision, where there is one."""
        wanted = self.request.columns
        if wanted.against is None:
            return record
        options = RunOptions(run_dir=self.run_dir, threads=self.request.threads)
        return replace(record, suite=suite_or_why(self.target, wanted, self.request.tests, options))

    def learn(self, earlier: RunRecord | None) -> None:
        """Takes note of what killed mutants in an earlier round."""
        self.kills += kills_in(earlier)

    def kept(self, record: RunRecord) -> RunRecord:
        """The record, compared with the last one in the run's folder, and written."""
        return keep(with_same_blobs(record, self._earlier), self.run_dir, self.request.json)


def mutate(request: Request, selection: Selection, events: Events) -> RunRecord:
    """Runs the selected mutants in every column and saves the record.

    Where the tree under review can't be made, the record has the conflicts in place of columns.
    """
    session = _Session(request, request.tests)
    wanted_mutations(selection, session.target)  # names are checked before trees are laid out
    try:
        with session.trees() as trees:
            kept = Plans(session.run_dir, resume=request.resume)
            columns = ready(session.fitted(trees), with_base(selection, session.target), kept)
            check_whole(columns[0].loaded, selection, [one.loaded for one in columns[1:]])
            tell_faults([one.loaded for one in columns], events)
            names = tuple(dict.fromkeys(mutant.name for one in columns for mutant in one.loaded.mutants))
            shard = Shard(number=request.shard[0], of=request.shard[1], names=names) if request.shard else None
            part = frozenset(names if shard is None else shard.part)
            earlier = read_previous(request.previous, names, ((c.column.id, c.column.device) for c in columns), part)
            session.learn(earlier)
            record = replace(_mutated(session, columns, part, events), shard=shard)
            record = compared(record, earlier, request.previous)
            return session.kept(session.with_suite(record))
    except Conflicts as found:
        return session.kept(stopped_record(session.target, session.told(), found))


def _mutated(session: _Session, columns: Sequence[Ready], part: Collection[str], events: Events) -> RunRecord:
    def run(places: Sequence[int]) -> Sequence[ColumnOutcome]:
        chosen = [columns[place] for place in places]
        first = chosen[0]
        if not first.fitted.tests:
            return [without_tests(one) for one in chosen]
        decides = under_review(session.specs)
        options = replace(_options(session, first), beside=not any(decides[place] for place in places))
        own = [one.column for one in chosen]
        return run_columns(first.loaded.target, first.loaded.mutants, own, options, events, part)

    all_fitted = [one.fitted for one in columns]
    mutants, outcomes = side_by_side(columns, each_tree_once(all_fitted, run), part)
    silent = [why_not_asked(one.loaded.target) for one in columns]
    told = session.told(*([f"no oracle was asked: {silent[0]}"] if session.request.oracles and all(silent) else []))
    first = columns[under_review(session.specs).index(True)].loaded
    plans = [one.loaded.plan for one in columns]
    faults = tuple(dict.fromkeys(fault for plan in plans for fault in plan.faults))
    elsewhere = tuple(dict.fromkeys(fault for plan in plans for fault in plan.faults_elsewhere))
    no_sites = (*first.no_sites, *first.not_made)
    return run_record(session.target, told, session.named(all_fitted, outcomes), mutants, no_sites, faults, elsewhere)


def _options(session: _Session, one: Ready) -> RunOptions:
    request, target = session.request, one.loaded.target
    return replace(
        session.options(one.fitted),
        workers=request.workers,
        audit=request.audit,
        oracles=request.oracles and not why_not_asked(target),
        select=request.select,
        resume=request.resume,
        mode=request.mode,
        executor=request.executor,
        address=request.address,
        kills=session.kills,
        raising_sources=raising_sources(target, one.loaded.sources, one.loaded.kernels),
    )


def oracle(request: Request, question: Question) -> RunRecord:
    """Asks the oracles about the unmutated kernels of every column and saves the record; conflicts as in `mutate`."""
    session = _Session(request, None)
    failures: list[Failure] = []
    try:
        with session.trees() as trees:
            columns = session.fitted(trees)

            def ask(places: Sequence[int]) -> Sequence[ColumnOutcome]:
                chosen = [columns[place] for place in places]
                own = [one.column for one in chosen]
                try:
                    return ask_columns(chosen[0].target, own, question, session.options(chosen[0]))
                except (TargetError, UnknownName, PythonError) as failure:
                    failures.append(failure)
                    if not session.several:
                        raise
                    return [ColumnOutcome(column, NOT_RUN, str(failure)) for column in own]

            outcomes = session.named(columns, each_tree_once(columns, ask))
            if failures and all(outcome.status == NOT_RUN for outcome in outcomes):
                raise failures[0]
            return session.kept(run_record(session.target, session.told(), outcomes))
    except Conflicts as found:
        return session.kept(stopped_record(session.target, session.told(), found))
