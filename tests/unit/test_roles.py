"""A role that names nothing is told with its kernel, its key, and what it could have meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.targets.roles import check_roles, scopes_of
from fastlora_verify.harness.targets.sources import read_sources
from fastlora_verify.harness.targets.target import Target
from fastlora_verify.harness.targets.target_file import load_target
from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.source import SourceFile

SOURCE = """\
class Product:
    def forward(ctx): ...
    def backward(ctx): ...


class Half(Product):
    def forward(ctx): ...


if True:
    def make_forward(original):
        class Cell:
            def inner(self): ...
        async def forward(x): ...
        return forward


def query_forward(x): ...
def key_forward(x): ...
"""
OTHER = "class Layer:\n    def forward(self): ...\n"
KERNEL = KernelRoles(
    name="qkv",
    kind="qkv",
    function="pkg.one:Product",
    entries=("pkg.one:query_forward", "pkg.one:key_forward"),
    guards=("pkg.one:make_forward.forward",),
    helpers=(),
    patcher="pkg.one:make_forward",
    unpatcher="",
    node="ProductBackward",
    owner=("pkg.two:Layer", "elsewhere:Attention"),
)
SOURCES = {
    "pkg.one": SourceFile("pkg.one", "pkg/one.py", SOURCE),
    "pkg.two": SourceFile("pkg.two", "pkg/two.py", OTHER),
}


def target(*kernels: KernelRoles) -> Target:
    tiny = load_target(Path(__file__).parent.parent / "testdata" / "tiny")
    return replace(tiny, kernels=kernels, modules=tuple(SOURCES))


def test_scopes_are_functions_and_classes_however_deep() -> None:
    assert scopes_of(SOURCE) == {
        "Product": "class",
        "Product.forward": "function",
        "Product.backward": "function",
        "Half": "class",
        "Half.forward": "function",
        "make_forward": "function",
        "make_forward.Cell": "class",
        "make_forward.Cell.inner": "function",
        "make_forward.forward": "function",
        "query_forward": "function",
        "key_forward": "function",
    }


def test_roles_that_are_there_pass() -> None:
    check_roles(target(KERNEL), SOURCES)
    reference = load_target(None)
    check_roles(reference, read_sources(reference))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"function": "pkg.one:Produkt"}, "function of 'qkv': pkg.one has no Produkt; nearest: Product"),
        ({"function": "pkg.one:key_forward"}, "function of 'qkv': pkg.one:key_forward is a function, a class was exp"),
        ({"function": "pkg.one:Half"}, "function of 'qkv': pkg.one:Half defines no backward of its own"),
        (
            {"entries": ("pkg.one:key_forward", "pkg.one:querry_forward")},
            "entries of 'qkv': pkg.one has no querry_forw",
        ),
        ({"entries": ("pkg.one:query_forwrd",)}, "has no query_forwrd; nearest: query_forward"),
        ({"entries": ("pkg.one:Product",)}, "entries of 'qkv': pkg.one:Product is a class, a function was expected"),
        ({"entries": ("pkg.one:Cell.innr",)}, "nearest: make_forward.Cell.inner"),
        (
            {"guards": ("pkg.one:zzz",)},
            "guards of 'qkv': pkg.one has no zzz; its functions: Product.forward, Product.b",
        ),
        ({"helpers": ("pkg.two:zzz",)}, "helpers of 'qkv': pkg.two has no zzz; its functions: Layer.forward"),
        ({"patcher": "pkg.one:make"}, "patcher of 'qkv': pkg.one has no make; nearest: make_forward"),
        ({"unpatcher": "pkg.two:forward"}, "unpatcher of 'qkv': pkg.two has no forward; nearest: Layer.forward"),
        ({"owner": ("pkg.two:Layr",)}, "owner of 'qkv': pkg.two has no Layr; nearest: Layer"),
    ],
)
def test_a_role_that_names_nothing_is_told_with_the_nearest(change: dict[str, object], says: str) -> None:
    other = replace(KERNEL, name="first")
    wrong = target(other, replace(KERNEL, **change))  # type: ignore[arg-type]
    with pytest.raises(TargetError) as caught:
        check_roles(wrong, SOURCES)
    where, _, what = str(caught.value).partition(", key kernel[1].")
    assert where == f"target {wrong.file}"
    assert says in what


def test_the_nearest_are_those_of_the_module_that_was_named() -> None:
    with pytest.raises(TargetError) as caught:
        check_roles(target(replace(KERNEL, entries=("pkg.two:query_forward",))), SOURCES)
    assert "query_forward;" in str(caught.value)
    assert "pkg.one" not in str(caught.value)
