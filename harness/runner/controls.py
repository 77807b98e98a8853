"""What must hold in a column before any mutant is judged; a red control ends the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

from fastlora_verify.harness.errors import NothingToRun, RedControl
from fastlora_verify.harness.plan import Control, Events, RunOptions
from fastlora_verify.harness.runner import jobs
from fastlora_verify.harness.runner.audit import printed_counts, told
from fastlora_verify.harness.runner.dependence import chains, halves, state_dependence
from fastlora_verify.harness.runner.evidence import SuiteFacts, suite_facts
from fastlora_verify.harness.runner.executor import Executor
from fastlora_verify.harness.runner.flaky import flaky_among, said
from fastlora_verify.harness.runner.green import first_difference, how_ended, is_empty, problem_of
from fastlora_verify.harness.runner.jobs import Chosen, Probed
from fastlora_verify.harness.runner.judge import End, failing, outcomes
from fastlora_verify.harness.runner.limits import followed_limits, limits_of, plain_limits
from fastlora_verify.harness.runner.pool import Stage, StageResult, Task
from fastlora_verify.harness.runner.reach import Reach, first_statements, mapped_lines, sources_of
from fastlora_verify.harness.runner.warm import Limits
from fastlora_verify.harness.trees.tree import Master

UNMUTATED, WARM_EQUALS_COLD, IDENTITY, RAISE = "unmutated", "warm-equals-cold", "identity", "raise"
SELECTION, COLLECTED_ONCE = "selection", "collected-once"

_UNKNOWN_WALL = 3600.0  # s, for the run that the limits are taken from


@dataclass(frozen=True)
class Controlled:
    """A column whose controls are green."""

    baseline: SuiteFacts
    end: End
    controls: tuple[Control, ...]
    mode: str  # "fork" | "spawn" | "cold"
    notes: tuple[str, ...]
    reach: Reach | None  # None: every test is run for every mutant
    hosted: bool = False  # the tests may be collected once a worker


class Red(RedControl):
    """A red control, with the suite's run where it came to its end."""

    def __init__(
        self, column: str, control: str, problem: str, hint: str = "", suite: tuple[SuiteFacts, End] | None = None
    ) -> None:
        super().__init__(column, control, problem, hint)
        self.suite = suite
        self.suspects: tuple[SuiteFacts, Collection[str]] | None = None  # a whole run, and tests that may be flaky


class Controls:
    """The controls of one column."""

    def __init__(
        self,
        pool: Executor,
        master: Master,
        column: str,
        options: RunOptions,
        paths: Sequence[str],
        events: Events,
    ) -> None:
        self._pool = pool
        self._master = master
        self._column = column
        self._options = options
        self._paths = paths  # of the files that mutants change
        self._events = events
        self._green: list[Control] = []
        self._unrun: list[str] = []  # kernels that no test runs, in words
        self._usual: set[str] = set()  # what unmutated runs leave behind
        self._flaky: frozenset[str] = frozenset()

    def check(self) -> Controlled:
        """Runs every control; raises RedControl at the first that is red.

        A column whose forked children are red, or differ from a plain pytest, gets new interpreters instead.
        """
        mode = "fork" if self._pool.forks else ("cold" if self._options.cold else "spawn")
        notes = [f"children start anew: {self._pool.why_new}"] if mode == "spawn" else []
        try:
            baseline, end = self._steady_suite()
        except Red as red:
            if mode != "fork":
                raise
            notes.append(f"not forked but started anew: {red.control} is red in a forked child ({red.problem})")
            self._pool.use_new_interpreters()
            mode, self._green = "cold", []
            baseline, end = self._steady_suite()  # if that is red as well, the fork had no part in it
            self._events.note(notes[-1])
        limits = limits_of(self._options, end)
        try:
            reach = self._identity_and_raise(baseline, limits)
        except Red as red:
            red.suite = baseline, end
            raise
        notes += self._unrun
        notes += [said(self._flaky)] if self._flaky else []
        if reach is not None:
            reach, problem = self._selection(reach, limits)
            if problem:
                notes.append(f"every test is run for every mutant: {problem}")
                self._events.note(notes[-1])
        hosted = False
        if mode == "fork" and self._options.collect_once:
            hosted, more = self._collected_once(baseline, limits)
            notes += more
        if self._pool.elsewhere and not hosted:
            self._everywhere(baseline, limits)
        if reach is not None:
            reach = replace(reach, usual=frozenset(self._usual))
        return Controlled(baseline, end, tuple(self._green), mode, tuple(notes), reach, hosted)

    def _steady_suite(self) -> tuple[SuiteFacts, End]:
        """As `_suite_twice`, the flaky tests left out of account."""
        try:
            return self._suite_twice()
        except Red as red:
            if red.suspects is None:
                raise
            first, tests = red.suspects
            flaky = flaky_among(tests, first, self._unmutated_runs)
            if flaky != frozenset(tests):
                raise
            self._flaky = flaky
            self._events.note(said(flaky))
            self._green = []
            return self._suite_twice()

    def _unmutated_runs(self, asked: Sequence[Chosen | None]) -> list[SuiteFacts]:
        limits = Limits(_UNKNOWN_WALL, _UNKNOWN_WALL, self._options.memory_limit)
        stages = [Stage(jobs.SUITE, limits, only=only) for only in asked]
        results = self._run([Task(f"{UNMUTATED} again {n}", (stage,)) for n, stage in enumerate(stages)])
        return [self._facts(result) for result in results]

    def _suite_twice(self) -> tuple[SuiteFacts, End]:
        """The unmutated suite in a child, and as a plain cold pytest."""
        baseline, end = self._unmutated()
        other = self._differs_from_cold(baseline, limits_of(self._options, end))
        if other:
            raise other
        return baseline, end

    def _unmutated(self) -> tuple[SuiteFacts, End]:
        begin = monotonic()
        limits = Limits(_UNKNOWN_WALL, _UNKNOWN_WALL, self._options.memory_limit)
        result = self._run([Task(UNMUTATED, (Stage(jobs.SUITE, limits, printed=True, libraries=True),))])[0]
        facts = self._facts(result)
        if is_empty(facts):
            raise NothingToRun(f"nothing to run: pytest collects no test in column {self._column}; check target.tests")
        problem = problem_of(facts, result)
        if problem:
            suite = (facts, result.end) if facts.ended and result.end.how == "exit" else None
            red = Red(self._column, UNMUTATED, problem, suite=suite)
            red.suspects = (facts, failing(facts)) if suite and failing(facts) else None
            raise red
        if facts.foreign:
            name, file = next(iter(facts.foreign.items()))
            problem = f"{name} was imported from {file}, not from the scratch copy"
            raise Red(self._column, UNMUTATED, problem, "check the target's source_roots")
        self._done(UNMUTATED, begin, told(facts.counts))
        return facts, result.end

    def _differs_from_cold(self, warm: SuiteFacts, limits: Limits) -> Red | None:
        """How a plain cold pytest differs from the child's run."""
        red = partial(Red, self._column, WARM_EQUALS_COLD, hint="is a test not deterministic?")
        begin = monotonic()
        result = self._run([Task(WARM_EQUALS_COLD, (Stage(jobs.PLAIN, plain_limits(limits)),))])[0]
        cold = self._facts(result)
        if result.end.how != "exit" or not cold.ended:
            return red(f"the plain pytest run did not end: {how_ended(result)}")
        printed = printed_counts(result.output)
        if printed is not None and printed != cold.counts:
            return red(f"pytest prints {told(printed)} where its reports say {told(cold.counts)}")
        here, there = outcomes(warm), outcomes(cold)
        if here != there:
            found = red(first_difference(here, there))
            found.suspects = warm, [test for test in {**here, **there} if here.get(test) != there.get(test)]
            return found
        self._done(WARM_EQUALS_COLD, begin, f"{len(there)} outcomes")
        return None

    def _identity_and_raise(self, baseline: SuiteFacts, limits: Limits) -> Reach | None:
        begin = monotonic()
        stages = (Stage(jobs.SUITE, limits),)
        sources = sources_of(self._master, self._paths)
        tasks = [self._identity(limits, sources)] if self._paths else []
        reach = None
        for index, (path, source) in enumerate(self._options.raising_sources):
            edits = {path: self._master.encode(path, source)}
            tasks.append(Task(f"{RAISE} {index}", stages, edits, (Probed(path),)))
        results = self._run(tasks)
        for task, result in zip(tasks, results, strict=True):
            facts = self._facts(result)
            if task.name == IDENTITY:
                self._judge_identity(baseline, facts, result)
                self._usual |= facts.harmed or frozenset()
                reach = Reach(sources, facts) if sources and self._options.select else None
            else:
                self._judge_raise(task, baseline, facts)
        if self._paths:
            self._done(IDENTITY, begin, f"{len(self._paths)} files")
        if self._options.raising_sources and not self._unrun:
            self._done(RAISE, begin, f"{len(self._options.raising_sources)} kernels")
        return reach

    def _selection(self, reach: Reach, limits: Limits) -> tuple[Reach | None, str]:
        """The reach with which tests are chosen; or why they can't be: a test fares otherwise without the others."""
        if reach.baseline.stops:
            return None, "the suite stops at a failure, so which tests run depends on which fail"
        begin = monotonic()
        lines = mapped_lines(reach.sources)
        stage = partial(Stage, jobs.SUITE, followed_limits(limits), mapped=lines, stir=True)
        stages = [stage(only=only) for only in halves(reach.baseline)]
        results = self._run([Task(f"{SELECTION} {n}", (stage,)) for n, stage in enumerate(stages)])
        parts = [self._facts(result) for result in results]
        self._usual.update(*(facts.harmed or () for facts in parts))
        if any(not facts.ended or facts.recollected for facts in parts):
            return None, "half of the tests, run alone, did not come to their end"
        problem = state_dependence(reach.baseline, parts)
        if problem:
            return None, problem
        found = chains(reach.baseline, parts)
        followers = len({chain.test for chain in found})
        text = f", {followers} draw random numbers from where others left off" if followers else ""
        self._done(SELECTION, begin, f"{len(reach.baseline.tests)} tests{text}")
        return replace(reach, parts=tuple(parts), chains=found), ""

    def _collected_once(self, baseline: SuiteFacts, limits: Limits) -> tuple[bool, list[str]]:
        """Has the tests collected once a worker, if no mutated file is in memory then; a note where that fails."""
        if set(self._paths) <= baseline.imported:
            return False, []
        begin = monotonic()
        problem = self._pool.host(baseline.libraries)
        if not problem:
            stages = (Stage(jobs.SUITE, limits, harm=True),)
            for result in self._run([Task(f"{COLLECTED_ONCE} {n}", stages) for n in range(self._pool.size)]):
                facts = self._facts(result)
                self._usual |= facts.harmed or frozenset()
                problem = problem or problem_of(facts, result) or first_difference(outcomes(baseline), outcomes(facts))
        if problem:
            self._pool.unhost()
            self._events.note(f"every mutant's tests are collected anew: {problem}")
            return False, [f"every mutant's tests are collected anew: {problem}"]
        self._done(COLLECTED_ONCE, begin, f"{len(baseline.libraries)} libraries preloaded")
        return True, []

    def _everywhere(self, baseline: SuiteFacts, limits: Limits) -> None:
        """The unmutated suite wherever mutants will run, not only where the other controls did."""
        stages = (Stage(jobs.SUITE, limits),)
        for result in self._run([Task(f"{UNMUTATED} {n}", stages) for n in range(self._pool.size)]):
            facts = self._facts(result)
            problem = problem_of(facts, result) or first_difference(outcomes(baseline), outcomes(facts))
            if problem:
                raise Red(self._column, UNMUTATED, f"not all machines give the same: {problem}")

    def _identity(self, limits: Limits, sources: Mapping[str, str]) -> Task:
        edits = {path: (self._master.path / path).read_bytes() for path in self._paths}
        probed = tuple(Probed(path, first_statements(data)) for path, data in edits.items())
        return Task(
            IDENTITY,
            (Stage(jobs.SUITE, followed_limits(limits), mapped=mapped_lines(sources), harm=True),),
            edits,
            probed,
        )

    def _judge_identity(self, baseline: SuiteFacts, facts: SuiteFacts, result: StageResult) -> None:
        problem = problem_of(facts, result) or first_difference(outcomes(baseline), outcomes(facts))
        if problem:
            raise Red(self._column, IDENTITY, f"the sources rewritten unchanged give: {problem}")
        if not facts.reached_import and not any(fact.reached for fact in facts.tests.values()):
            self._events.note("no test runs a function of the files that mutants change")

    def _judge_raise(self, task: Task, baseline: SuiteFacts, facts: SuiteFacts) -> None:
        after = outcomes(facts)
        passed = [test for test, category in outcomes(baseline).items() if category == "passed"]
        if any(after.get(test) != "passed" for test in passed) and facts.counts.failed + facts.counts.errors:
            return
        path = task.probed[0].path
        if self._options.beside:  # that the tests can be run at all is shown by the column that this one is beside
            self._unrun.append(f"no test runs a kernel in {path}: made to raise, it makes none fail")
            return
        raise Red(self._column, RAISE, f"a kernel in {path} that raises makes no test fail", "do the tests run it?")

    def _facts(self, result: StageResult) -> SuiteFacts:
        return replace(suite_facts(result.lines, str(result.copy)), flaky=self._flaky)

    def _run(self, tasks: Sequence[Task]) -> list[StageResult]:
        results: dict[str, StageResult] = {}

        def done(task: Task, stages: list[StageResult]) -> None:
            results[task.name] = stages[0]

        self._pool.run(tasks, done)
        return [results[task.name] for task in tasks]

    def _done(self, name: str, begin: float, summary: str) -> None:
        seconds = monotonic() - begin
        self._green.append(Control(name, seconds, summary))
        self._events.control_done(name, seconds)
