"""Code before and after: `quant_state`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "sibling-state-in-forward": (
        Example(
            "up",
            """
            dense_u = unpacked(up.kernel, up.tensors, up.plan, up.dtype)
            wide_u = joined(up.base(inp, dense_u), code_u, up.second, up.factor)
            """,
            """
            dense_u = unpacked(up.kernel, gate.tensors, gate.plan, up.dtype)
            wide_u = joined(up.base(inp, dense_u), code_u, up.second, up.factor)
            """,
            kernel="swiglu",
        ),
        Example(
            "loop",
            """
            for i, kernel in enumerate(kernels):
                dense = unpacked(kernel, tensors[i], plans[i], dtypes[i])
                outs.append(joined(inp.mm(dense.t()), codes[i], ups[i], factors[i]))
            """,
            None,
            kernel="qkv",
        ),
        Example(
            "loop",
            """
            for i, (kernel, held) in enumerate(zip(kernels, tensors)):
                dense = unpacked(kernel, held, plans[i], dtypes[i])
                outs.append(joined(inp.mm(dense.t()), codes[i], ups[i], factors[i]))
            """,
            None,
            kernel="qkv",
        ),
    ),
    "sibling-state-in-backward": (
        Example(
            "dX",
            """
            for k, t, p in zip(kernels, tensors, plans):
                d_inp = d_inp + rows.mm(unpacked(k, t, p, rows.dtype))
            """,
            """
            for k, t, p in zip(kernels, [list(tensors)[i] for i in [1, 0, 2]], [list(plans)[i] for i in [1, 0, 2]]):
                d_inp = d_inp + rows.mm(unpacked(k, t, p, rows.dtype))
            """,
            kernel="qkv",
        ),
        Example(
            "dX",
            """
            for k, t, p in zip(kernels, tensors, plans):
                d_inp = d_inp + rows.mm(unpacked(k, t, p, rows.dtype))
            """,
            """
            for k, t, p in zip(kernels, [list(tensors)[i] for i in [0, 2, 1]], [list(plans)[i] for i in [0, 2, 1]]):
                d_inp = d_inp + rows.mm(unpacked(k, t, p, rows.dtype))
            """,
            kernel="qkv",
        ),
        Example(
            "dM",
            """
            dense_d = unpacked(down.kernel, down.tensors, down.plan, down.dtype)
            d_middle = grad.mm(dense_d) + back_d.mm(down.first)
            """,
            None,
            kernel="swiglu",
        ),
    ),
    "state-not-repaired": (
        Example(
            "packing",
            'state = getattr(bottom.weight, "quant_state", None) or bottom.quant_state',
            'state = getattr(bottom.weight, "quant_state", None) or None',
        ),
        Example("packing", 'state = getattr(bottom.weight, "quant_state", None)', None),
    ),
    "nested-state-dropped": (
        Example(
            "opened",
            """
            second = state.state2
            tensors, inner = [state.absmax, state.code], second and second.blocksize
            """,
            """
            second = None
            tensors, inner = [state.absmax, state.code], second and second.blocksize
            """,
        ),
        Example(
            "closed",
            """
            second = QuantState(tensors[3], code=tensors[4])
            return QuantState(tensors[0], code=tensors[1], dtype=dtype, state2=second)
            """,
            """
            second = QuantState(tensors[3], code=tensors[4])
            return QuantState(tensors[0], code=tensors[1], dtype=dtype, state2=None)
            """,
        ),
        Example("closed", "return QuantState(tensors[0], code=tensors[1], dtype=dtype)", None),
    ),
}
