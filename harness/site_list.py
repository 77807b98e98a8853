"""The sites of a target in words: every mutant and every empty cell, with file, line and gist. Data in, text out."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from fastlora_verify.harness.catalogue import reason
from fastlora_verify.harness.loading import Loaded
from fastlora_verify.mutations.base import KernelRoles, Mutant, NoSite
from fastlora_verify.mutations.source import SourceFile
from fastlora_verify.reports.escape import code, gist, one_line, prose
from fastlora_verify.reports.names import counted
from fastlora_verify.reports.tables import table as markdown_table

GIST = 110  # characters; the whole edit is what `diff NAME` is for
SITE_HEADERS = ("mutation", "kernel", "where", "edit")
NO_SITE_HEADERS = ("no site of", "in", "where", "because")

Rows = Sequence[Sequence[str]]


def site_list(loaded: Loaded, how: str) -> str:
    """Sites and no-sites of the kernels that were asked for, as "table", "json" or "markdown"."""
    if how == "json":
        return json.dumps(_data(loaded), indent=1, ensure_ascii=False)
    is_markdown = how == "markdown"
    kernels = {kernel.name: kernel for kernel in loaded.target.kernels}
    sites = [(_markdown_site if is_markdown else _plain_site)(mutant) for mutant in loaded.mutants]
    row = _markdown_no_site if is_markdown else _plain_no_site
    empty = [row(no, _where(loaded, kernels[no.kernel])) for no in loaded.no_sites]
    tables = _markdown_table if is_markdown else _plain_table
    parts = [_summary(loaded), tables(SITE_HEADERS, sites) if sites else "", tables(NO_SITE_HEADERS, empty)]
    return "\n\n".join(part for part in parts if part)


def _summary(loaded: Loaded) -> str:
    mutants, cells = len(loaded.mutants), len(loaded.no_sites)
    return f"{counted(mutants, 'site')}, {counted(cells, 'empty cell')} of mutation and kernel"


# -- rows -------------------------------------------------------------------------------------------------


def _plain_site(mutant: Mutant) -> tuple[str, ...]:
    where = f"{mutant.path}:{mutant.line}"
    return mutant.mutation, ", ".join(mutant.kernels) or "instruments", where, one_line(mutant.gist, GIST)


def _plain_no_site(no: NoSite, where: str) -> tuple[str, ...]:
    return no.mutation, no.kernel, where, one_line(no.reason, GIST)


def _markdown_site(mutant: Mutant) -> tuple[str, ...]:
    kernels = prose(", ".join(mutant.kernels) or "instruments", 80)
    return code(mutant.mutation), kernels, code(f"{mutant.path}:{mutant.line}"), gist(mutant.gist, GIST)


def _markdown_no_site(no: NoSite, where: str) -> tuple[str, ...]:
    return code(no.mutation), prose(no.kernel, 80), code(where), reason(no.reason)


def _where(loaded: Loaded, kernel: KernelRoles) -> str:
    """The kernel's Function, as file and line."""
    module, _, scope = kernel.function.partition(":")
    return f"{loaded.sources[module].path}:{_line(loaded.sources[module], scope)}"


def _line(file: SourceFile, scope: str) -> int:
    place: ast.AST = ast.parse(file.text)
    for name in scope.split("."):
        inner = (n for n in ast.walk(place) if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name)
        place = next(inner, place)
    return getattr(place, "lineno", 1)


# -- tables and data --------------------------------------------------------------------------------------


def _markdown_table(headers: Sequence[str], rows: Rows) -> str:
    return markdown_table(headers, rows)


def _plain_table(headers: Sequence[str], rows: Rows) -> str:
    return tabulate(rows, headers, tablefmt="simple", disable_numparse=True)


def _data(loaded: Loaded) -> dict[str, Any]:
    kernels = {kernel.name: kernel for kernel in loaded.target.kernels}
    return {
        "target": loaded.target.name,
        "kernels": [_kernel(loaded, kernel) for kernel in loaded.target.kernels],
        "sites": [_site(mutant) for mutant in loaded.mutants],
        "no_sites": [{**vars(no), **_at(_where(loaded, kernels[no.kernel]))} for no in loaded.no_sites],
        "faults": list(loaded.plan.faults),
    }


def _kernel(loaded: Loaded, kernel: KernelRoles) -> dict[str, Any]:
    roles = {"name": kernel.name, "kind": kernel.kind, "function": kernel.function, "entries": list(kernel.entries)}
    return {**roles, "owner": list(kernel.owner), **_at(_where(loaded, kernel))}


def _site(mutant: Mutant) -> dict[str, Any]:
    names = ("name", "mutation", "family", "scope", "gist", "diff")
    found = {name: getattr(mutant, name) for name in names}
    return {**found, "kernels": list(mutant.kernels), "file": mutant.path, "line": mutant.line}


def _at(where: str) -> dict[str, Any]:
    path, _, line = where.rpartition(":")
    return {"file": path, "line": int(line)}
