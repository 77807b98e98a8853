"""Code before and after: `gemms`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "dx-always-computed": (
        Example("dX if", "if ctx.needs_input_grad[0] and rate >= 0:", "if True and rate >= 0:"),
        Example("dX if", "if grad.numel():", None),
    ),
    "shared-gemm-split-in-forward": (
        Example(
            "codes",
            """
            pair = torch.cat((gate.first, up.first))
            codes = torch.nn.functional.linear(inp, pair)
            code_g, code_u = codes.split([len(gate.first), len(up.first)], dim=-1)
            """,
            """
            pair = torch.cat((gate.first, up.first))
            codes = torch.cat([torch.nn.functional.linear(inp, part) for part in pair.chunk(2, dim=-2)], dim=-1)
            code_g, code_u = codes.split([len(gate.first), len(up.first)], dim=-1)
            """,
            kernel="swiglu",
        ),
        Example(
            "codes",
            """
            code_g, code_u = inp @ gate.first.t(), inp @ up.first.t()
            codes = torch.cat((code_g, code_u), dim=-1)
            """,
            None,
            kernel="swiglu",
        ),
    ),
    "shared-gemm-split-in-da": (
        Example(
            "dA",
            """
            joint = torch.cat(backs, dim=1)
            d_stacked = torch.mm(joint.t(), rows)
            d_downs = d_stacked.split([len(down) for down in downs])
            """,
            """
            joint = torch.cat(backs, dim=1)
            d_stacked = torch.cat([torch.mm(part, rows) for part in joint.t().chunk(2, dim=-2)], dim=-2)
            d_downs = d_stacked.split([len(down) for down in downs])
            """,
            kernel="qkv",
        ),
        Example(
            "dA",
            """
            backs = torch.cat((back_g, back_u), dim=-1)
            d_gate_first, d_up_first = back_g.t() @ rows, back_u.t() @ rows
            """,
            None,
            kernel="swiglu",
        ),
    ),
}
