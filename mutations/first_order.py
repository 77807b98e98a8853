"""The mark that a backward is differentiable once is gone.

A hand-written backward that autograd differentiates gives a wrong second derivative without a word; with
`once_differentiable` it raises. Public: a double backward that returned wrong values (first round of the single
projection's review).
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fastlora_verify.mutations.base import Example, Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.source import Edit


def find(view: KernelView) -> Iterator[Site]:
    place = view.backward
    for decorator in place.node.decorators:
        name = decorator.decorator
        word = name.attr.value if isinstance(name, cst.Attribute) else getattr(name, "value", "")
        if word != "once_differentiable":
            continue
        start, end = place.module.span(decorator)
        edit = (
            Edit(start, end, "@staticmethod", None)
            if len(place.node.decorators) == 1
            else _removed(place.module, start, end)
        )
        gist = f"`{place.module.code(decorator).strip()}` is removed"
        yield Site(place.module, place.scope, "", decorator, (edit,), gist)


def _removed(module, start: int, end: int) -> Edit:  # type: ignore[no-untyped-def]
    text = module.file.text.encode()
    line = text.rfind(b"\n", 0, start) + 1
    stop = text.find(b"\n", end) + 1 if text[end - 1 : end] != b"\n" else end
    return Edit(line, stop, "", 0)


MUTATIONS = (
    Mutation(
        id="once-differentiable-dropped",
        family="mathematics",
        fault="A second derivative is computed, wrongly, instead of refused.",
        imitates="A hand-written backward not marked as first-order only (public).",
        seen_by="second order raises",
        find=find,
        absent="backward isn't marked",
        examples=(
            Example(
                "decorators",
                """
                @staticmethod
                @once_differentiable
                """,
                "@staticmethod",
            ),
            Example("decorators", "@staticmethod", None),
        ),
    ),
)
