"""What runs around a test: fixtures, set-up methods; and what its parametrisation gives it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fastlora_verify.harness.suite_diff.frame import Frame
from fastlora_verify.harness.suite_diff.sources import FUNCTIONS, Function, Module, Place, Sources
from fastlora_verify.harness.suite_diff.tables import columns, rows
from fastlora_verify.harness.suite_diff.values import resolve

_SET_UP = ("setUpClass", "setUp", "tearDown", "tearDownClass", "setup_class", "setup_method", "teardown_method")


def is_fixture(node: Function) -> bool:
    names = (ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list)
    return any(name.rpartition(".")[2] == "fixture" for name in names)


def fixtures_of(sources: Sources, place: Place, owner: tuple[Module, str] | None) -> list[Place]:
    """The fixtures and set-up methods that run around a test, each once."""
    found: dict[tuple[str, str], Place] = {}
    for name in _SET_UP if owner is not None else ():
        method = sources.method(*owner, name) if owner is not None else None
        if method is not None:
            found[method.key] = method
    modules = [place.module, *sources.conftests(place.module.path)]
    waiting = [*_requested(place.node), *_automatic(modules)]
    while waiting:
        name = waiting.pop(0)
        fixture = _fixture(sources, modules, owner, name)
        if fixture is not None and fixture.key not in found and fixture.key != place.key:
            found[fixture.key] = fixture
            waiting += _requested(fixture.node)
    return list(found.values())


def _fixture(sources: Sources, modules: Sequence[Module], owner: tuple[Module, str] | None, name: str) -> Place | None:
    inner = sources.method(*owner, name) if owner is not None else None
    places = [inner, *(sources.function(module, name) for module in modules)]
    return next((place for place in places if place is not None and is_fixture(place.node)), None)


def _requested(node: Function) -> list[str]:
    used = [
        argument.value
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("usefixtures")
        for argument in decorator.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)] + used


def _automatic(modules: Sequence[Module]) -> list[str]:
    nodes = (node for module in modules for node in module.tree.body if isinstance(node, FUNCTIONS))
    return [node.name for node in nodes if any("autouse=True" in ast.unparse(d) for d in node.decorator_list)]


def parametrised(place: Place, sources: Sources, owner: tuple[Module, str] | None) -> dict[str, ast.expr]:
    """Parameters whose values are numbers row by row, from the `parametrize` marks of the test and of its class."""
    frame = Frame(sources, place.module, owner)
    around = owner[0].scopes.get(owner[1]) if owner is not None else None
    decorators = [*place.node.decorator_list, *(around.decorator_list if around is not None else ())]
    found: dict[str, ast.expr] = {}
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
            found.update(_columns(decorator, frame))
    return found


def _columns(decorator: ast.Call, frame: Frame) -> dict[str, ast.expr]:
    given = {keyword.arg: keyword.value for keyword in decorator.keywords}
    words = [*decorator.args, *(given[key] for key in ("argnames", "argvalues") if key in given)]
    if len(words) < 2:
        return {}
    names = _argument_names(words[0])
    cells = rows(words[1], frame, len(names)) if names else []
    return columns(names, [[resolve(cell, frame) for cell in row] for row in cells])


def _argument_names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [name.strip() for name in node.value.split(",") if name.strip()]
    if isinstance(node, ast.Tuple | ast.List):
        return [cell.value for cell in node.elts if isinstance(cell, ast.Constant) and isinstance(cell.value, str)]
    return []
