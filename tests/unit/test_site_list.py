"""`list --target`: every site and every empty cell, with file, line and gist, in three formats."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fastlora_verify.harness import cli
from fastlora_verify.harness.site_list import GIST
from fastlora_verify.mutations.registry import MUTATIONS
from fastlora_verify.reports.escape import one_line

TINY = Path(__file__).parent.parent / "testdata" / "tiny"
KERNEL = "src/tiny/kernel.py"


def out(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.run(["list", *argv]) == 0
    return capsys.readouterr().out


def test_json_has_every_site_and_every_empty_cell_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(out(capsys, "--target", str(TINY), "--format", "json"))
    text = (TINY / KERNEL).read_text().splitlines()
    assert found["target"] == "tiny"
    (kernel,) = found["kernels"]
    assert (kernel["name"], kernel["file"]) == ("doubled", KERNEL)
    assert text[kernel["line"] - 1].startswith("class Doubled")
    always = next(site for site in found["sites"] if site["mutation"] == "delegates-always")
    assert always["name"] == "delegates-always@tiny.kernel:patch.forward"
    assert (always["file"], always["kernels"], always["gist"]) == (
        KERNEL,
        ["doubled"],
        "return original(x, *args, **kwargs)",
    )
    assert "\n+        return original(x, *args, **kwargs)\n" in always["diff"]
    assert all(site["file"] == KERNEL and 1 <= site["line"] <= len(text) for site in found["sites"])
    empty = {cell["mutation"] for cell in found["no_sites"]}
    full = {site["mutation"] for site in found["sites"]}
    of_kernels = {mutation.id for mutation in MUTATIONS if mutation.family != "instruments"}
    assert empty | full == of_kernels
    assert not empty & full
    assert all(
        cell["reason"] and (cell["file"], cell["line"]) == (KERNEL, kernel["line"]) for cell in found["no_sites"]
    )


def test_the_plain_table_has_a_line_a_site(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(out(capsys, "--target", str(TINY), "--format", "json"))
    lines = out(capsys, "--target", str(TINY)).splitlines()
    assert lines[0] == f"{len(data['sites'])} sites, {len(data['no_sites'])} empty cells of mutation and kernel"
    for site in data["sites"]:
        row = [site["mutation"], "doubled", f"{KERNEL}:{site['line']}", one_line(site["gist"], GIST)]
        assert any(re.split(r"\s{2,}", line) == row for line in lines), row
    for cell in data["no_sites"]:
        row = [cell["mutation"], "doubled", f"{KERNEL}:{cell['line']}", one_line(cell["reason"], GIST)]
        assert any(re.split(r"\s{2,}", line) == row for line in lines), row


def test_kernels_and_families_narrow_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    of_family = json.loads(out(capsys, "--target", str(TINY), "--family", "guards", "--format", "json"))
    assert {site["family"] for site in of_family["sites"]} == {"guards"}
    assert {m.id for m in MUTATIONS if m.family == "guards"} >= {cell["mutation"] for cell in of_family["no_sites"]}
    catalogue = json.loads(out(capsys, "--family", "guards", "--format", "json"))
    assert [entry["id"] for entry in catalogue] == [m.id for m in MUTATIONS if m.family == "guards"]
    assert cli.run(["list", "--target", str(TINY), "--kernel", "double"]) == 2
    assert "unknown kernel 'double'; nearest: doubled" in capsys.readouterr().err
    assert cli.run(["list", "--family", "guard"]) == 2
    assert "unknown family 'guard'; nearest: guards" in capsys.readouterr().err


def test_no_site_at_all_is_a_list_of_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "--target", str(TINY), "--family", "quantised weight")
    assert text.startswith("0 sites, ")
    assert "nested-state-dropped" in text


def test_our_own_words_stay_as_they_are_in_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "--format", "markdown")
    by_id = {mutation.id: mutation for mutation in MUTATIONS}
    silu = by_id["silu-slope-term-dropped"]
    assert f"| `{silu.id}` | mathematics | other, swiglu-mlp | {silu.fault} |" in text
    for mutation in MUTATIONS:
        plain = re.sub(r"\\(.)", r"\1", text)
        assert mutation.fault in plain, mutation.id
    sites = out(capsys, "--sites", "--target", str(TINY), "--format", "markdown")
    assert "one projection has no sibling" in sites or "not for kernels of kind other" in sites
    assert "`" not in next(line for line in sites.splitlines() if line.startswith("(1) "))


def test_the_targets_words_are_harmless_in_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "<b>|@octocat|</b> closes #1"
    (tmp_path / "src/tiny").mkdir(parents=True)
    text = (TINY / KERNEL).read_text()
    (tmp_path / KERNEL).write_text(
        text.replace("must_delegate(x) or args", 'must_delegate(x) or x == "|<b>@octocat #1" or args')
    )
    table = (TINY / "fastlora-verify.toml").read_text().replace('"doubled"', f"'{name}'").replace('["tests"]', "[]")
    (tmp_path / "t.toml").write_text(table)
    for argv in (("--sites",), ()):
        shown = out(capsys, *argv, "--target", str(tmp_path / "t.toml"), "--format", "markdown")
        outside = re.sub(r"`[^`]*`|<code>.*?</code>", "", shown)
        assert shown.count("octocat") > (0 if argv else 1)
        assert "@octocat" not in outside
        assert "<b>" not in outside
        assert "#1" not in outside
        rows = [line for line in shown.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in rows}) == 1  # a pipe ends a cell, in a code span too


def test_one_mutant_is_no_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "--target", str(TINY), "--sites", "--family", "lifecycle")
    assert re.search(r"^\d+ mutants? of \d+ mutations$", text.splitlines()[-1])
    from fastlora_verify.reports.names import counted

    assert [counted(n, "mutant") for n in (0, 1, 2, 1200)] == ["0 mutants", "1 mutant", "2 mutants", "1,200 mutants"]
