"""Code before and after: `delegation`, a condition in front of the entry's first statement or of `Function.apply`."""

from __future__ import annotations

from fastlora_verify.mutations.base import Example

TOP = "if more:\n    return former(inp, *more, **named)"
CALL = 'out = One.apply(inp, got["kernel"], got["shift"], got["down"], got["up"], *rest)'
CALL_OF_THREE = (
    'outs = Three.apply(inp, lists, *by_name["kernel"], *by_name["shift"], *by_name["down"], *by_name["up"])'
)
PARTS = "[part for part in ({},) if part is not None and part.numel()]"

# An entry that hands nothing back: what it returns is the kernel's.
NEVER_BACK = Example("entry", "return One.apply(inp, *list(pieces_of(layer, inp).values())[:5])", None)


def _at_top(condition: str) -> tuple[Example, ...]:
    after = f"if {condition}:\n    return former(inp, *more, **named)\n{TOP}"
    return Example("top", TOP, after), NEVER_BACK


def _at_call(condition: str) -> tuple[Example, ...]:
    after = f"if {condition}:\n    return former(inp, *more, **named)\n{CALL}"
    return Example("call", CALL, after), NEVER_BACK


def _of_three(condition: str) -> tuple[Example, ...]:
    after = f"if {condition}:\n    return formers[0](inp)\n{CALL_OF_THREE}"
    return Example("call", CALL_OF_THREE, after, kernel="qkv"), Example("call", CALL, None)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "delegates-always": (Example("top", TOP, f"return former(inp, *more, **named)\n{TOP}"), NEVER_BACK),
    "delegates-on-2d": _at_top("inp.dim() == 2"),
    "delegates-on-3d": _at_top("inp.dim() == 3"),
    "delegates-without-bias": (
        *_at_call('got["shift"] is None'),
        *_of_three('all(part is None for part in (*by_name["shift"],))')[:1],
    ),
    "delegates-with-bias": _at_call('got["shift"] is not None'),
    "delegates-unless-4-byte": _at_top("inp.dtype.itemsize != 4"),
    "delegates-on-fp16": _at_top("inp.dtype == torch.float16"),
    "delegates-on-bf16": _at_top("inp.dtype == torch.bfloat16"),
    "delegates-on-mixed-dtype": _at_call(
        "any(part.dtype != inp.dtype for part in {})".format(PARTS.format('got["down"]'))
    ),
    "delegates-on-quant-state": _at_call('not got["kernel"].is_floating_point()'),
    "delegates-unless-all-adapted": _of_three(
        'not all(part is not None and part.numel() for part in (*by_name["down"],))'
    ),
    "delegates-on-unequal-ranks": _of_three(
        "len({{len(part) for part in {}}}) > 1".format(PARTS.format('*by_name["down"]'))
    ),
    "delegates-under-autocast": _at_top("torch.is_autocast_enabled('cuda' if inp.is_cuda else 'cpu')"),
    "delegates-on-frozen-input": _at_top("not inp.requires_grad"),
    "delegates-in-streamed-layer": _at_call('not isinstance(got["kernel"], torch.nn.Parameter)'),
    "delegates-on-cuda": _at_call("inp.is_cuda"),
}
