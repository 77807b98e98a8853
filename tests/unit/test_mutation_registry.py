"""The catalogue and what it makes of the reference kernels: registered, named, compiling, probed."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from reference_plan import plan_of, reference, reference_plan

import fastlora_verify.mutations
from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.build import BadMutantError, build_mutant
from fastlora_verify.mutations.registry import MUTATIONS
from fastlora_verify.mutations.source import Edit, ParsedModule, SourceFile

FOLDER = Path(next(iter(fastlora_verify.mutations.__path__)))
FAMILIES = {
    "delegation", "mathematics", "precision", "quantised weight", "memory and streaming", "lifecycle", "guards",
    "instruments",
}  # fmt: skip
DEEDS = ("remove", "replace", "change", "mutate", "edit", "break")  # an id names the bug, not the deed
every_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)


def test_every_module_that_defines_mutations_is_registered() -> None:
    defined = []
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem not in {"registry", "__init__"}:
            module = importlib.import_module(f"fastlora_verify.mutations.{path.stem}")
            defined += list(getattr(module, "MUTATIONS", ()))
    registered = {id(m) for m in MUTATIONS}
    assert [m.id for m in defined if id(m) not in registered and isinstance(m, Mutation)] == []
    assert {m.id for m in defined} == {m.id for m in MUTATIONS}


def test_there_are_sixty_mutations_with_an_id_each() -> None:
    assert len(MUTATIONS) >= 60
    assert [name for name, count in Counter(m.id for m in MUTATIONS).items() if count > 1] == []


@every_mutation
def test_a_mutation_says_what_it_is(mutation: Mutation) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", mutation.id)
    assert not mutation.id.startswith(DEEDS)
    assert mutation.family in FAMILIES
    assert mutation.fault.endswith(".") and mutation.imitates and mutation.seen_by and mutation.absent
    assert mutation.kinds <= {"linear", "qkv", "swiglu-mlp", "other"} and mutation.kinds
    assert mutation.needs in {"cpu", "cuda"}


def test_planning_makes_no_mutant_that_is_none() -> None:
    plan = reference_plan()
    assert plan.faults == ()
    assert len(plan.mutants) >= 150


def test_every_mutation_has_a_site_in_some_reference_kernel() -> None:
    """A mutation that none of our kernels shows is one that no suite of ours was ever tried on."""
    found = {mutant.mutation for mutant in reference_plan().mutants}
    missing = {m.id for m in MUTATIONS} - found
    assert missing <= {"positive-guard-always-true"}  # our guards are all written as refusals


def test_every_empty_cell_has_its_reason() -> None:
    plan = reference_plan()
    target, _ = reference()
    cells = {(m.mutation, kernel) for m in plan.mutants for kernel in m.kernels}
    cells |= {(no.mutation, no.kernel) for no in plan.no_sites if no.reason}
    kernels = [k.name for k in target.kernels]
    assert cells >= {(m.id, k) for m in MUTATIONS if m.family != "instruments" for k in kernels}


def test_names_are_unique_and_say_where() -> None:
    names = Counter(m.name for m in reference_plan().mutants)
    assert [name for name, count in names.items() if count > 1] == []
    for mutant in reference_plan().mutants:
        where = f"{mutant.mutation}@{mutant.module}" + (f":{mutant.scope}" if mutant.scope else "")
        assert mutant.name == where or mutant.name.startswith(f"{where}[")


NOISE_ABOVE = "\n\n# A remark above.\ndef unrelated_above(value):\n    return value\n\n\n"
NOISE_BELOW = "\n\n\ndef unrelated_below(value):\n    return value  # and one below\n"


def with_noise(text: str) -> str:
    """The module with blank lines, comments and functions before its first definition, between and after all."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines.insert(first - 1, "\n\n# A remark.\n\n\n")
    first = next(n for n in tree.body if not isinstance(n, ast.Expr | ast.ImportFrom | ast.Import))
    lines.insert(min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]) - 1, NOISE_ABOVE)
    return "".join(lines) + NOISE_BELOW


def test_names_stay_when_other_code_of_a_module_changes() -> None:
    _, sources = reference()
    noisy = {name: replace(file, text=with_noise(file.text)) for name, file in sources.items()}
    assert all(noisy[name].text != file.text for name, file in sources.items())
    assert [m.name for m in plan_of(noisy).mutants] == [m.name for m in reference_plan().mutants]


def test_names_stay_when_a_comment_is_put_into_the_function() -> None:
    _, sources = reference()
    commented = {
        name: replace(file, text=re.sub(r"^(    +)(if |return )", r"\1# why\n\1\2", file.text, flags=re.MULTILINE))
        for name, file in sources.items()
    }
    names = {m.name for m in plan_of(commented).mutants}
    assert names == {m.name for m in reference_plan().mutants}


def test_every_mutant_compiles_differs_and_keeps_the_rest() -> None:
    _, sources = reference()
    originals = {name: ast.dump(ast.parse(file.text)) for name, file in sources.items()}
    seen: dict[tuple[str, str], str] = {}
    for mutant in reference_plan().mutants:
        tree = ast.parse(mutant.source)
        assert ast.dump(tree) != originals[mutant.module], mutant.name
        compile(tree, mutant.path, "exec")
        assert seen.setdefault((mutant.path, mutant.source), mutant.name) == mutant.name
        changed = [line for line in mutant.diff.splitlines() if line.startswith(("+", "-"))]
        assert 3 <= len(changed) <= 20, mutant.name


def test_probes_are_lines_on_which_a_statement_starts() -> None:
    for mutant in reference_plan().mutants:
        starts = {node.lineno for node in ast.walk(ast.parse(mutant.source)) if isinstance(node, ast.stmt)}
        assert mutant.probes.triggered, mutant.name
        assert set(mutant.probes.triggered) <= starts, mutant.name
        assert set(mutant.probes.reached) <= starts, mutant.name
        if mutant.scope:
            assert mutant.probes.reached, mutant.name


def test_reached_stands_in_the_function_that_the_name_says() -> None:
    for mutant in reference_plan().mutants:
        for line in mutant.probes.reached:
            assert innermost_function(ast.parse(mutant.source), line) == mutant.scope, mutant.name


def innermost_function(tree: ast.AST, line: int, outer: str = "") -> str:
    for node in ast.iter_child_nodes(tree):
        name = f"{outer}.{node.name}" if outer and hasattr(node, "name") else getattr(node, "name", "")
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno <= line <= (node.end_lineno or 0):
            return innermost_function(node, line, name) or name
    return outer


# -- what is refused ------------------------------------------------------------------------------------------

TEXT = "import torch\n\n\ndef f(x):\n    y = x + 1\n    return y\n"


def site_of(edit: Edit) -> tuple[Mutation, Site]:
    module = ParsedModule(SourceFile("m", "m.py", TEXT))
    return MUTATIONS[0], Site(module, "f", "", module.scopes["f"], (edit,), "")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("x + 1", "x +", "does not compile"),
        ("x + 1", "(x + 1)", "does not differ"),
        ("x + 1", "x + one", "unbound names: one"),
        ("import torch", "import math", "unbound names: torch"),
    ],
)
def test_a_mutant_that_is_none_is_refused(old: str, new: str, problem: str) -> None:
    text = TEXT.replace("y = x", "y = torch.abs(x)") if "torch" in old else TEXT
    module = ParsedModule(SourceFile("m", "m.py", text))
    start = text.index(old)
    site = Site(module, "f", "", module.scopes["f"], (Edit(start, start + len(old), new),), "")
    with pytest.raises(BadMutantError, match=problem):
        build_mutant(MUTATIONS[0], site, ("k",), "name")


def test_names_that_a_mutation_brings_in_are_recorded() -> None:
    start = TEXT.index("x + 1")
    mutation, site = site_of(Edit(start, start + 5, "[part for part in x]"))
    assert build_mutant(mutation, site, ("k",), "name").new_names == ("part",)
