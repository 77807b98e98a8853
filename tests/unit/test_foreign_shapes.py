"""Kernels put together in other ways: `init`, `list` and `diff` work on them as they are, and every mutant compiles."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from fastlora_verify.harness import cli

SHAPES = Path(__file__).parent.parent / "testdata" / "shapes"
MODULE = "kern.lora_kernel"
ALWAYS = {"delegation", "mathematics", "precision", "memory and streaming", "guards"}


@dataclass(frozen=True)
class Shape:
    """What there is to find in a file of testdata/shapes."""

    name: str
    kind: str
    function: str
    entries: tuple[str, ...]
    guards: tuple[str, ...]
    patcher: str
    unpatcher: str
    lifecycle: tuple[str, ...]  # mutants of this family
    counts: dict[str, int]  # some mutations with the number of their sites
    owner: tuple[str, ...] = ()


SHAPE_LIST = [
    Shape(
        "factory_and_method_type",
        "linear",
        "build.OneProjection",
        ("new_forward",),
        ("refuses",),
        "speed_up",
        "slow_down",
        ("forward-not-restored@slow_down", "patched-twice@speed_up[slow_forward]"),
        {"delegates-always": 1, "delegates-on-quant-state": 1, "bias-dropped": 1, "guard-fails-open": 2},
        ("peft.tuners.lora.layer:Linear",),
    ),
    Shape(
        "partial_and_setattr",
        "swiglu-mlp",
        "GatedBlock",
        ("gated_forward",),
        ("_usable",),
        "replace_blocks",
        "restore_blocks",
        ("forward-left-behind@restore_blocks",),
        {
            "delegates-always": 1,
            "lora-term-cast-before-add": 1,
            "lora-term-cast-before-add-here": 0,
            "silu-slope-term-dropped": 1,
            "dx-lacks-a-projection": 2,
            "scaling-dropped-in-da": 3,
        },
    ),
    Shape(
        "wrapper_modules",
        "qkv",
        "ThreeOfOne",
        ("SharedQuery.forward", "Later.forward"),
        ("fits",),
        "wrap_attention",
        "unwrap_attention",
        ("stale-kv-served@Later.forward",),
        {"delegates-always": 2, "stale-kv-served": 1, "dx-lacks-a-projection": 0, "guard-fails-open": 2},
    ),
    Shape(
        "methods_of_a_class",
        "linear",
        "_Product",
        ("Accelerator.run",),
        ("Accelerator.can_take",),
        "Accelerator.install",
        "Accelerator.remove",
        ("forward-left-behind@Accelerator.remove",),
        {"delegates-always": 1, "lora-term-dropped-from-dx": 1, "guard-fails-open": 2, "positive-guard-always-true": 1},
    ),
]


@pytest.fixture(params=SHAPE_LIST, ids=lambda shape: shape.name)
def shape(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shape:
    """A repository of that shape, the working folder, with the table that `init` wrote."""
    found: Shape = request.param
    folder = tmp_path / "kern"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "lora_kernel.py").write_bytes((SHAPES / f"{found.name}.py").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert cli.run(["init", "-o", "fastlora-verify.toml"]) == 0
    return found


def listed(capsys: pytest.CaptureFixture[str]) -> dict:
    capsys.readouterr()
    assert cli.run(["list", "--target", ".", "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def scopes(*names: str) -> list[str]:
    return [f"{MODULE}:{name}" for name in names]


def test_init_finds_every_part(shape: Shape) -> None:
    import tomllib

    (kernel,) = tomllib.loads(Path("fastlora-verify.toml").read_text())["kernel"]
    assert kernel["kind"] == shape.kind
    assert [kernel["function"]] == scopes(shape.function)
    assert kernel["entries"] == scopes(*shape.entries)
    assert kernel["guards"] == scopes(*shape.guards)
    assert [kernel["patcher"], kernel["unpatcher"]] == scopes(shape.patcher, shape.unpatcher)
    assert tuple(kernel.get("owner", ())) == shape.owner


def test_the_families_that_apply_find_their_sites(shape: Shape, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys)
    assert found["faults"] == []
    assert {site["family"] for site in found["sites"]} >= ALWAYS
    counts = Counter(site["mutation"] for site in found["sites"])
    assert {name: counts[name] for name in shape.counts} == shape.counts
    lifecycle = [site["name"].replace(f"{MODULE}:", "") for site in found["sites"] if site["family"] == "lifecycle"]
    assert tuple(lifecycle) == shape.lifecycle


def test_every_mutant_is_a_diff_that_applies_and_compiles(shape: Shape, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys)
    assert cli.run(["diff", "*", "--target", "."]) == 0
    printed = capsys.readouterr().out
    original = Path("kern/lora_kernel.py").read_text().splitlines()
    texts = set()
    for site in found["sites"]:
        assert f"# {site['name']}: {site['gist']}\n{site['diff']}" in printed
        text = "\n".join(patched(original, site["diff"])) + "\n"
        ast.parse(text)
        texts.add(text)
    assert len(texts) == len(found["sites"])
    assert "\n".join(original) + "\n" not in texts


def patched(lines: list[str], diff: str) -> list[str]:
    """The lines with a unified diff applied, its context checked."""
    result, position = [], 0
    for line in diff.splitlines()[2:]:
        hunk = re.match(r"@@ -(\d+)", line)
        if hunk:
            start = int(hunk[1]) - 1
            result += lines[position:start]
            position = start
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert lines[position] == line[1:]
            position += 1
            if line[0] == " ":
                result.append(line[1:])
    return result + lines[position:]
