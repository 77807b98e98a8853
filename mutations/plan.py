"""Mutations x kernels to mutants, each once, named by content."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import libcst as cst

from fastlora_verify.mutations.base import KernelRoles, Mutant, Mutation, NoSite, Site
from fastlora_verify.mutations.build import BadMutantError, build_mutant, digest
from fastlora_verify.mutations.instrument_view import InstrumentView
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.registry import MUTATIONS
from fastlora_verify.mutations.source import ParsedModule, SourceFile, TargetSource


@dataclass(frozen=True)
class Plan:
    """All mutants of a target, and every empty cell of mutation x kernel with its reason."""

    mutants: tuple[Mutant, ...]
    no_sites: tuple[NoSite, ...]
    faults: tuple[str, ...]  # mutations that made something that is no mutant: told, never run
    faults_elsewhere: tuple[str, ...] = ()  # the same of mutations that are none of the catalogue's


Found = dict[tuple[str, str, tuple[object, ...]], tuple[Mutation, Site, list[str]]]


def plan_mutants(
    sources: Mapping[str, SourceFile],
    kernels: Sequence[KernelRoles],
    instruments: Sequence[str] = (),
    mutations: Sequence[Mutation] | None = None,
) -> Plan:
    """Find every site of every mutation. Raises `LookupError` where a role names a scope that isn't there."""
    with _collector_paused():
        source = TargetSource(sources)
        views = [KernelView(source, roles) for roles in kernels]
        return plan_views(views, InstrumentView([source.modules[name] for name in instruments]), mutations)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No search for garbage meanwhile: it took a fifth of the time, and nearly all that a plan makes lives as long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def plan_views(
    views: Sequence[KernelView], instruments: InstrumentView, mutations: Sequence[Mutation] | None = None
) -> Plan:
    """The same for kernels that were looked at already."""
    found: Found = {}
    no_sites: list[NoSite] = []
    broken: list[str] = []
    for mutation in MUTATIONS if mutations is None else mutations:
        if mutation.family == "instruments":
            for site in _sites(mutation, instruments, broken):
                found.setdefault(_key(mutation, site), (mutation, site, []))
            continue
        for view in views:
            reason = "" if view.roles.kind in mutation.kinds else f"not for kernels of kind {view.roles.kind}"
            known = len(broken)
            sites = [] if reason else _sites(mutation, view, broken)
            reason = reason or ("the mutation is broken, see its fault" if len(broken) > known else "")
            for site in sites:
                found.setdefault(_key(mutation, site), (mutation, site, []))[2].append(view.roles.name)
            if not sites:
                no_sites.append(NoSite(mutation.id, view.roles.name, reason or mutation.absent))
    mutants, twins, faults = _build(list(found.values()))
    elsewhere = [text for mutation, text in faults if mutation.origin]
    ours = [text for mutation, text in faults if not mutation.origin]
    no_sites += _left_empty(mutants, twins)
    return Plan(tuple(mutants), tuple(no_sites), tuple(ours), tuple(dict.fromkeys([*broken, *elsewhere])))


def _sites(mutation: Mutation, view: KernelView | InstrumentView, broken: list[str]) -> list[Site]:
    """A mutation's sites. One that is none of the catalogue's may raise, or yield what is no site: told in `broken`."""
    if not mutation.origin:
        return list(mutation.find(view))  # type: ignore[arg-type]
    try:
        sites = list(mutation.find(view))  # type: ignore[arg-type]
        for site in sites:
            _check_site(site)
    except (Exception, SystemExit) as error:
        broken.append(f"{mutation.id} of {mutation.origin}: {type(error).__name__}: {error}")
        return []
    return sites


def _check_site(site: object) -> None:
    """Raises TypeError or ValueError for what can't be edited."""
    if not isinstance(site, Site) or not isinstance(site.module, ParsedModule) or not site.edits:
        raise TypeError(f"find yields {site!r}, which is no Site with edits")
    if not all(isinstance(text, str) for text in (site.scope, site.what, site.gist)):
        raise TypeError("scope, what and gist of a Site are texts")
    if not site.module.holds(site.node):
        raise ValueError(f"the node of a Site is none of {site.module.name}")
    size = len(site.module.file.text.encode())
    if not all(0 <= edit.start <= edit.end <= size for edit in site.edits):
        raise ValueError(f"an edit lies outside of {site.module.name}")
    site.module.apply(site.edits)


def _key(mutation: Mutation, site: Site) -> tuple[str, str, tuple[object, ...]]:
    return mutation.id, site.module.name, site.edits


def _build(
    found: list[tuple[Mutation, Site, list[str]]],
) -> tuple[list[Mutant], list[tuple[Mutant, str]], list[tuple[Mutation, str]]]:
    """(mutants, mutants whose text another has too with that one's name, what is no mutant)."""
    names = unique_names([(mutation, site) for mutation, site, _ in found])
    mutants: list[Mutant] = []
    twins: list[tuple[Mutant, str]] = []
    faults: list[tuple[Mutation, str]] = []
    by_source: dict[tuple[str, str], str] = {}
    for (mutation, site, kernels), name in zip(found, names, strict=True):
        try:
            mutant = build_mutant(mutation, site, tuple(dict.fromkeys(kernels)), name)
        except BadMutantError as error:
            where = f" (of {mutation.origin})" if mutation.origin else ""
            faults.append((mutation, f"{error}{where}"))
            continue
        # Two ways to the same text are one mutant: that of the mutation listed first.
        first = by_source.setdefault((mutant.path, mutant.source), name)
        if first == name:
            mutants.append(mutant)
        else:
            twins.append((mutant, first))
    return mutants, twins, faults


def _left_empty(mutants: Sequence[Mutant], twins: Sequence[tuple[Mutant, str]]) -> Iterator[NoSite]:
    """Cells whose every mutant is another mutation's, too."""
    cells = {(mutant.mutation, kernel) for mutant in mutants for kernel in mutant.kernels}
    for mutant, first in twins:
        for kernel in mutant.kernels:
            if (mutant.mutation, kernel) not in cells:
                cells.add((mutant.mutation, kernel))
                yield NoSite(mutant.mutation, kernel, f"the same edit as {first}")


def unique_names(sites: Sequence[tuple[Mutation, Site]]) -> list[str]:
    """`mutation@module:scope[what]`; where two would be the same, a digest of the code around each tells them apart."""
    names = [_name(mutation, site, site.what) for mutation, site in sites]
    for mark in (_surroundings, _function_before):
        count = Counter(names)
        names = [
            _name(mutation, site, f"{site.what}~{digest(mark(site))}".lstrip("~")) if count[name] > 1 else name
            for (mutation, site), name in zip(sites, names, strict=True)
        ]
    return names


def _name(mutation: Mutation, site: Site, what: str) -> str:
    scope = f"{site.module.name}:{site.scope}" if site.scope else site.module.name
    return f"{mutation.id}@{scope}[{what}]" if what else f"{mutation.id}@{scope}"


def _function_before(site: Site) -> str:
    """Everything that a function says up to the site's edits: no two of its places have that in common."""
    module, outer = site.module, site.module.scopes.get(site.scope)
    start = module.span(outer)[0] if outer is not None else 0
    edits = sorted(site.edits, key=lambda edit: edit.start)
    return f"{module.text_between(start, edits[0].start)}|{[(e.end - e.start, e.text) for e in edits]}"


def _surroundings(site: Site) -> str:
    """The site's statement, what stands before it in its block and around it, and the edited text itself."""
    module = site.module
    statement = module.statement(site.node)
    block = module.parent(statement)
    before = ""
    if isinstance(block, cst.IndentedBlock | cst.Module):
        index = list(block.body).index(statement)
        before = module.code(block.body[index - 1]) if index else ""
    outer = next((a for a in module.ancestors(statement) if isinstance(a, cst.BaseCompoundStatement)), None)
    around = module.code(outer) if outer is not None and not isinstance(outer, cst.FunctionDef) else ""
    texts = "|".join(edit.text for edit in site.edits)
    return f"{around}|{before}|{module.code(statement)}|{module.code(site.node)}|{texts}"
