"""The suites of two revisions: trees laid out, tests collected there, sources read, all of it set side by side."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fastlora_verify.harness.errors import Failure, TargetError, UsageError
from fastlora_verify.harness.plan import RunOptions
from fastlora_verify.harness.runner.device import device_of
from fastlora_verify.harness.runner.jobs import Setting, make_bridge
from fastlora_verify.harness.suite_diff.collecting import collect
from fastlora_verify.harness.suite_diff.compare import compare_suites
from fastlora_verify.harness.suite_diff.places import Side
from fastlora_verify.harness.suite_diff.settings import changed_settings
from fastlora_verify.harness.suite_diff.sources import Sources
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.harness.trees.column_trees import WORKING_TREE, Tree, trees_of
from fastlora_verify.harness.trees.columns import ColumnSpec, Wanted
from fastlora_verify.harness.trees.columns import Side as TreeSide
from fastlora_verify.harness.trees.sides import TEST_NAMES, is_named, source_side
from fastlora_verify.harness.trees.tree import Master, snapshot
from fastlora_verify.reports.suite_record import SuiteFinding, SuiteRecord, SuiteSide


def suite_against(
    target: Target, wanted: Wanted, tests: Sequence[str], options: RunOptions, device: str = "cpu"
) -> tuple[SuiteRecord, dict[str, str]]:
    """The target's suite as it was at `wanted.against` and as it is, and the versions of what collected it.

    `tests` empty are the target's own, and those that the base's target file names. Raises GitError, PythonError and
    Conflicts.
    """
    assert wanted.against is not None
    base_side = TreeSide(wanted.against)
    specs = [ColumnSpec(base_side, base_side, device), ColumnSpec(device=device)]
    scratch = Path(tempfile.mkdtemp(prefix="fastlora-verify-suite-")).resolve()
    try:
        with trees_of(target, wanted, specs, tests or target.tests, options.run_dir) as (base, head):
            bridge = make_bridge(scratch / "bridge")
            versions = device_of(Setting(target, options, device, bridge, ()), scratch).versions
            asked = tuple(tests) or _tests_of(target, base, head)
            _check(asked, base, head)
            sides = []
            for name, tree in (("base", base), ("head", head)):
                setting = Setting(tree.target, options, device, bridge, ())
                sides.append(_side(setting, tree, scratch / name, asked))
            return _record(sides[0], sides[1], base, head), versions
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def suite_or_why(target: Target, wanted: Wanted, tests: Sequence[str], options: RunOptions) -> SuiteRecord:
    """As `suite_against`, for a run whose record must not be lost: what stops the comparison is its finding."""
    try:
        return suite_against(target, wanted, tests, options)[0]
    except Failure as failure:
        why = SuiteFinding(kind="not-collected", text=f"the suites are not compared: {failure}")
        return SuiteRecord(base=SuiteSide(rev=wanted.against or ""), head=SuiteSide(rev=WORKING_TREE), findings=(why,))


def _side(setting: Setting, tree: Tree, scratch: Path, tests: Sequence[str]) -> Side:
    root = _root(tree)
    master = Master(root, snapshot(root))
    is_source = source_side(tree.target, master.entries)
    paths = frozenset(path for path in master.entries if path.endswith(".py") and not is_source(path))
    return Side(Sources(paths, master.decode), collect(setting, root, scratch, tests))


def _record(old: Side, new: Side, base: Tree, head: Tree) -> SuiteRecord:
    compared = compare_suites(old, new)
    notes = [*base.notes, *head.notes, *compared.notes]
    settings = changed_settings(_root(base), _root(head))
    if settings:
        notes.append(f"settings of pytest that changed, and may change what the tests accept: {', '.join(settings)}")
    for name, side in (("base", old), ("head", new)):
        if side.collection.foreign:
            notes.append(
                f"in the {name}, {', '.join(side.collection.foreign)} was imported from elsewhere than its tree"
            )
    return SuiteRecord(
        base=SuiteSide(rev=base.tests.name, commit=base.tests.commit, collected=old.collection.selected),
        head=SuiteSide(rev=head.tests.name, commit=head.tests.commit, collected=new.collection.selected),
        findings=tuple(compared.findings),
        added=tuple(compared.added),
        kept=compared.kept,
        continued=compared.continued,
        moved=compared.moved,
        notes=tuple(dict.fromkeys(notes)),
    )


def _tests_of(target: Target, base: Tree, head: Tree) -> tuple[str, ...]:
    """The target's tests, those that its file named in the base, and those beside them that the head has deleted."""
    tests = dict.fromkeys((*target.tests, *_named_in_base(target, base)))
    return tuple(dict.fromkeys((*tests, *_deleted(target, tuple(tests), _root(base), _root(head)))))


def _check(tests: Sequence[str], base: Tree, head: Tree) -> None:
    for test in tests:
        path = test.partition("::")[0]
        if not ((_root(base) / path).exists() or (_root(head) / path).exists()):
            raise UsageError(f"{test} is neither in {base.tests.name} nor in the {head.tests.name}")


def _named_in_base(target: Target, base: Tree) -> tuple[str, ...]:
    if target.root is None or not target.file.is_relative_to(target.root.resolve()):
        return ()
    try:
        return load_target(_root(base) / target.file.relative_to(target.root.resolve())).tests
    except TargetError:
        return ()


def _deleted(target: Target, tests: Sequence[str], base: Path, head: Path) -> list[str]:
    """Test files of the base that are gone, lie beside a listed one and speak of the target's modules."""
    paths = [Path(test.partition("::")[0]) for test in tests]
    folders = {path.parent for path in paths if path.suffix == ".py"}  # in a listed folder they are collected anyway
    stems = {part for name in target.modules for part in name.split(".")[-1:]}
    found = []
    for folder in sorted(folders):
        for file in sorted((base / folder).glob("*.py")):
            inner = file.relative_to(base)
            if (head / inner).exists() or not is_named(PurePosixPath(inner), TEST_NAMES) or file.name == "conftest.py":
                continue
            text = file.read_text(encoding="utf-8", errors="replace")
            if any(stem in text for stem in stems):
                found.append(inner.as_posix())
    return found


def _root(tree: Tree) -> Path:
    assert tree.target.root is not None  # it was laid out
    return tree.target.root
