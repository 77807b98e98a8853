"""Siblings' matrices put together for one GEMM, and its result taken apart again; `None` marks an absent sibling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def together(parts: Sequence[Tensor | None], dim: int) -> Tensor | None:
    """The parts that are there, concatenated along `dim`; `None` if there is none."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    return torch.cat(present, dim=dim)


def apart(whole: Tensor | None, parts: Sequence[Tensor | None], dim: int) -> list[Tensor | None]:
    """`whole` cut along `dim` in pieces as long as the rows of `parts`; `None` where a part is absent."""
    pieces: list[Tensor | None] = []
    start = 0
    for part in parts:
        if whole is None or part is None:
            pieces.append(None)
            continue
        length = part.shape[0]
        pieces.append(whole.narrow(dim, start, length))
        start += length
    return pieces
