"""What a patcher did to a model: which forwards are others than before, on modules and on their classes.

A forward that is assigned to a class would be on every later model as well, the unpatched ones that a kernel is
compared with among them. It is moved to the modules of the one model, and the class gets its own back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

_ABSENT = object()


@dataclass
class Before:
    """A model's make-up before a patcher was called on it."""

    model: nn.Module
    forwards: dict[int, Any] = field(default_factory=dict)  # by id of a module: its instance forward
    children: dict[int, list[int]] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    classes: dict[type, Any] = field(default_factory=dict)  # each class's own forward


def look(model: nn.Module) -> Before:
    """The make-up of a model now."""
    before = Before(model, parameters=[name for name, _ in model.named_parameters()])
    for module in model.modules():
        before.forwards[id(module)] = vars(module).get("forward", _ABSENT)
        before.children[id(module)] = [id(child) for child in module.children()]
        for cls in classes_of(module):
            before.classes.setdefault(cls, vars(cls).get("forward", _ABSENT))
    return before


def classes_of(module: nn.Module) -> Iterator[type]:
    """The classes whose forward a module may run."""
    yield from (cls for cls in type(module).__mro__ if issubclass(cls, nn.Module) and cls is not nn.Module)


def changes(before: Before, known: dict[type, Any]) -> int:
    """How many modules have another forward than before, or other children.

    Forwards that were assigned to classes are moved to the modules and put into `known`. Where a patcher
    remembers that it has patched a class and does nothing, the forward that it gave the class then is taken.
    """
    changed = {cls: vars(cls).get("forward") for cls, own in before.classes.items() if differs(cls, own)}
    for cls in changed:
        restore(cls, before.classes[cls])
    known.update({cls: forward for cls, forward in changed.items() if forward is not None})
    count = 0
    for module in before.model.modules():
        if id(module) not in before.forwards:
            continue
        own = vars(module).get("forward", _ABSENT) is before.forwards[id(module)]
        if own and before.children[id(module)] == [id(child) for child in module.children()]:
            count += moved(module, known)
        else:
            count += 1
    return count


def differs(cls: type, own: Any) -> bool:
    """Whether a class has another forward than it had."""
    return vars(cls).get("forward", _ABSENT) is not own


def restore(cls: Any, own: Any) -> None:
    """A class with its own forward again."""
    if own is _ABSENT:
        del cls.forward
    else:
        cls.forward = own


def moved(module: nn.Module, known: dict[type, Any]) -> bool:
    """Gives a module the forward that a patcher gave its class."""
    for cls in classes_of(module):
        if cls in known:
            vars(module)["forward"] = known[cls].__get__(module)
            return True
        if "forward" in vars(cls):
            return False
    return False


def renamed(before: Before) -> list[str]:
    """Parameters that the model has under other names than before."""
    return sorted(set(before.parameters) ^ {name for name, _ in before.model.named_parameters()})
