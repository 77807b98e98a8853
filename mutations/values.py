"""What an expression of a kernel is made of: the values of an abstract run.

A `Value` is a node of an expression graph. Its `labels` say from which of PEFT's own attributes, and of which
projection, the numbers in it come. Local names never matter.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import libcst as cst


@dataclass(frozen=True)
class Label:
    """One origin of a number: `kind` is X, W, bias, A, B, scaling, quant, dropout, mask, compute_dtype or dY."""

    kind: str
    sibling: str = ""


@dataclass(eq=False)
class Value:
    """One value of the abstract run; compared by identity."""

    kind: str
    node: cst.CSTNode | None = None
    args: tuple[Value, ...] = ()
    name: str = ""  # of the function, method or attribute that made it
    own: frozenset[Label] = frozenset()
    path: str = ""  # of an object: the child names from the patched module down
    attrs: dict[str, Value] = field(default_factory=dict)
    items: tuple[Value, ...] | None = None  # of a sequence: what is known of it, in order
    rest: Value | None = None  # of a sequence: all further elements as one
    const: Any = None
    scope: tuple[str, str] | None = None  # of a function or class: (module, dotted name)
    env: Any = None  # of a function: where its free names are found
    labels: frozenset[Label] = frozenset()

    def __post_init__(self) -> None:
        parts = [self.own, *(a.labels for a in self.args)]
        parts += [i.labels for i in self.items or ()]
        if self.rest is not None:
            parts.append(self.rest.labels)
        if self.kind == "instance":
            parts += [a.labels for a in self.attrs.values()]
        self.labels = frozenset().union(*parts)

    @cached_property
    def kinds(self) -> frozenset[str]:
        return frozenset(label.kind for label in self.labels)

    @cached_property
    def siblings(self) -> frozenset[str]:
        return frozenset(label.sibling for label in self.labels)

    def below(self) -> Iterator[Value]:
        """This value and everything it is made of, each once."""
        seen: set[int] = set()
        stack = [self]
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            yield value
            stack.extend(value.args)
            stack.extend(value.items or ())
            if value.rest is not None:
                stack.append(value.rest)
            if value.kind == "instance":
                stack.extend(value.attrs.values())


UNKNOWN = Value("unknown")
NONE = Value("none")


def resolve(value: Value) -> Value:
    """Look through the reading of a name."""
    while value.kind == "use":
        value = value.args[0]
    return value


TRANSPARENT = frozenset({"use", "cast", "move"})


def strip(value: Value) -> Value:
    """Look through names, casts, reshapes and transposes."""
    while True:
        if value.kind in TRANSPARENT and value.args:
            value = value.args[0]
        elif value.kind == "join":
            alternatives = {id(s): s for s in map(strip, value.args)}
            if len(alternatives) != 1:
                return value
            value = next(iter(alternatives.values()))
        else:
            return value


def alternatives(value: Value) -> Iterator[Value]:
    """The values that a join stands for, names looked through."""
    value = resolve(value)
    if value.kind == "join":
        for arg in value.args:
            yield from alternatives(arg)
    else:
        yield value


def join(values: Iterable[Value]) -> Value:
    """What a name may hold after branches meet. A known value wins over None, and over a row of Nones."""
    distinct: dict[int, Value] = {}
    empty: Value | None = None
    for value in values:
        if is_row_of_none(value):
            empty = value
        elif resolve(value).kind != "none":
            distinct[id(value)] = value
    if empty is not None and not distinct:
        return empty
    options = list(distinct.values())
    if not options:
        return NONE
    if len(options) == 1:
        return options[0]
    sequences = [resolve(o) for o in options]
    if all(s.kind == "seq" for s in sequences):
        return _join_sequences(sequences)
    if all(s.kind == "instance" and s.scope == sequences[0].scope for s in sequences):
        return _join_instances(sequences)
    return Value("join", args=tuple(options))


def is_row_of_none(value: Value) -> bool:
    """Whether a value is a sequence that holds nothing but None, and does hold some."""
    sequence = resolve(value)
    held = elements(sequence) if sequence.kind == "seq" else ()
    return bool(held) and all(resolve(element).kind == "none" for element in held)


def _join_sequences(sequences: list[Value]) -> Value:
    lengths = {len(s.items or ()) for s in sequences}
    rests = [s.rest for s in sequences if s.rest is not None]
    if len(lengths) == 1:
        columns = zip(*(s.items or () for s in sequences), strict=True)
        return Value("seq", items=tuple(join(c) for c in columns), rest=join(rests) if rests else None)
    if all(_agree(one, other) for one in sequences for other in sequences):
        return _fullest(sequences)
    parts = [i for s in sequences for i in s.items or ()]
    return Value("seq", items=(), rest=join([*parts, *rests]))


def _agree(one: Value, other: Value) -> bool:
    """Whether what both hold at a place is the same."""
    pairs = zip(one.items or (), other.items or (), strict=False)
    return all(strip(left) is strip(right) for left, right in pairs)


def _fullest(sequences: list[Value]) -> Value:
    """Sequences of which some branches hold more: the fullest case says what stands where, up to the first rest."""
    known = min((len(s.items or ()) for s in sequences if s.rest is not None), default=None)
    longest = max(sequences, key=lambda s: len(s.items or ()))
    items = longest.items or ()
    beyond = [i for s in sequences for i in (s.items or ())[known:]] if known is not None else []
    beyond += [s.rest for s in sequences if s.rest is not None]
    return Value("seq", items=items[:known], rest=join(beyond) if beyond else None)


def _join_instances(instances: list[Value]) -> Value:
    """Instances of one class: what each field may hold."""
    first = instances[0]
    names = dict.fromkeys(name for instance in instances for name in instance.attrs)
    attrs = {name: join(i.attrs[name] for i in instances if name in i.attrs) for name in names}
    return Value("instance", first.node, attrs=attrs, name=first.name, scope=first.scope)


def known_items(value: Value) -> tuple[Value, ...] | None:
    """The elements of a sequence that is known whole, in order."""
    sequence = resolve(value)
    if sequence.kind == "instance":  # a named tuple
        return tuple(sequence.attrs.values())
    if sequence.kind == "const" and isinstance(sequence.const, str):
        return elements(sequence)
    return sequence.items or () if sequence.kind == "seq" and sequence.rest is None else None


def entries(value: Value) -> dict[Any, Value]:
    """What a dict is known to hold, by key."""
    if value.kind != "dict":
        return {}
    return {literal_eval(key[1:-1]): held for key, held in value.attrs.items() if key.startswith("[")}


def elements(value: Value) -> tuple[Value, ...]:
    """What iterating over a value may give: known elements, then the rest as one."""
    value = resolve(value)
    if value.kind == "const" and isinstance(value.const, str):
        return tuple(Value("const", const=letter) for letter in value.const)
    if entries(value):
        return tuple(Value("const", const=key) for key in entries(value))
    if value.kind == "seq":
        return (*(value.items or ()), *((value.rest,) if value.rest is not None else ()))
    if value.kind == "instance":  # a named tuple
        return tuple(value.attrs.values())
    if value.kind == "join":
        found = [e for a in value.args for e in elements(a)]
        return (join(found),) if found else ()
    return (Value("move", args=(value,)),)
