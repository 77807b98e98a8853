"""What the command line says of edits, reverts and mutations from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastlora_verify.harness.editing.edits import Edits
from fastlora_verify.harness.editing.plugins import Offered, offered
from fastlora_verify.harness.errors import NothingToRun, UsageError
from fastlora_verify.harness.selection import Selection, is_reserved

_VALUES = {"--insert": 1, "--replace": 2}  # words behind the option, before its --at
_NAMED = 40  # signs of an edit in a message


def paired(argv: Sequence[str]) -> list[str]:
    """`--insert CODE … --at SCOPE` as one value, JSON of both; so with --replace OLD NEW; `--reverts` alone gets "".

    An edit goes where the next --at says; several before one --at share it. Raises UsageError where one has no --at.
    Which --at belongs to which edit is their order's to say, and the command line's parser tells no order.
    """
    words: list[str] = []
    waiting: list[list[str]] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if word == "--":
            words += [word, *rest]
            break
        if option in _VALUES:
            count = _VALUES[option]
            values = ([value] if equals else []) + rest[: count - bool(equals)]
            del rest[: count - bool(equals)]
            waiting.append([option, *values])
        elif option == "--at":
            scope = value if equals else rest.pop(0) if rest else ""
            words += _placed(waiting, scope)
            waiting = []
        elif word == "--reverts" and (not rest or rest[0].startswith("-")):
            words += [word, ""]
        else:
            words.append(word)
    for option, *values in waiting:
        raise UsageError(f"{option} {_short(values)} goes nowhere; put --at package.module:outer.inner behind it")
    return words


def _placed(waiting: Sequence[Sequence[str]], scope: str) -> list[str]:
    if not waiting:
        raise UsageError(f"--at {scope} stands for no edit; it belongs behind an --insert CODE or a --replace OLD NEW")
    for option, *values in waiting:
        if len(values) < _VALUES[option]:
            raise UsageError(f"{option} {_short(values)} lacks a value; give {option} {_usage(option)} --at SCOPE")
    return [word for option, *values in waiting for word in (option, json.dumps([*values, scope]))]


def _usage(option: str) -> str:
    return "CODE" if option == "--insert" else "OLD NEW"


def _short(values: Sequence[str]) -> str:
    flat = " ".join(" ".join(values).split())
    return repr(flat if len(flat) <= _NAMED else f"{flat[:_NAMED]}…")


@dataclass(frozen=True)
class Asked:
    """Edits, reverts and mutations of a command line."""

    edits: Edits = field(default_factory=Edits)
    reverts: str | None = None
    files: tuple[Path, ...] = ()  # of mutations


def asked(
    insert: list[str] | None = None,
    replace: list[str] | None = None,
    patch: list[Path] | None = None,
    reverts: str | None = None,
    mutations: list[Path] | None = None,
    against: str | None = None,
) -> Asked:
    """The options as data, edits as `paired` gives them. Raises UsageError for `--reverts` without a revision."""
    if reverts == "":
        if against is None:
            raise UsageError("--reverts names no revision; give --reverts REV, or --against REV beside it")
        reverts = against
    inserts = [(code, scope) for code, scope in map(json.loads, insert or ())]
    replaces = [(old, new, scope) for old, new, scope in map(json.loads, replace or ())]
    edits = Edits(tuple(inserts), tuple(replaces), tuple(patch or ()))
    return Asked(edits, reverts, tuple(mutations or ()))


def selection(
    names: Sequence[str], kernels: Sequence[str], families: Sequence[str], asked: Asked, *, everything: bool
) -> Selection:
    """What to run. Raises NothingToRun if nothing was named; FileError for a file that offers no mutations.

    A file of mutations alone means those that it offers.
    """
    elsewhere: Offered = offered(asked.files)
    from_catalogue = everything or any(not is_reserved(name) for name in names) or bool(kernels or families)
    own = bool(asked.edits) or asked.reverts is not None
    chosen = tuple(names)
    if asked.files and not from_catalogue:
        chosen += tuple(m.id for m in elsewhere.mutations if m.origin in map(str, asked.files))
        from_catalogue = True
    if not (from_catalogue or own or names):
        raise NothingToRun("nothing to run: name mutations, or give --all, --kernel or --family, or an edit")
    return Selection(
        names=chosen,
        kernels=tuple(kernels),
        families=tuple(families),
        edits=asked.edits,
        reverts=asked.reverts,
        offered=elsewhere,
        catalogue=from_catalogue,
    )
