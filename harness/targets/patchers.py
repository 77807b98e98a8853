"""How a patcher is called, read from its source: what `init` writes where a name alone does not say it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import libcst as cst

from fastlora_verify.harness.child.patch_call import MODEL, Call, Given, UnclearCallError, calls_from

PLAIN = Call((Given(MODEL),))
_DEFAULT = object()


def patch_call(patcher: cst.FunctionDef) -> tuple[str, str]:
    """(call, doubt): the call to write down, empty where it is `patch(model)`; and what is not clear about it."""
    try:
        first, *others = calls_from(signature(patcher))
    except UnclearCallError as error:
        return "", f"patch-call: {error}"
    alone = len(first.positional) == 1 and not first.named
    if alone and (first == PLAIN or others):  # whether it wants the model or a block, the sample model will tell
        return "", ""
    return f"{patcher.name.value}{first}", ""


def signature(function: cst.FunctionDef) -> inspect.Signature:
    """A function's signature; a default is only known to be there."""
    return inspect.Signature(list(_parameters(function.params)))


def _parameters(params: cst.Parameters) -> Iterator[inspect.Parameter]:
    for group, kind in (
        (params.posonly_params, inspect.Parameter.POSITIONAL_ONLY),
        (params.params, inspect.Parameter.POSITIONAL_OR_KEYWORD),
    ):
        yield from (_parameter(param, kind) for param in group)
    if isinstance(params.star_arg, cst.Param):
        yield _parameter(params.star_arg, inspect.Parameter.VAR_POSITIONAL)
    yield from (_parameter(param, inspect.Parameter.KEYWORD_ONLY) for param in params.kwonly_params)
    if params.star_kwarg is not None:
        yield _parameter(params.star_kwarg, inspect.Parameter.VAR_KEYWORD)


def _parameter(param: cst.Param, kind: inspect._ParameterKind) -> inspect.Parameter:
    default = _DEFAULT if param.default is not None else inspect.Parameter.empty
    return inspect.Parameter(param.name.value, kind, default=default)
