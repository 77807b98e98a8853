"""Modules of instruments (oracles, test helpers) as mutations see them: their trees, no kernel behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from fastlora_verify.mutations.source import ParsedModule
from fastlora_verify.mutations.tree import children


@dataclass(frozen=True)
class InstrumentView:
    modules: Sequence[ParsedModule]

    def nodes(self) -> Iterator[tuple[ParsedModule, cst.CSTNode]]:
        """Every node of every instrument module."""
        for module in self.modules:
            stack: list[cst.CSTNode] = [module.tree]
            while stack:
                node = stack.pop()
                yield module, node
                stack.extend(reversed(list(children(node))))
