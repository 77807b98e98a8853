"""`fastlora-verify suite` on git repositories made here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from repositories import commit, git, hashes, new_repository

from fastlora_verify.harness import cli

pytestmark = pytest.mark.slow  # runs of the tool

TINY = Path(__file__).parent.parent / "testdata" / "tiny"
TESTS = """\
import pytest

TOL = 1e-3


def close(value, want, tol=TOL):
    assert abs(value - want) < tol


@pytest.mark.parametrize("x", [1, 3])
def test_doubles(x):
    close(2 * x, x + x)


def test_kept():
    assert 1 + 1 == 2


def test_dropped():
    assert 2 + 2 == 4
"""


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    status: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A target whose first commit is the base."""
    root = new_repository(tmp_path / "repository")
    shutil.copytree(TINY, root, dirs_exist_ok=True)
    commit(root, {"tests/test_tiny.py": None, "tests/test_a.py": TESTS}, "base")
    git(root, "tag", "base")
    return root


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line, beside the repository."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Ran:
        capfd.readouterr()
        status = cli.run(list(argv))
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Ran(status, out, err)

    return run


@pytest.fixture
def suite(command: Command) -> Command:
    """The suite of the target `repository` against `base`."""

    def run(*argv: str, against: str = "base", target: str = "repository") -> Ran:
        return command("suite", "--target", target, "--against", against, *argv)

    return run


def test_a_head_that_only_adds_is_one_line(repository: Path, suite: Command) -> None:
    more = TESTS.replace("[1, 3]", "[1, 3, 5]") + "\n\ndef test_more():\n    assert TOL < 1\n"
    commit(repository, {"tests/test_a.py": more})
    before = hashes(repository)
    ran = suite()
    assert ran.status == 0, ran.err
    line = "**Nothing was deleted or loosened: 4 to 6, the original ids survive; no new skip.**"
    assert line in ran.out.splitlines()
    assert "`tests/test_a.py::test_doubles[5]`" in ran.out
    assert "`tests/test_a.py::test_more`" in ran.out
    assert hashes(repository) == before


def test_a_deleted_test_and_a_raised_tolerance_are_both_listed(
    repository: Path, suite: Command, command: Command
) -> None:
    less = TESTS[: TESTS.index("\n\ndef test_dropped")].replace("1e-3", "1e-2")
    commit(repository, {"tests/test_a.py": less})
    ran = suite("--json", "suite.json")
    assert ran.status == 1, ran.err
    assert "**2 exceptions: 1 test deleted, 1 assertion loosened (4 to 3; no new skip).**" in ran.out
    assert "- **test deleted** `tests/test_a.py:19` of the base: `tests/test_a.py::test_dropped` is deleted" in ran.out
    assert "- **assertion loosened** `tests/test_a.py:3`: `0.001` is now `0.01` in" in ran.out
    record = json.loads((repository.parent / "suite.json").read_text())
    found = {finding["kind"]: finding for finding in record["suite"]["findings"]}
    assert found["loosened"]["tests"] == ["tests/test_a.py::test_doubles[1]", "tests/test_a.py::test_doubles[3]"]
    assert found["test-removed"]["tests"] == ["tests/test_a.py::test_dropped"]
    assert command("report", "suite.json").out == ran.out


def test_skips_marks_and_arms_as_pytest_sees_them(repository: Path, suite: Command) -> None:
    """Of a head that isn't committed: skips by mark, by a conftest's own rule and by unittest."""
    case = (
        "import unittest\n\n\nclass TestX(unittest.TestCase):\n    def test_x(self):\n        self.assertEqual(1, 1)\n"
    )
    commit(repository, {"tests/test_b.py": case})
    git(repository, "tag", "-f", "base")
    text = TESTS.replace("[1, 3]", "[1]").replace("    assert 1 + 1 == 2", "    pass")
    text = text.replace("def test_kept", "@pytest.mark.gpu\ndef test_kept")
    text = text.replace("def test_dropped", '@pytest.mark.skipif(True, reason="later")\ndef test_dropped')
    hook = "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n    items[0].add_marker(pytest.mark.skip)\n"
    (repository / "tests/conftest.py").write_text(hook)
    (repository / "tests/test_a.py").write_text(text)
    (repository / "tests/test_b.py").write_text(case.replace("    def", '    @unittest.skip("by hand")\n    def'))
    (repository / "tests/test_c.py").write_text("def test_new():\n    assert 1\n")
    ran = suite()
    assert ran.status == 1
    assert "**5 exceptions: 1 arm removed, 1 assertion removed, 3 new skips (5 to 5).**" in ran.out
    assert "`tests/test_a.py::test_doubles` has lost 1 arm: `3`" in ran.out
    assert "`assert 1 + 1 == 2` is gone; the test asserts nothing any more" in ran.out
    assert "`tests/test_a.py::test_doubles[1]`: the mark `skip()` is new" in ran.out
    assert "`tests/test_a.py::test_dropped`: the mark `skipif(True, reason='later')` is new" in ran.out
    assert "`tests/test_b.py::TestX::test_x`: the mark `skip('by hand')` is new" in ran.out
    assert "`tests/test_a.py::test_kept`: the marker `gpu` is added" in ran.out


def test_a_test_file_that_moved(repository: Path, suite: Command) -> None:
    commit(repository, {"tests/test_a.py": None, "tests/test_c.py": "# moved\n" + TESTS})
    ran = suite()
    assert ran.status == 0, ran.out
    line = (
        "Nothing was deleted or loosened: 4 to 4, the original ids survive, 4 of them under another name; no new skip."
    )
    assert f"**{line}**" in ran.out


def test_a_base_that_does_not_import_is_said(repository: Path, suite: Command) -> None:
    commit(repository, {"tests/test_b.py": "import nowhere\n\n\ndef test_b():\n    assert 1\n"}, "broken")
    git(repository, "tag", "broken")
    commit(repository, {"tests/test_b.py": "def test_b():\n    assert 1\n"}, "mended")
    ran = suite(against="broken")
    assert ran.status == 3
    assert "The suites can't be compared in full: 1 not collected (4 to 5 collected)." in ran.out
    assert (
        "`tests/test_b.py` can't be collected in the base: `ModuleNotFoundError: No module named 'nowhere'`" in ran.out
    )


def test_a_head_that_does_not_import_is_said(repository: Path, suite: Command) -> None:
    commit(repository, {"tests/conftest.py": "import nowhere\n"})
    ran = suite()
    assert ran.status == 3
    assert "pytest collects nothing in the head" in ran.out
    assert "nowhere" in ran.out


def test_what_the_target_s_own_arguments_leave_out_now(repository: Path, suite: Command) -> None:
    table = (repository / "fastlora-verify.toml").read_text()
    quick = table.replace('pytest-args = ["-W", "ignore"]', 'pytest-args = ["-W", "ignore", "-m", "not slow"]')
    case = "import pytest\n\n\nclass Base:\n    def test_x(self):\n        assert 1\n\n\nclass TestX(Base):\n    pass\n"
    commit(repository, {"fastlora-verify.toml": quick, "tests/test_b.py": case})
    git(repository, "tag", "-f", "base")
    commit(
        repository,
        {"tests/test_b.py": case.replace("    def", "    @pytest.mark.slow\n    def").replace("assert 1", "pass")},
    )
    ran = suite()
    assert ran.status == 1
    assert "`tests/test_b.py::TestX::test_x` is left out by the target's own pytest arguments" in ran.out
    assert "**2 exceptions: 1 assertion removed, 1 new skip (5 to 4).**" in ran.out


def test_only_the_tests_asked_for(repository: Path, suite: Command) -> None:
    less = TESTS[: TESTS.index("\n\ndef test_dropped")].replace("1e-3", "1e-2")
    commit(repository, {"tests/test_a.py": less})
    assert suite("--tests", "tests/test_a.py::test_dropped").status == 1
    ran = suite("--tests", "tests/test_a.py::test_kept")
    assert ran.status == 0, ran.out
    assert "1 to 1" in ran.out


@pytest.mark.parametrize(
    ("against", "argv", "said"),
    [
        ("nowhere", (), "'nowhere' is no revision of"),
        ("", (), "the revision is empty"),
        ("base", ("--tests", "tests/test_z.py"), "tests/test_z.py is neither in base nor in the working tree"),
        ("base", ("--device", "tpu"), "unknown device 'tpu'"),
    ],
)
def test_bad_input_is_one_line(
    repository: Path, suite: Command, against: str, argv: tuple[str, ...], said: str
) -> None:
    ran = suite(*argv, against=against)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_folder_without_git_is_said(tmp_path: Path, suite: Command) -> None:
    shutil.copytree(TINY, tmp_path / "tiny")
    ran = suite(target="tiny")
    assert (ran.status, ran.out) == (2, "")
    assert "is in no git repository" in ran.err
    assert ran.err.count("\n") == 1


def test_mutate_against_has_the_same_section(tmp_path: Path, command: Command) -> None:
    root = new_repository(tmp_path / "repository")
    shutil.copytree(TINY, root, dirs_exist_ok=True)
    commit(root, {}, "base")
    git(root, "tag", "base")
    tests = (root / "tests/test_tiny.py").read_text()
    commit(root, {"tests/test_tiny.py": tests.replace("    assert unpatch(module) == 1\n", "")})
    words = ("--target", "repository", "--against", "base")
    ran = command("mutate", "delegates-always", *words, "--no-oracles", "--json", "run.json")
    assert "### The suite" in ran.out, ran.err
    alone = command("suite", *words, "--json", "suite.json")
    assert alone.status == 1
    line = "**1 exception: 1 assertion removed (4 to 4; no new skip).**"
    assert line in ran.out.splitlines()
    assert line in alone.out.splitlines()
    records = [json.loads((tmp_path / name).read_text()) for name in ("run.json", "suite.json")]
    assert records[0]["suite"]["findings"] == records[1]["suite"]["findings"]
    assert [finding["kind"] for finding in records[0]["suite"]["findings"]] == ["assertion-removed"]
