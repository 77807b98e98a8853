"""Code before and after: `guards`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "guard-skipped": (
        Example(
            "guard",
            """
            if layer.merged or layer.disable_adapters:
                return None
            """,
            """
            if False:
                return None
            """,
        ),
        Example(
            "top",
            "if more or named: return former(inp, *more, **named)",
            "if False: return former(inp, *more, **named)",
        ),
        Example(
            "guard",
            """
            if layer.merged:
                layer.unmerge()
            """,
            None,
        ),
    ),
    "guard-disjunct-dropped": (
        Example(
            "guard",
            """
            if layer.merged or layer.disable_adapters:
                return None
            """,
            """
            if layer.disable_adapters:
                return None
            """,
        ),
        Example(
            "guard",
            """
            if layer.merged or layer.disable_adapters:
                return None
            """,
            """
            if layer.merged:
                return None
            """,
        ),
        Example(
            "guard",
            """
            if layer.merged and layer.disable_adapters:
                return None
            """,
            None,
        ),
    ),
    "guard-fails-open": (
        Example(
            "activation",
            """
            act = getattr(block, "act_fn", None)
            if act is None:
                return False
            """,
            """
            act = getattr(block, "act_fn", None)
            if act is None:
                return True
            """,
            kernel="swiglu",
        ),
        Example(
            "predicate",
            """
            if not isinstance(layer, LoraLayer):
                raise TypeError
            return True
            """,
            None,
        ),
    ),
    "guard-count-weakened": (
        Example(
            "guard",
            """
            if len(layer.active_adapters) != 1:
                return None
            """,
            """
            if len(layer.active_adapters) < 1:
                return None
            """,
        ),
        Example(
            "guard",
            """
            if not layer.active_adapters:
                return None
            """,
            None,
        ),
    ),
    "positive-guard-always-true": (
        Example(
            "patcher",
            """
            for block in model.modules():
                if hasattr(block, "gate_proj"):
                    block.forward = Block(block).forward
            found = []
            """,
            """
            for block in model.modules():
                if True:
                    block.forward = Block(block).forward
            found = []
            """,
            kernel="swiglu",
        ),
        Example("patcher", "found = list(model.modules())", None, kernel="swiglu"),
    ),
}
