"""Code before and after: `silu_slope`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "silu-slope-term-dropped": (
        Example(
            "slope",
            """
            exact = wide_g.double()
            chance = torch.sigmoid(exact)
            bend = (1 + (1 - chance) * exact) * chance
            """,
            """
            exact = wide_g.double()
            chance = torch.sigmoid(exact)
            bend = 1 * chance
            """,
            kernel="swiglu",
        ),
        Example(
            "slope",
            """
            bend = torch.sigmoid(wide_g)
            bend = bend + 1
            """,
            None,
            kernel="swiglu",
        ),
    ),
    "silu-slope-16-bit-chain": (
        Example(
            "slope",
            """
            exact = wide_g.to(torch.promote_types(wide_g.dtype, torch.float32))
            chance = exact.sigmoid()
            bend = chance * (1 + exact * (1 - chance))
            """,
            """
            exact = wide_g.to(wide_g.dtype)
            chance = exact.sigmoid()
            bend = chance * (1 + exact * (1 - chance))
            """,
            kernel="swiglu",
        ),
        Example(
            "slope",
            """
            exact = wide_g.float()
            chance = exact.sigmoid()
            bend = chance * (1 + exact * (1 - chance))
            """,
            """
            exact = wide_g
            chance = exact.sigmoid()
            bend = chance * (1 + exact * (1 - chance))
            """,
            kernel="swiglu",
        ),
        Example(
            "slope",
            """
            chance = wide_g.sigmoid()
            bend = chance * (1 + wide_g * (1 - chance))
            """,
            None,
            kernel="swiglu",
        ),
    ),
    "silu-slope-dtype-lowered": (
        Example(
            "slope",
            """
            exact = wide_g.to(torch.promote_types(wide_g.dtype, torch.float32))
            chance = exact.sigmoid()
            bend = chance * (1 + exact * (1 - chance))
            """,
            """
            exact = wide_g.to(torch.float32)
            chance = exact.sigmoid()
            bend = chance * (1 + exact * (1 - chance))
            """,
            kernel="swiglu",
        ),
        Example(
            "slope",
            """
            chance = wide_g.sigmoid()
            bend = chance * (1 + wide_g * (1 - chance))
            """,
            None,
            kernel="swiglu",
        ),
    ),
}
