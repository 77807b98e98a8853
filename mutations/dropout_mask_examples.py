"""Code before and after: `dropout_mask`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "dropout-mask-dropped-in-da": (
        Example("dA dropout", "seen = seen * kept / (1 - rate)", "seen = seen / (1 - rate)"),
        Example("dX dropout", "term = term * kept / (1 - rate)", None),
    ),
    "dropout-mask-dropped-in-dx": (
        Example("dX dropout", "term.mul_(kept).mul_(1 / (1 - rate))", "term.mul_(1 / (1 - rate))"),
        Example("dA dropout", "seen = torch.div(kept * seen, 1 - rate)", None),
    ),
    "dropout-rescale-dropped-in-da": (
        Example("dA dropout", "seen = seen * kept / (1 - rate)", "seen = (seen * kept)"),
        Example("dX dropout", "term = term * kept / (1 - rate)", None),
    ),
    "dropout-rescale-dropped-in-dx": (
        Example("dX dropout", "term.mul_(kept).mul_(1 / (1 - rate))", "term.mul_(kept)"),
        Example("dA dropout", "seen = torch.div(kept * seen, 1 - rate)", None),
    ),
}
