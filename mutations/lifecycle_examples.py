"""Code before and after: `lifecycle`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "forward-left-behind": (
        Example("unpatcher", 'vars(layer).pop("forward")', "pass"),
        Example("unpatcher", "layer.forward = layer._former", None),
    ),
    "forward-not-restored": (
        Example("unpatcher", "layer.forward = layer._former", "pass"),
        Example("unpatcher", 'setattr(layer, "forward", layer._former)', "pass"),
        Example("unpatcher", 'vars(layer).pop("forward")', None),
        Example("unpatcher", "layer._former = None", None),
    ),
    "patched-twice": (
        Example(
            "patcher",
            """
            for layer in model.modules():
                if getattr(layer, "_former", None) is not None:
                    continue
                adopt(layer)
            """,
            """
            for layer in model.modules():
                if False:
                    continue
                adopt(layer)
            """,
        ),
        Example(
            "patcher",
            """
            for layer in model.modules():
                if plain(layer):
                    adopt(layer)
            """,
            None,
        ),
        Example(
            "patcher",
            """
            if model in MODELS:
                return model
            MODELS.add(model)
            """,
            """
            if False:
                return model
            MODELS.add(model)
            """,
        ),
        Example(
            "patcher",
            """
            for block in model.modules():
                if not hasattr(block, "first"):
                    continue
                block.first = Wrapped(block.first)
            """,
            None,
        ),
    ),
    "group-ownership-ignored": (
        Example(
            "patcher",
            """
            for layer in model.modules():
                if TAKEN in vars(layer) or getattr(layer, TAKEN, False):
                    continue
                adopt(layer)
            """,
            """
            for layer in model.modules():
                if False:
                    continue
                adopt(layer)
            """,
        ),
        Example(
            "patcher",
            """
            for name in NAMES:
                release(getattr(attention, name))
            """,
            """
            for name in NAMES:
                pass
            """,
            kernel="qkv",
        ),
        Example(
            "patcher",
            """
            for layer in model.modules():
                if isinstance(layer, LoraLayer):
                    adopt(layer)
            """,
            None,
        ),
    ),
    "dropout-optin-leaks": (
        Example(
            "opt-in",
            "def pieces_of(layer, inp, modelled=False):",
            "def pieces_of(layer, inp, modelled=True):",
            kernel="qkv",
        ),
        Example("opt-in", "def pieces_of(layer, inp, modelled=None):", None, kernel="qkv"),
    ),
}
