"""Mutations from a file and from installed packages: found, run like the catalogue's, told when they are broken."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fastlora_verify.harness.cli import run
from fastlora_verify.harness.editing import plugins
from fastlora_verify.harness.editing.plugins import offered
from fastlora_verify.harness.errors import FileError, UnknownName
from fastlora_verify.harness.loading import load
from fastlora_verify.harness.selection import Selection, find_mutations
from fastlora_verify.mutations.registry import MUTATIONS

pytestmark = pytest.mark.slow  # runs of the tool

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "testdata" / "tiny"
HEAD = """\
import libcst as cst
from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.source import Edit


def mutation(id, find, family="own"):
    return Mutation(id, family, "A fault.", "An error.", "A test.", find, "nothing there")


def of_guard(text, view):
    guard = view.guards[0]
    value = guard.node.body.body[-1].body[0].value
    return Site(guard.module, guard.scope, text, value, (guard.module.replace(value, text),), text)


"""
RIGHT = 'MUTATIONS = [mutation("own-right", lambda view: [of_guard("x < 1", view)])]\n'


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    def make(text: str) -> Path:
        path = tmp_path / "own.py"
        path.write_text(HEAD + text)
        return path

    return make


def example() -> str:
    """The example of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (found,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return str(found)


def test_the_example_of_the_page_for_contributors_makes_a_mutant(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "guards.py"
    path.write_text(example())
    assert run(["diff", "guard-negated", "--mutations", str(path), "--target", str(TINY)]) == 0
    shown = capfd.readouterr().out
    assert "# guard-negated@tiny.kernel:must_delegate[x < 0]: x < 0 becomes not (x < 0)" in shown
    assert "+    return not (x < 0)" in shown
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["guards.py"]  # no bytecode beside it


def test_nothing_is_written_beside_a_file_that_imports_another(tmp_path: Path, file: Callable[[str], Path]) -> None:
    (tmp_path / "beside_own.py").write_text("NAME = 'own-right'\n")
    path = file("import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport beside_own\n" + RIGHT)
    path_before = list(sys.path)
    try:
        assert [mutation.id for mutation in offered([path]).mutations] == ["own-right"]
    finally:
        sys.path[:] = path_before
        sys.modules.pop("beside_own", None)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["beside_own.py", "own.py"]


def test_own_mutations_are_part_of_all_and_selected_by_name_and_family(file: Callable[[str], Path]) -> None:
    found = offered([file(RIGHT)])
    every = load(TINY, Selection(offered=found)).mutants
    assert "own-right" in {mutant.mutation for mutant in every}
    assert len({mutant.mutation for mutant in every}) > 5
    for selection in (Selection(names=("own-*",), offered=found), Selection(families=("own",), offered=found)):
        (mutant,) = load(TINY, selection).mutants
        assert mutant.name == "own-right@tiny.kernel:must_delegate[x < 1]"
        assert mutant.options == ("--mutations", found.mutations[0].origin)
    assert find_mutations("own-right", (*MUTATIONS, *found.mutations)) == list(found.mutations)
    with pytest.raises(UnknownName):
        load(TINY, Selection(names=("own-right",)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('MUTATIONS = [mutation("own", lambda view: 1 / 0)]', "own of {path}: ZeroDivisionError: division by zero"),
        ('MUTATIONS = [mutation("own", lambda view: exit(3))]', "own of {path}: SystemExit: 3"),
        (
            'MUTATIONS = [mutation("own", lambda view: [3])]',
            "own of {path}: TypeError: find yields 3, which is no Site",
        ),
        (
            "def find(view):\n    m = view.guards[0].module\n"
            '    yield Site(m, "", "x", cst.Name("x"), (Edit(0, 1, ""),), "")\n'
            'MUTATIONS = [mutation("own", find)]',
            "own of {path}: ValueError: the node of a Site is none of tiny.kernel",
        ),
        (
            'MUTATIONS = [mutation("own", lambda view: [of_guard("(", view)])]',
            "own@tiny.kernel:must_delegate[(]: line 32 does not compile: '(' was never closed (of {path})",
        ),
        (
            'MUTATIONS = [mutation("own", lambda view: [of_guard("z < 1", view)])]',
            "own@tiny.kernel:must_delegate[z < 1]: brings in unbound names: z (of {path})",
        ),
    ],
)
def test_a_broken_mutation_is_told_by_name_and_stops_nothing_else(
    file: Callable[[str], Path], text: str, message: str
) -> None:
    path = file(f"{text}\nMUTATIONS += {RIGHT.partition('= ')[2]}")
    found = offered([path])
    loaded = load(TINY, Selection(families=("own",), offered=found))
    assert [mutant.mutation for mutant in loaded.mutants] == ["own-right"]
    assert len(loaded.plan.faults_elsewhere) == 1
    assert loaded.plan.faults_elsewhere[0].startswith(message.format(path=path))
    assert loaded.plan.faults == ()


def test_a_broken_mutation_is_no_success(file: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> None:
    path = file(f'{RIGHT}MUTATIONS.append(mutation("own-broken", lambda view: 1 / 0))\n')
    assert run(["diff", "own-*", "--mutations", str(path), "--target", str(TINY)]) == 2
    shown = capfd.readouterr()
    assert "own-right@" in shown.out
    assert "a mutation from elsewhere is broken: own-broken of" in shown.err


def test_own_mutations_are_listed_and_explained(file: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> None:
    path = str(file(RIGHT))
    assert run(["list", "--mutations", path]) == 0
    listed = capfd.readouterr().out
    assert re.search(r"\nown-right +own +all +A fault\. +.*own\.py\n\nThose from elsewhere are part of --all", listed)
    assert run(["explain", "own-right", "--mutations", path]) == 0
    assert "part of --all as the catalogue's own are" in " ".join(capfd.readouterr().out.split())
    assert run(["list", "--mutations", path, "--target", str(TINY), "--family", "own"]) == 0
    assert re.search(r"own-right +doubled +src/tiny/kernel\.py:32 +x < 1", capfd.readouterr().out)
    assert run(["list"]) == 0
    assert "elsewhere" not in capfd.readouterr().out


def test_a_run_with_a_broken_mutation_runs_the_others_and_has_its_own_status(
    file: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = file(f'{RIGHT}MUTATIONS.append(mutation("own-broken", lambda view: 1 / 0))\n')
    shutil.copytree(TINY, tmp_path / "tiny")
    words = ["--target", str(tmp_path / "tiny"), "--run-dir", str(tmp_path / "run"), "--no-oracles"]
    assert run(["mutate", "--mutations", str(path), *words]) == 2
    shown = capfd.readouterr()
    assert "a mutation from elsewhere is broken, it was not run: own-broken of" in shown.out
    assert "survived: own-right@tiny.kernel:must_delegate[x < 1] (head:cpu)" in shown.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", r"offers no mutations: it is not Python: invalid syntax, line \d+"),
        ("import nowhere_at_all", "offers no mutations: it raises ModuleNotFoundError"),
        ("pass", "it has no MUTATIONS"),
        ("MUTATIONS = ()", r"its MUTATIONS is \(\), and a sequence of Mutation was expected"),
        ("MUTATIONS = [1]", "its MUTATIONS has 1, which is no Mutation"),
        ('MUTATIONS = mutation("delegates-always", list)', "'delegates-always' has a name that is taken"),
        ('MUTATIONS = mutation("reverts", list)', "'reverts' has a name that is taken"),
        ('MUTATIONS = mutation("a@b", list)', r"an id with one of @\*\[\]"),
        ('MUTATIONS = mutation("own", list, family="")', "has no family"),
    ],
)
def test_a_file_that_offers_none_says_why(file: Callable[[str], Path], text: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        offered([file(text)])


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read: No such file"):
        offered([tmp_path / "none.py"])


def test_installed_packages_offer_theirs_and_a_broken_one_stops_nothing(
    file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site"
    package.mkdir()
    (package / "someones_mutations.py").write_text(HEAD + RIGHT)
    (package / "broken_mutations.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(str(package))
    points = [
        EntryPoint("broken", "broken_mutations", plugins.GROUP),
        EntryPoint("right", "someones_mutations", plugins.GROUP),
        EntryPoint("same", "someones_mutations:MUTATIONS", plugins.GROUP),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == plugins.GROUP else [])
    found = offered()
    assert [(m.id, m.origin) for m in found.mutations] == [("own-right", "the package someones_mutations")]
    broken, twice = found.faults
    assert broken.startswith("the package broken_mutations: it raises ModuleNotFoundError")
    assert twice.endswith("its mutation 'own-right' has a name that is taken")
    (mutant,) = load(TINY, Selection(families=("own",), offered=found)).mutants
    assert mutant.options == ()
    assert load(TINY, Selection(families=("own",), offered=found)).plan.faults_elsewhere == found.faults
    sys.modules.pop("someones_mutations", None)
