"""What the catalogue finds doesn't depend on how a kernel calls its own, nor on the order of a commutative operator."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from operand_swap import swap
from reference_plan import plan_of, reference, reference_plan, sites
from renaming import Renamed, other, rename

from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.example_kernels import KERNELS, MODULE
from fastlora_verify.mutations.plan import Plan, plan_mutants
from fastlora_verify.mutations.source import SourceFile

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {name: (text, roles) for name, (text, roles) in KERNELS.items() if roles is not None}
every_example = pytest.mark.parametrize("name", EXAMPLES)

Sources = dict[str, SourceFile]


def outside(modules: Sources) -> list[str]:
    known = {file.text for file in modules.values()}
    files = [*(ROOT / "kernels").glob("*.py"), *(ROOT / "oracles").glob("*.py"), *(ROOT / "tests/suites").glob("*.py")]
    return [text for path in files if (text := path.read_text(encoding="utf-8")) not in known]


@pytest.fixture(scope="module")
def renamed() -> Renamed:
    target, sources = reference()
    modules = {name: sources[name] for name in target.modules}
    return rename(modules, target.kernels, outside(modules))


def example_plan(text: str, roles: KernelRoles) -> Plan:
    return plan_mutants({MODULE: SourceFile(MODULE, "kernel.py", text)}, (roles,))


def identifiers(text: str) -> Counter[str]:
    return Counter(node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))


# -- other names ----------------------------------------------------------------------------------------------


def parameters(text: str) -> set[str]:
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arguments)]
    return {arg.arg for node in found for arg in [*node.posonlyargs, *node.args]} - {"self", "cls"}


def test_nothing_of_the_kernels_own_keeps_its_name(renamed: Renamed) -> None:
    """But for parameters of public functions that others pass by keyword: they are what those functions offer."""
    _, sources = reference()
    old = [(name, word) for name in renamed.sources for word in parameters(sources[name].text)]
    kept = [(name, word) for name, word in old if word in parameters(renamed.sources[name].text)]
    assert len(kept) <= 0.1 * len(old), kept
    assert len(renamed.names) > 40
    assert all(name != new for (_, name), new in renamed.names.items())


def test_renamed_modules_say_the_same(renamed: Renamed) -> None:
    _, sources = reference()
    for name, file in renamed.sources.items():
        assert len(file.text.splitlines()) == len(sources[name].text.splitlines())
        old, new = ast.parse(sources[name].text), ast.parse(file.text)
        assert [type(n) for n in ast.walk(old)] == [type(n) for n in ast.walk(new)]


def test_the_reference_kernels_have_the_same_sites_under_other_names(renamed: Renamed) -> None:
    target, sources = reference()
    plan = plan_mutants({**sources, **renamed.sources}, renamed.kernels, target.instruments)
    assert plan.faults == ()
    assert sites(plan) == sites(reference_plan())


@every_example
def test_an_example_kernel_has_the_same_sites_under_other_names(name: str) -> None:
    text, roles = EXAMPLES[name]
    assert roles is not None
    new = rename({MODULE: SourceFile(MODULE, "kernel.py", text)}, (roles,))
    assert identifiers(new.sources[MODULE].text).keys() & {"inp", "grad", "factor", "flat"} == set()
    plan = example_plan(new.sources[MODULE].text, new.kernels[0])
    assert plan.faults == ()
    assert sites(plan) == sites(example_plan(text, roles))


def test_a_name_that_a_mutation_leaned_on_would_be_found_out(renamed: Renamed) -> None:
    """The comparison isn't empty: a kernel that lost a term has other counts."""
    target, sources = reference()
    linear = renamed.sources["fastlora_verify.kernels.linear"]
    text = sources["fastlora_verify.kernels.linear"].text
    line = next(line for line in text.splitlines() if "promoted_sum(x.dtype, dX_base" in line)
    at = text.splitlines().index(line)
    lines = linear.text.splitlines(keepends=True)
    lines[at] = lines[at].split("=")[0] + "= None\n"
    broken = {**sources, **renamed.sources, linear.module: replace(linear, text="".join(lines))}
    plan = plan_mutants(broken, renamed.kernels, target.instruments)
    assert sites(plan) != sites(reference_plan())


def test_names_are_other_names_and_stay_readable_as_what_they_are() -> None:
    assert other("x") != other("y") != "x"
    assert other("x", "one") != other("x", "two")
    assert other("_hidden").startswith("_")
    assert other("LIMIT").isupper()


SMALL = """
import torch
from peft import lora


LIMIT = 3


def _double(value, *, times=2):
    return value * times


def public(x, flag=False):
    rows = [_double(row, times=LIMIT) for row in x]
    def inner(rows):
        return torch.cat(rows, dim=0) if flag else x.lora_A
    if (n := len(rows)) > 1:
        print(f"{n} {x!r}")
    return inner(rows)


class Box:
    size = 1

    def _grow(self, by):
        self.size = self.size + by
        return self

    def grow(self, by):
        return self._grow(by=by)
"""


def test_scopes_keywords_and_private_methods_are_followed() -> None:
    roles = KernelRoles("k", "other", "m:Box", ("m:public.inner",), ("m:_double",), (), "", "", "BoxBackward")
    new = rename({"m": SourceFile("m", "m.py", SMALL)}, (roles,), ["from m import public\npublic(1, flag=True)\n"])
    text = new.sources["m"].text
    spared = ("torch.cat", "dim=0", ".lora_A", "flag", "public", "class Box", "size = 1", "self.size", "len(", "print(")
    for word in spared:
        assert word in text, word
    for word in ("_double", "times", "LIMIT", "rows", "row", "inner", "value", "_grow"):
        assert re.search(rf"\b{word}\b", text) is None, word
    namespace: dict[str, object] = {}
    exec(compile(text.replace("from peft import lora\n", ""), "m.py", "exec"), namespace)
    assert new.kernels[0].entries == (f"m:public.{other('inner', 'm')}",)
    assert new.kernels[0].guards == (f"m:{other('_double')}",)
    assert isinstance(namespace["public"], Callable)  # type: ignore[arg-type]


def test_the_script_renames_a_copy_and_not_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("kernels", "oracles", "tests/suites"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    script = runpy.run_path(str(ROOT / "scripts" / "rename_target.py"))
    monkeypatch.setattr(sys, "argv", ["rename_target.py", str(tmp_path)])
    assert script["main"]() == 0
    table = (tmp_path / "kernels" / "reference.toml").read_text(encoding="utf-8")
    assert 'qkv:query_forward"' not in table and 'qkv:patch_qkv"' in table
    assert "def query_forward" not in (tmp_path / "kernels" / "qkv.py").read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["rename_target.py", str(ROOT)])
    assert script["main"]() == 2
    assert "copy it first" in capsys.readouterr().err


# -- operands the other way round -----------------------------------------------------------------------------


def test_the_reference_kernels_have_the_same_sites_with_operands_swapped() -> None:
    target, sources = reference()
    swapped = {name: swap(sources[name].text) for name in target.modules}
    assert sum(count for _, count in swapped.values()) >= 20
    texts = {name: replace(sources[name], text=text) for name, (text, _) in swapped.items()}
    plan = plan_of({**sources, **texts})
    assert plan.faults == ()
    assert sites(plan) == sites(reference_plan())


@every_example
def test_an_example_kernel_has_the_same_sites_with_operands_swapped(name: str) -> None:
    text, roles = EXAMPLES[name]
    assert roles is not None
    swapped, count = swap(text)
    assert count >= 4
    assert sites(example_plan(swapped, roles)) == sites(example_plan(text, roles))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a + b * c", "(c * b) + a"),
        ("torch.add(a, b)", "torch.add(b, a)"),
        ("torch.add(a, b, alpha=s)", "torch.add(a, b, alpha=s)"),
        ("[None] * n + rest", "[None] * n + rest"),
        ("'a' + b", "'a' + b"),
        ("a - b", "a - b"),
    ],
)
def test_only_what_commutes_is_swapped(before: str, after: str) -> None:
    assert swap(before)[0] == after
