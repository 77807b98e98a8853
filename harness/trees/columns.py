"""Columns of the command line: which source and which tests, on what device. Nothing is looked up here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastlora_verify.harness.errors import UnknownDevice, UsageError

DEVICES = ("cpu", "cuda")
HEAD = "head"  # what the tree under review is called, in a column's name and as a revision
SPEC = "source=REV[+FILE.diff],tests=REV[+FILE.diff],device=cpu"
_PART = re.compile(r",(?=\w+=)")


@dataclass(frozen=True)
class Side:
    """A tree that a column takes its source or its tests from."""

    rev: str = ""  # as the user wrote it; "": the tree under review
    patch: Path | None = None  # applied to it

    def name(self, *, whole: bool = False) -> str:
        """`main`, `abc1234`, `main+fix.diff`; the diff's whole path where its name alone isn't enough."""
        commit = re.fullmatch(r"[0-9a-f]{10,64}", self.rev)
        rev = self.rev[:9] if commit else self.rev or HEAD
        return rev if self.patch is None else f"{rev}+{self.patch if whole else self.patch.name}"


@dataclass(frozen=True)
class ColumnSpec:
    """One column as it is asked for."""

    source: Side = Side()
    tests: Side = Side()
    device: str = "cpu"

    @property
    def is_mixed(self) -> bool:
        """True if source and tests come from different trees, so that a red suite is a finding."""
        return self.source != self.tests


@dataclass(frozen=True)
class Wanted:
    """Which columns the command line asks for, and what the tree under review is."""

    specs: tuple[str, ...] = ()
    against: str | None = None
    merged_onto: tuple[str, ...] = ()
    rebased_onto: str | None = None
    upstream: str | None = None  # of the rebase

    @property
    def is_plain(self) -> bool:
        """True if it is the working tree alone, as it lies there."""
        return not (self.specs or self.against or self.merged_onto or self.rebased_onto)

    def check(self) -> None:
        """Raises UsageError for options that contradict each other."""
        if self.merged_onto and self.rebased_onto:
            raise UsageError("--merged-onto and --rebased-onto both make the tree under review; give one of them")
        if self.upstream and not self.rebased_onto:
            raise UsageError("--upstream says where a rebase begins; give --rebased-onto too")
        for option, rev in (("--against", self.against), ("--rebased-onto", self.rebased_onto)):
            if rev == "":
                raise UsageError(f"{option}: the revision is empty")
        if "" in self.merged_onto:
            raise UsageError("--merged-onto: the revision is empty")


def specs_of(wanted: Wanted, devices: Sequence[str]) -> tuple[ColumnSpec, ...]:
    """The columns, each once, those that name no device on each of `devices`. Raises UsageError, UnknownDevice."""
    wanted.check()
    for device in devices:
        check_device(device)
    found = [spec for text in wanted.specs for spec in _parsed(text, devices)]
    if wanted.against is not None:
        base = Side(wanted.against)
        pairs = ((Side(), Side()), (Side(), base), (base, Side()))
        found += [ColumnSpec(source, tests, device) for source, tests in pairs for device in devices]
    if not found:
        found = [ColumnSpec(device=device) for device in devices]
    return tuple(dict.fromkeys(found))


def check_device(name: str) -> None:
    """Raises UnknownDevice."""
    if name not in DEVICES:
        raise UnknownDevice(name)


def _parsed(text: str, devices: Sequence[str]) -> Iterable[ColumnSpec]:
    parts: dict[str, str] = {}
    for part in _PART.split(text):
        key, equals, value = part.partition("=")
        if key not in ("source", "tests", "device") or not equals:
            raise UsageError(f"--column {text}: {part!r} is none of source=, tests= and device=; a column is {SPEC}")
        if key in parts:
            raise UsageError(f"--column {text}: {key}= stands there twice")
        if not value:
            raise UsageError(f"--column {text}: {key}= is empty; leave it out for the default")
        parts[key] = value
    source, tests = (_side(text, parts.get(key, "")) for key in ("source", "tests"))
    for device in [parts["device"]] if "device" in parts else devices:
        check_device(device)
        yield ColumnSpec(source, tests, device)


def _side(text: str, value: str) -> Side:
    """A revision's name may hold a plus sign too: the diff is what comes after the first that a file follows."""
    places = [index for index, sign in enumerate(value) if sign == "+"]
    for index in places:
        if Path(value[index + 1 :]).is_file():
            return _named(value[:index], Path(value[index + 1 :]))
    if places and re.search(r"\.(diff|patch)$", value):
        raise UsageError(f"--column {text}: there is no file {value[places[0] + 1 :]}")
    return _named(value, None)


def _named(rev: str, patch: Path | None) -> Side:
    return Side("" if rev == HEAD else rev, patch)


def ids_of(specs: Sequence[ColumnSpec]) -> list[str]:
    """A name for each column, unique: `head:cpu`, `main:cpu`, `source=main tests=v1+fix.diff:cuda`."""
    found = [_id(spec) for spec in specs]
    return [_id(spec, whole=found.count(name) > 1) for spec, name in zip(specs, found, strict=True)]


def _id(spec: ColumnSpec, *, whole: bool = False) -> str:
    source, tests = (side.name(whole=whole) for side in (spec.source, spec.tests))
    if not spec.is_mixed:
        return f"{source}:{spec.device}"
    parts = [f"{key}={name}" for key, name in (("source", source), ("tests", tests)) if name != HEAD]
    return f"{' '.join(parts)}:{spec.device}"
