"""Siblings' matrices put together for one GEMM, its result taken apart; `None` marks an absent sibling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def rows(tensor: Any) -> Any:
    """The tensor as a matrix [N, last dimension]; `None` stays `None`."""
    return None if tensor is None else tensor.reshape(-1, tensor.shape[-1])


def together(parts: Sequence[Tensor | None], dim: int) -> Any:
    """The parts that are there, concatenated along `dim`; `None` if there is none."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    return torch.cat(present, dim=dim)


def apart(whole: Tensor | None, parts: Sequence[Tensor | None], dim: int) -> list[Any]:
    """`whole` cut along `dim`: a piece as long as each part has rows, `None` where a part is absent."""
    pieces: list[Any] = []
    start = 0
    for part in parts:
        if whole is None or part is None:
            pieces.append(None)
            continue
        pieces.append(whole.narrow(dim, start, part.shape[0]))
        start += part.shape[0]
    return pieces
