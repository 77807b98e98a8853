"""Adding a LoRA term to a base term: promote, add, cast once.

PEFT's dense layer computes `(result + lora * scaling).to(result.dtype)`: with fp32 adapters on a bf16 base
the sum is made in fp32 and rounded once. A term rounded to bf16 before the sum would be rounded twice.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def promoted_sum(out: Tensor, term: Tensor) -> Tensor:
    """`out + term` in the promoted dtype of both, rounded once to `out.dtype`. Shapes equal."""
    promoted = torch.promote_types(out.dtype, term.dtype)
    total = out.to(promoted) + term.to(promoted)
    return total.to(out.dtype)


def scaled_lora_add(out: Tensor, hidden: Tensor, B: Tensor, scaling: float) -> Tensor:
    """`out + scaling * hidden Bᵀ`, in `out.dtype`.

    out [..., o] of the base's dtype; hidden [..., r] and B [o, r] of the adapter's dtype.
    """
    term = F.linear(hidden, B) * scaling
    return promoted_sum(out, term)
