"""Code before and after: `saved`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "activation-saved": (
        Example(
            "save",
            "ctx.save_for_backward(inp, codes, wide_g, wide_u, gate.kernel, up.kernel, down.kernel)",
            "ctx.save_for_backward(inp, codes, wide_g, wide_u, gate.kernel, up.kernel, down.kernel, middle)",
            kernel="swiglu",
        ),
        Example("save", "ctx.kept = inp, kept, kernel, down, up, code", None),
    ),
    "dense-weight-saved": (
        Example(
            "save",
            "ctx.save_for_backward(inp, kept, kernel, down, up, code)",
            "ctx.save_for_backward(inp, kept, kernel, down, up, code, unpacked(kernel, tensors, plan, dtype))",
        ),
        Example("save", "ctx.kept = inp, kept, kernel, down, up, code", None),
    ),
    "weight-kept-on-ctx": (
        Example(
            "save",
            "ctx.save_for_backward(inp, kept, kernel, down, up, code)",
            """
            ctx.kept_weight = kernel
            ctx.save_for_backward(inp, kept, kernel, down, up, code)
            """,
        ),
        Example(
            "save",
            "ctx.save_for_backward(inp, *kernels, *downs, *ups, *codes)",
            """
            ctx.kept_weight = list(kernels)
            ctx.save_for_backward(inp, *kernels, *downs, *ups, *codes)
            """,
            kernel="qkv",
        ),
        Example("save", "ctx.save_for_backward(inp, down, up, code)", None),
    ),
}
