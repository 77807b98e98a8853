"""Mutations from elsewhere: a file of the user's, and installed packages that offer some.

Either has `MUTATIONS`, a sequence of `mutations.base.Mutation`, as the modules of the catalogue do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from fastlora_verify.harness.errors import FileError
from fastlora_verify.mutations.base import Mutation
from fastlora_verify.mutations.registry import MUTATIONS

GROUP = "fastlora_verify.mutations"
PACKAGE = "the package "
RESERVED = ("insert", "replace", "patch", "reverts")  # what edits of the command line are called


@dataclass(frozen=True)
class Offered:
    """Mutations from elsewhere, and what was wrong with some of those who offer them."""

    mutations: tuple[Mutation, ...] = ()
    faults: tuple[str, ...] = ()


class _WrongError(Exception):
    """What is offered is no sequence of mutations."""


def offered(files: Sequence[Path] = ()) -> Offered:
    """What installed packages and these files offer.

    Raises FileError for a file: it was asked for. A package that is broken is a fault, and stops nothing.
    """
    found: list[Mutation] = []
    faults: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        origin = _origin(point)
        try:
            found += _checked(point.load(), origin, found)
        except (Exception, SystemExit) as error:
            faults.append(f"{origin}: {_said(error)}")
    for path in files:
        try:
            found += _checked(_module(path), str(path), found)
        except OSError as error:
            raise FileError(path, f"cannot be read: {error.strerror}") from error
        except (Exception, SystemExit) as error:
            raise FileError(path, f"offers no mutations: {_said(error)}") from error
    return Offered(tuple(found), tuple(faults))


def _said(error: BaseException) -> str:
    if isinstance(error, _WrongError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"it is not Python: {error.msg}, line {error.lineno}"
    return f"it raises {type(error).__name__}: {error}"


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else point.value
    return f"{PACKAGE}{package}"


def _module(path: Path) -> ModuleType:
    """The file's code, run as a module; nothing is written beside it."""
    name = f"fastlora_verify_mutations_{path.stem}"
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    with _no_bytecode():
        exec(code, module.__dict__)
    return module


@contextmanager
def _no_bytecode() -> Iterator[None]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _checked(source: object, origin: str, others: Iterable[Mutation]) -> list[Mutation]:
    """The mutations of a module, or of whatever an entry point names, each with its origin."""
    listed = getattr(source, "MUTATIONS", None) if isinstance(source, ModuleType) else source
    if isinstance(source, ModuleType) and listed is None:
        raise _WrongError("it has no MUTATIONS")
    listed = (listed,) if isinstance(listed, Mutation) else listed
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise _WrongError(f"its MUTATIONS is {listed!r}, and a sequence of Mutation was expected")
    taken = {mutation.id for mutation in (*MUTATIONS, *others)} | set(RESERVED)
    found = []
    for mutation in listed:
        _check(mutation, taken)
        taken.add(mutation.id)
        found.append(replace(mutation, origin=origin))
    return found


def _check(mutation: object, taken: set[str]) -> None:
    if not isinstance(mutation, Mutation):
        raise _WrongError(f"its MUTATIONS has {mutation!r}, which is no Mutation")
    for field in ("id", "family", "fault", "imitates", "seen_by", "absent"):
        if not isinstance(getattr(mutation, field), str) or not getattr(mutation, field):
            raise _WrongError(f"its mutation {mutation.id!r} has no {field}")
    if any(sign in mutation.id for sign in "@*[] ") or not callable(mutation.find):
        raise _WrongError(f"its mutation {mutation.id!r} has an id with one of @*[] or a space, or no function `find`")
    if mutation.id in taken:
        raise _WrongError(f"its mutation {mutation.id!r} has a name that is taken")
