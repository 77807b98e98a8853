"""The command line: what is wrong is one line and a status; help and the catalogue never load torch."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from synthetic_record import synthetic_record

from fastlora_verify.harness import arguments, cli, run_folder, session
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.mutations.registry import MUTATIONS
from fastlora_verify.reports.record import dumps, loads

TINY = Path(__file__).parent.parent / "testdata" / "tiny"

WITHOUT_TORCH = """\
import sys
for name in ("torch", "peft", "transformers", "bitsandbytes"):
    sys.modules[name] = None  # any import of it raises
from fastlora_verify.harness.cli import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failing(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Status and the one line on stderr of a command that must fail without printing a report."""
    status = cli.run([str(word) for word in argv])
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("fastlora-verify: ")
    return status, lines[0].removeprefix("fastlora-verify: ")


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        ("mutate", "--help"),
        ("--version",),
        ("list",),
        ("list", "--format", "json"),
        ("list", "--format", "markdown"),
        ("explain", "delegates-on-2d"),
        ("list", "--sites", "--target", str(TINY)),
        ("diff", "delegates-always", "--target", str(TINY)),
    ],
)
def test_help_and_the_catalogue_work_without_torch(argv: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_TORCH, *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""


def test_the_default_target_is_read_without_torch() -> None:
    command = [sys.executable, "-P", "-c", WITHOUT_TORCH, "mutate", "no-such-mutation"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fastlora-verify: unknown mutation 'no-such-mutation'")


def test_help_is_quick() -> None:
    command = [sys.executable, "-P", "-c", WITHOUT_TORCH, "--help"]
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - begin)
    assert min(times) < 1.0


def test_the_list_has_every_mutation_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [mutation.id for mutation in MUTATIONS]
    assert cli.run(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ids
    assert cli.run(["list", "--format", "json"]) == 0
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)] == ids
    assert cli.run(["list", "--format", "markdown"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(ids) + 2
    assert all(mutation in row for mutation, row in zip(ids, rows[2:], strict=True))


def test_explain_says_what_a_mutation_is_and_takes_a_mutants_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "delegates-on-2d"]) == 0
    text = capsys.readouterr().out
    assert "Calls with a 2-D input are handed back." in text
    assert "imitates:" in text
    assert "kernels:    of every kind\n" in text
    assert "no site if: the entry has no way of handing a call back to PEFT\n" in text
    assert "shows:      without a card\n" in text
    assert cli.run(["explain", "delegates-on-2d@tiny.kernel:patch.forward"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["mutate", "delegates-on-2-d"], "unknown mutation 'delegates-on-2-d'; nearest: delegates-on-2d"),
        (["mutate", "zzzz"], "unknown mutation 'zzzz'; `fastlora-verify list` gives all of them"),
        (["explain", "delegate-always"], "unknown mutation 'delegate-always'; nearest: delegates-always"),
        (["diff", "delegates-always@nowhere"], "unknown mutant 'delegates-always@nowhere'; nearest: delegates-al"),
        (["mutate", "--all", "--kernel", "double"], "unknown kernel 'double'; nearest: doubled"),
        (["mutate", "--all", "--kernel", "zzz"], "unknown kernel 'zzz'; known: doubled"),
        (["mutate", "--all", "--family", "delegations"], "unknown family 'delegations'; nearest: delegation"),
        (["mutate", "--all", "--device", "gpu"], "unknown device 'gpu'; allowed: cpu, cuda"),
        (["mutate", "--all", "delegates-always"], "--all and the name 'delegates-always' contradict each other"),
        (["mutate", "--all", "--tests", "tests/no.py"], "key --tests: tests/no.py is not in the tree"),
        (["mutate", "--all", "--tests", "/etc/passwd"], "key --tests: /etc/passwd is not in the tree"),
        (["mutate", "--all", "--tests", "../tiny/tests"], "key --tests: ../tiny/tests is not in the tree"),
        (["mutate", "--all", "--python", "/bin/true"], "--python /bin/true: it is no Python"),
        (["mutate", "--all", "--python", "no-such-python"], "--python no-such-python: is not an executable file"),
        (["mutate", "--all", "--json", "no/dir/run.json"], "no/dir/run.json: cannot be written: no writable fold"),
        (["mutate", "--all", "--json", "."], ".: is a folder"),
        (["mutate", "--all", "--audit", "-1"], "Invalid value for '--audit'"),
        (["mutate", "--al"], "No such option: --al"),
        (["mutat"], "No such command 'mutat'"),
        (["list", "--format", "xml"], "unknown format 'xml'; known: table, json, markdown"),
        (["report", "x.json", "--format", "pdf"], "unknown format 'pdf'; known: markdown, json, csv, junit, html"),
        (["report", "missing.json"], "missing.json: cannot be read: No such file"),
        (["oracle", "--seeds", "many"], "--seeds many: not a number of seeds (20), a list (5,13) or a range"),
        (["oracle", "--seeds", "9-3"], "--seeds 9-3: not a number of seeds"),
        (["oracle", "--seeds", "0"], "--seeds 0: not a number of seeds"),
        (["oracle", "--fixture", "width=3"], "--fixture width=3: no field 'width'; fields: widths, shape, rank"),
        (["oracle", "--fixture", "widths=a"], "--fixture widths=a: not a value like widths=8,12"),
        (["oracle"], "no kernel of the target has a patcher and a kind with sample models (linear, qkv, swiglu-mlp)"),
        (["apply", "delegates-*", "--to", "new"], " mutants; give the name of one: delegates-always@"),
        (["apply", "delegates-always", "--to", str(TINY)], "is the target itself, which is never written"),
    ],
)
def test_bad_input_is_one_line_and_status_2(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    if argv[0] in ("mutate", "diff", "apply", "oracle"):
        argv = [*argv, "--target", str(TINY)]
    status, line = failing(capsys, *argv)
    assert says in line
    assert status == 2


@pytest.mark.parametrize("inner", ["new", "src/deep/er", "tests", "link/new"])
def test_a_mutant_is_not_written_into_a_folder_of_the_target(
    inner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(TINY, tmp_path / "tree")
    (tmp_path / "tree/link").symlink_to("src")
    before = sorted(tmp_path.rglob("*"))
    status, line = failing(capsys, "apply", "delegates-always", "--target", "tree", "--to", f"tree/{inner}")
    says = f"tree/{inner} lies inside the target {tmp_path}/tree, which is never written; give a folder outside of it"
    assert (status, line) == (2, says)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("gone.toml", None, "cannot be read: No such file or directory"),
        ("bad.toml", "[target\n", "is not TOML"),
        ("empty.toml", "", "key target: is missing"),
        ("n" * 300, None, "cannot be read: File name too long"),
    ],
)
def test_an_unreadable_target_is_one_line_and_status_2(
    name: str, content: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    status, line = failing(capsys, "mutate", "--all", "--target", name)
    assert status == 2
    assert line.startswith("target ")
    assert f"{name}{':' if content != '' else ','} " in line
    assert says in line


def test_a_pyproject_whose_tool_is_no_table_has_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text("tool = 3\n")
    status, line = failing(capsys, "mutate", "--all", "--target", ".")
    assert status == 2
    assert line == "target pyproject.toml: has no [tool.fastlora-verify] table; `fastlora-verify init` writes one"


@pytest.mark.parametrize(
    ("head", "tail", "says"),
    [
        ("# -*- coding: rot13 -*-\n", "", "is not text: 'rot13' is not a text encoding"),
        ("# -*- coding: hex -*-\n", "", "is not text: 'hex' is not a text encoding"),
        ("", "x = " + "-" * 5000 + "1\n", "is nested too deeply to be read"),
    ],
)
def test_a_source_that_cannot_be_parsed_is_told_with_its_file(
    head: str, tail: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(TINY, tmp_path / "tree")
    kernel = tmp_path / "tree/src/tiny/kernel.py"
    kernel.write_text(head + kernel.read_text() + tail)
    status, line = failing(capsys, "mutate", "--all", "--target", "tree")
    assert status == 2
    assert f"key target.modules: tiny.kernel: {kernel} {says}" in line


@pytest.mark.parametrize("entry", ['"A=B" = "c"', '"" = "c"', 'A = "c\\u0000"', '"A\\u0000" = "c"'])
def test_an_environment_that_no_process_can_have_is_an_error(entry: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (TINY / "fastlora-verify.toml").read_text()
    Path("t.toml").write_text(
        text.replace('pytest-args = ["-W", "ignore"]', f"env = {{{entry}}}").replace('"."', f"'{TINY}'")
    )
    status, line = failing(capsys, "diff", "delegates-always", "--target", "t.toml")
    assert status == 2
    assert "key target.env: found " in line


@pytest.mark.parametrize("name", ["..", ".", "a\0b", "n" * 300, "a/../../b"])
def test_the_runs_folder_is_below_the_working_folders(name: str, tmp_path: Path) -> None:
    target = dataclasses.replace(load_target(TINY), name=name)
    folder = run_folder.prepare_run_dir(None, target)
    assert folder.parent == tmp_path.resolve() / run_folder.RUNS
    assert folder.is_dir()


def test_a_role_that_names_nothing_is_told_with_the_scope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (TINY / "fastlora-verify.toml").read_text().replace('"tiny.kernel:unpatch"', '"tiny.kernel:unpatched"')
    (tmp_path / "t.toml").write_text(text.replace('root = "."', f'root = "{TINY}"'))
    status, line = failing(capsys, "mutate", "--all", "--target", "t.toml")
    assert status == 2
    assert "key kernel[0].unpatcher of 'doubled': tiny.kernel has no unpatched; nearest: unpatch, patch" in line


def test_an_allowance_that_matches_no_mutant_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (TINY / "fastlora-verify.toml").read_text().replace('root = "."', f'root = "{TINY}"')
    (tmp_path / "t.toml").write_text(f'{text}\n[[allow]]\nmutant = "no-such@*"\nreason = "none"\n')
    status, line = failing(capsys, "mutate", "--all", "--target", "t.toml")
    assert status == 2
    assert "key allow[0].mutant: 'no-such@*' matches no mutant" in line


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["mutate"], "nothing to run: name mutations, or give --all, --kernel or --family"),
        (["mutate", "silu-slope-term-dropped"], "silu-slope-term-dropped has no site in doubled ("),
        (["mutate", "delegates-always", "--family", "guards"], "no mutation of the names given is of the families"),
    ],
)
def test_an_empty_selection_is_status_5_and_says_why(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = failing(capsys, *argv, "--target", str(TINY))
    assert status == 5
    assert says in line


def test_a_fault_of_ours_is_one_line_and_keeps_its_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the secret of the\nfault")

    monkeypatch.setattr(session, "load_target", broken)
    (tmp_path / ".fastlora-verify").mkdir()
    status, line = failing(capsys, "mutate", "--all")
    assert status == 70
    assert line.startswith("a fault of ours, not of your target: ZeroDivisionError; the traceback is in ")
    saved = Path(line.rpartition(" in ")[2])
    assert saved.parent == tmp_path / ".fastlora-verify"
    assert "the secret of the" in saved.read_text()


def test_an_interrupt_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "load_target", interrupted)
    assert failing(capsys, "mutate", "--all") == (130, "interrupted; the same command goes on from here")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(dumps(synthetic_record()))
    (tmp_path / "cli.py").write_text(WITHOUT_TORCH)
    command = f"{sys.executable} -P cli.py report --separate {'run.json ' * 40} | head -c 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "#"
    assert done.stderr == ""


def test_no_command_is_the_help_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 2
    assert "Usage: fastlora-verify" in capsys.readouterr().err


def test_the_report_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    record = dataclasses.replace(synthetic_record(), tool_version="0×1")
    (tmp_path / "run.json").write_text(dumps(record))
    command = [sys.executable, "-P", "-c", WITHOUT_TORCH, "report", "run.json"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=env, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "0×1;".encode() in done.stdout


def test_a_record_can_be_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = synthetic_record()
    (tmp_path / "run.json").write_text(dumps(record))
    assert cli.run(["report", "run.json", "--format", "json"]) == 0
    assert loads(capsys.readouterr().out) == record
    assert cli.run(["report", "run.json", "run.json", "--separate"]) == 0
    assert capsys.readouterr().out.count("## fastlora-verify: reference: 2 of 8 mutants survive") == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "has no schema_version"),
        ("[", "not JSON"),
        ('{"schema_version": 9}', "schema version 9 is unknown"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ('{"schema_version": %s}' % ("9" * 5000), "not JSON: Exceeds the limit"),
    ],
    ids=["no version", "torn", "another version", "deep", "long number"],
)
def test_what_is_no_record_is_refused(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text(content)
    status, line = failing(capsys, "report", "run.json")
    assert status == 2
    assert line.startswith("run.json: cannot be read as a run record: ")
    assert says in line


@pytest.mark.parametrize(
    ("argv", "spread"),
    [
        (["--tests", "a.py", "b.py", "c"], ["--tests", "a.py", "--tests", "b.py", "c"]),
        (["--tests", "a", "t/b", "--all"], ["--tests", "a", "--tests", "t/b", "--all"]),
        (["--tests", "a.py", "m@p.q:f[x/y]"], ["--tests", "a.py", "m@p.q:f[x/y]"]),
        (["--tests", "a.py::t", "b.py::T::t[1]"], ["--tests", "a.py::t", "--tests", "b.py::T::t[1]"]),
        (["--device", "cpu", "cuda", "x"], ["--device", "cpu", "--device", "cuda", "x"]),
        (["--device", "cpu", "--device", "cuda"], ["--device", "cpu", "--device", "cuda"]),
        (["x", "--tests"], ["x", "--tests"]),
        (["--kernel", "a/b.py", "c/d.py"], ["--kernel", "a/b.py", "c/d.py"]),
    ],
)
def test_options_that_take_several_words(argv: list[str], spread: list[str]) -> None:
    assert arguments.spread(argv) == spread


def test_seeds() -> None:
    assert arguments.seeds(None) == ()
    assert arguments.seeds("3") == (0, 1, 2)
    assert arguments.seeds("5,13") == (5, 13)
    assert arguments.seeds("5,") == (5,)
    assert arguments.seeds("3-5,4,9") == (3, 4, 5, 9)


def test_a_fixture_is_read_by_the_types_of_its_fields() -> None:
    assert arguments.fixture(["sibling_scale=2", "widths=8,16", "rank=4"]) == {
        "sibling_scale": 2.0,
        "widths": [8, 16],
        "rank": 4,
    }


def test_apply_names_the_interpreter_that_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    argv = ("apply", "delegates-always", "--target", str(TINY), "--to", "copy", "--python")
    status, line = failing(capsys, *argv, "nowhere/python")
    assert (status, "is not an executable file" in line, (tmp_path / "copy").exists()) == (2, True, False)
    assert cli.run([*argv, str(python)]) == 0
    assert f" {python} -P -m pytest " in capsys.readouterr().out
