"""Code before and after: `cast_order`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "lora-term-cast-before-add": (
        Example(
            "helper",
            "return (base + factor * code.matmul(up.t())).to(base.dtype)",
            "return (base + (factor * code.matmul(up.t())).to(base.dtype)).to(base.dtype)",
        ),
        Example("helper", "return base + (factor * code.matmul(up.t())).to(base.dtype)", None),
    ),
    "lora-term-cast-before-add-here": (
        Example(
            "sum",
            "out = joined(out, code, up, factor)",
            "out = out + (code @ up.transpose(-2, -1) * factor).to(out.dtype)",
        ),
        Example(
            "sum",
            "out = torch.add(out, code.matmul(up.t()), alpha=factor)",
            "out = torch.add(out, code.matmul(up.t()).to(out.dtype), alpha=factor)",
        ),
        Example("sum", "out += code.matmul(up.t()).mul_(factor)", None),
    ),
}
