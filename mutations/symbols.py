"""Which names some code uses, binds and reads as globals: a mutant must not bring in a name that nothing binds."""

from __future__ import annotations

import builtins
import symtable
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbols:
    """Names of a module, or of some of its top-level statements."""

    used: frozenset[str]  # every name there is
    bound: frozenset[str]  # those that are bound at module level
    read: frozenset[str]  # those that are read as globals

    def unbound(self, bound: frozenset[str] = frozenset()) -> frozenset[str]:
        """What is read and bound neither here nor by `bound` nor by Python."""
        free = self.read - self.bound - bound
        return frozenset(n for n in free if not hasattr(builtins, n) and not n.startswith("__"))


def symbols(text: str) -> Symbols:
    """Symbols of a text. Raises `SyntaxError`."""
    table = symtable.symtable(text, "<target>", "exec")
    used: set[str] = set()
    bound: set[str] = set()
    read: set[str] = set()
    for inner in _tables(table):
        for symbol in inner.get_symbols():
            name, at_top = symbol.get_name(), inner is table
            if name.isidentifier():  # a comprehension has one more: ".0"
                used.add(name)
            binds = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if binds and (at_top or symbol.is_declared_global()):
                bound.add(name)
            if symbol.is_referenced() and (at_top or symbol.is_global()):
                read.add(name)
    return Symbols(frozenset(used), frozenset(bound), frozenset(read))


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
