"""Code before and after: `scaling`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "scaling-dropped-in-forward": (
        Example("sum", "out = joined(out, code, up, factor)", "out = joined(out, code, up, 1.0)"),
        Example("sum", "out += code.matmul(up.t()).mul_(factor)", "out += code.matmul(up.t())"),
        Example("sum", "out = joined(out, code, up, 1.0)", None),
    ),
    "scaling-twice-in-forward": (
        Example("sum", "out = joined(out, code, up, factor)", "out = joined(out, code, up, factor * factor)"),
        Example(
            "sum",
            "out += code.matmul(up.t()).mul_(factor)",
            "out += code.matmul(up.t()).mul_(factor).mul_(factor)",
        ),
        Example("sum", "out = joined(out, code, up, 1.0)", None),
    ),
    "scaling-dropped-in-da": (
        Example("dA", "d_down = torch.mm(back.t() * factor, seen)", "d_down = torch.mm(back.t(), seen)"),
        Example("back", "back = (factor * grown).mm(up)", None),
    ),
    "scaling-twice-in-da": (
        Example(
            "dA",
            "d_down = torch.mm(back.t() * factor, seen)",
            "d_down = torch.mm((back.t() * factor) * factor, seen)",
        ),
        Example("back", "back = (factor * grown).mm(up)", None),
    ),
    "scaling-dropped-in-db": (
        Example("dB", "d_up = torch.mul(grown.t(), factor) @ code", "d_up = grown.t() @ code"),
        Example(
            "gate's",
            """
            grown_g = gate.factor * d_wide_g
            d_gate_second = grown_g.t() @ code_g
            back_g = grown_g @ gate.second
            """,
            """
            grown_g = gate.factor * d_wide_g
            d_gate_second = ((grown_g.t() @ code_g) / gate.factor)
            back_g = grown_g @ gate.second
            """,
            kernel="swiglu",
        ),
        Example("dA", "d_down = torch.mm(factor * back.t(), seen)", None),
    ),
    "scaling-twice-in-db": (
        Example(
            "dB",
            "d_up = torch.mul(grown.t(), factor) @ code",
            "d_up = (torch.mul(grown.t(), factor) * factor) @ code",
        ),
        Example(
            "gate's",
            """
            grown_g = gate.factor * d_wide_g
            d_gate_second = grown_g.t() @ code_g
            back_g = grown_g @ gate.second
            """,
            """
            grown_g = gate.factor * d_wide_g
            d_gate_second = ((grown_g.t() @ code_g) * gate.factor)
            back_g = grown_g @ gate.second
            """,
            kernel="swiglu",
        ),
        Example("dA", "d_down = torch.mm(factor * back.t(), seen)", None),
    ),
    "scaling-dropped-in-dx": (
        Example(
            "dX",
            "d_inp = base.addmm_(back, down, alpha=factor).view(inp.shape)",
            "d_inp = base.addmm_(back, down, alpha=1.0).view(inp.shape)",
        ),
        Example(
            "dX",
            """
            term *= factor
            d_inp = base.add_(term).view(inp.shape)
            """,
            """
            pass
            d_inp = base.add_(term).view(inp.shape)
            """,
        ),
        Example("dB", "d_up = factor * torch.mm(grown.t(), code)", None),
    ),
    "scaling-twice-in-dx": (
        Example(
            "dX",
            "d_inp = base.addmm_(back, down, alpha=factor).view(inp.shape)",
            "d_inp = base.addmm_(back, down, alpha=factor * factor).view(inp.shape)",
        ),
        Example(
            "dX",
            """
            term *= factor
            d_inp = base.add_(term).view(inp.shape)
            """,
            """
            term *= factor * factor
            d_inp = base.add_(term).view(inp.shape)
            """,
        ),
        Example("dB", "d_up = factor * torch.mm(grown.t(), code)", None),
    ),
}
