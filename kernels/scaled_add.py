"""Adding a LoRA term to a base term: promote, add, cast once.

PEFT's dense layer computes `(result + lora * scaling).to(result.dtype)`: with fp32 adapters on a bf16 base
the sum is made in fp32 and rounded once. A term rounded to bf16 before the sum would be rounded twice.
"""

from __future__ import annotations

from functools import reduce

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def promoted_sum(dtype: torch.dtype, *terms: Tensor | None) -> Tensor:
    """Sum of the terms that are there, in the promoted dtype of all, rounded once to `dtype`.

    At least one term, shapes equal, added in the order given.
    """
    present = [term for term in terms if term is not None]
    promoted = reduce(torch.promote_types, (term.dtype for term in present), dtype)
    total = reduce(torch.add, (term.to(promoted) for term in present))
    return total.to(dtype)


def scaled_lora_add(out: Tensor, hidden: Tensor, B: Tensor, scaling: float) -> Tensor:
    """`out + scaling * hidden Bᵀ`, in `out.dtype`.

    out [..., o] of the base's dtype; hidden [..., r] and B [o, r] of the adapter's dtype.
    """
    term = F.linear(hidden, B) * scaling
    return promoted_sum(out.dtype, out, term)
