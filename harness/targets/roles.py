"""Every role of a target's kernels stands for something: a scope of its module, or the error that names the nearest."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping

from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.source import SourceFile

FUNCTION, CLASS = "function", "class"
_ALIKE = 0.5  # of difflib's ratio
_OWN = ("forward", "backward")  # what a Function must define itself: mutations begin there

Scopes = Mapping[str, str]  # of one module: dotted name to FUNCTION or CLASS


def check_roles(target: Target, sources: Mapping[str, SourceFile]) -> None:
    """Raises TargetError for the first role that names no function or class, with the nearest that it could mean."""
    known: dict[str, Scopes] = {}
    for index, kernel in enumerate(target.kernels):
        for key, scope, kind in _roles(kernel):
            module, _, inner = scope.partition(":")
            if module not in sources:
                continue  # an owner of another library; every other role was checked when the file was read
            if module not in known:
                known[module] = scopes_of(sources[module].text)
            problem = _problem(known[module], module, inner, kind)
            if problem:
                raise TargetError(target.file, problem, key=f"kernel[{index}].{key} of {kernel.name!r}")


def modules_of(kernel: KernelRoles) -> set[str]:
    """The modules that a kernel's roles lie in."""
    return {scope.partition(":")[0] for _, scope, _ in _roles(kernel)}


def scopes_of(text: str) -> dict[str, str]:
    """Every function and class of a module by its dotted name."""
    return dict(_scopes(ast.parse(text), ""))


def _scopes(tree: ast.AST, outer: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(tree):
        inner = outer
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{outer}.{child.name}" if outer else child.name
            yield inner, CLASS if isinstance(child, ast.ClassDef) else FUNCTION
        yield from _scopes(child, inner)


def _roles(kernel: KernelRoles) -> Iterator[tuple[str, str, str]]:
    """(key, scope, FUNCTION or CLASS) of everything that a kernel's table names."""
    yield "function", kernel.function, CLASS
    for name in _OWN:
        yield "function", f"{kernel.function}.{name}", FUNCTION
    for key in ("entries", "guards", "helpers"):
        yield from ((key, scope, FUNCTION) for scope in getattr(kernel, key))
    for key in ("patcher", "unpatcher"):
        if getattr(kernel, key):
            yield key, getattr(kernel, key), FUNCTION
    yield from (("owner", scope, CLASS) for scope in kernel.owner)


def _problem(scopes: Scopes, module: str, inner: str, kind: str) -> str:
    """What is wrong with a scope, with what it could mean instead; empty if nothing is."""
    found = scopes.get(inner)
    if found == kind:
        return ""
    if found is not None:
        return f"{module}:{inner} is a {found}, a {kind} was expected"
    outer, _, last = inner.rpartition(".")
    if outer in scopes and last in _OWN and scopes[outer] == CLASS and kind == FUNCTION:
        return f"{module}:{outer} defines no {last} of its own"
    return f"{module} has no {inner}; {_nearest(scopes, inner, kind)}"


def _nearest(scopes: Scopes, inner: str, kind: str) -> str:
    """The likeliest scopes of the kind: by the whole dotted name, or by its last part."""
    names = [name for name, found in scopes.items() if found == kind]
    if not names:
        return f"it has no {kind}"
    alike = {name: max(_likeness(inner, name), _likeness(_last(inner), _last(name))) for name in names}
    near = sorted((name for name in names if alike[name] >= _ALIKE), key=lambda name: -alike[name])
    if near:
        return f"nearest: {', '.join(near[:3])}"
    plural = "classes" if kind == CLASS else "functions"
    return f"its {plural}: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}"


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _last(scope: str) -> str:
    return scope.rpartition(".")[2]
