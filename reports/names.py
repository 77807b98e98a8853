"""Mutants' names, as people read and type them; words counted."""

from __future__ import annotations

import re

_NAME = re.compile(r"([^@]+)@[^:\[]*:(.*)", re.DOTALL)


def short_name(name: str) -> str:
    """A mutant's name without its module: `mutation@scope[what]`. The command line takes it too."""
    match = _NAME.fullmatch(name)
    return f"{match[1]}@{match[2]}" if match else name


def counted(number: int, one: str, several: str = "") -> str:
    """`1 mutant`, `2 mutants`; `several` where that is more than an s."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
