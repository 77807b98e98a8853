"""How a patcher is called: what its parameters mean, by their names. Text and signatures in, plain data out."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from typing import Any

MODEL, BLOCK, CLASS = "model", "block", "cls"
CONFIG, LORA_CONFIG, ADAPTER = "config", "lora_config", "adapter_name"
ROLES = (MODEL, BLOCK, CLASS, CONFIG, LORA_CONFIG, ADAPTER)
"""What a call can be given: the model that PEFT wrapped, the block in it that the kernel is for, the block's class,
the model's config, PEFT's config, and the adapter's name."""

_NAMES = {
    MODEL: {"model", "peft_model", "base_model", "lora_model", "net", "network", "root"},
    BLOCK: {"block", "module", "layer", "mlp", "attn", "attention", "self_attn", "linear", "proj", "projection"},
    CLASS: {"cls", "klass", "module_class", "layer_class", "block_class", "module_cls", "layer_cls"},
    CONFIG: {"config", "cfg", "model_config"},
    LORA_CONFIG: {"lora_config", "peft_config"},
    ADAPTER: {"adapter", "adapter_name", "active_adapter"},
}
_VALUES = {"enabled": True, "enable": True, "verbose": False, "quiet": True, "layer_idx": 0, "layer_index": 0}


@dataclass(frozen=True)
class Given:
    """One argument: a role of ROLES, or a literal value."""

    role: str = ""
    value: Any = None


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    positional: tuple[Given, ...] = ()
    named: tuple[tuple[str, Given], ...] = ()

    def __str__(self) -> str:
        told = [_told(given) for given in self.positional] + [f"{name}={_told(g)}" for name, g in self.named]
        return f"({', '.join(told)})"


class UnclearCallError(ValueError):
    """A call that can't be worked out; the text says which part."""


def _told(given: Given) -> str:
    return given.role or repr(given.value)


def role_of(name: str) -> str | None:
    """What a parameter of this name stands for; None where the name doesn't say."""
    return next((role for role, names in _NAMES.items() if name.lower().lstrip("_") in names), None)


def calls_of(function: Any) -> tuple[Call, ...]:
    """The calls to try on a function, likeliest first. Raises UnclearCallError."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UnclearCallError(f"its signature cannot be read: {error}") from error
    return calls_from(signature)


def calls_from(signature: inspect.Signature) -> tuple[Call, ...]:
    """The calls to try, likeliest first, from a function's signature.

    What a call is on is its first parameter: a model, unless the name says block or class. Raises UnclearCallError
    for a further parameter that must be given and whose name doesn't say what.
    """
    parameters = list(signature.parameters.values())
    first = next((p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), None)
    on = _subjects(first)
    rest = [p for p in parameters if p is not first or not on]
    needed = [p for p in rest if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    positional = tuple(_given(p) for p in needed if p.kind is not p.KEYWORD_ONLY)
    named = tuple((p.name, _given(p)) for p in needed if p.kind is p.KEYWORD_ONLY)
    return tuple(Call((*((Given(role),) if role else ()), *positional), named) for role in on or ("",))


def _subjects(first: inspect.Parameter | None) -> tuple[str, ...]:
    """What the first parameter may be, likeliest first; nothing where there is none, or it may be left out."""
    if first is None:
        return ()
    role = role_of(first.name)
    if role == CLASS:
        return (CLASS,)
    if role == BLOCK:
        return (BLOCK, MODEL)
    if role == MODEL or first.default is first.empty:
        return (MODEL, BLOCK)
    return ()


def _given(parameter: inspect.Parameter) -> Given:
    role = role_of(parameter.name)
    if role is not None:
        return Given(role)
    if parameter.name in _VALUES:
        return Given(value=_VALUES[parameter.name])
    raise UnclearCallError(
        f"it needs an argument {parameter.name!r}, and its name does not say what; "
        f"write the call as the target's patch-call, with {', '.join(ROLES)} or literals"
    )


def parsed(text: str) -> Call:
    """A call as the target file writes it: `patch(model, config, rank=8)`. The function's name is not looked at.

    Raises UnclearCallError for anything but one call of names in ROLES and literals.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise UnclearCallError(f"found {text!r}, which is no call") from error
    if not isinstance(node, ast.Call):
        raise UnclearCallError(f"found {text!r}, which is no call")
    if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
        raise UnclearCallError(f"found {text!r}, with * or **")
    return Call(
        tuple(_argument(arg) for arg in node.args),
        tuple((str(keyword.arg), _argument(keyword.value)) for keyword in node.keywords),
    )


def _argument(node: ast.expr) -> Given:
    if isinstance(node, ast.Name):
        if node.id not in ROLES:
            raise UnclearCallError(f"found the name {node.id}; names are {', '.join(ROLES)}")
        return Given(node.id)
    try:
        return Given(value=ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError) as error:
        raise UnclearCallError(f"found {ast.unparse(node)}; arguments are {', '.join(ROLES)} or literals") from error
