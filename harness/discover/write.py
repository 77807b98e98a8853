"""A found target as the TOML table that `--target` reads, doubts as comments."""

from __future__ import annotations

import tomlkit
from tomlkit.items import AoT, Array, Table

from fastlora_verify.harness.discover.found import Found, FoundKernel


def target_table(found: Found, root: str = ".") -> str:
    """The text of a target file; `root` is the repository, relative to the file's folder."""
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by `fastlora-verify init` from the source, which it read and did not run."))
    document.add(tomlkit.comment("Lines that begin with `unsure:` want a look."))
    document.add(tomlkit.nl())
    document.add("target", _target(found, root))
    kernels = AoT([])
    for kernel in found.kernels:
        kernels.append(_kernel(kernel))
    document.add("kernel", kernels)
    return tomlkit.dumps(document).rstrip("\n") + "\n"


def _target(found: Found, root: str) -> Table:
    table = tomlkit.table()
    for doubt in found.doubts:
        table.add(tomlkit.comment(f"unsure: {doubt}"))
    table.add("name", found.name)
    table.add("root", root)
    table.add("source-roots", _lines(found.source_roots))
    table.add("modules", _lines(found.modules))
    table.add("tests", _lines(found.tests))  # without any it can be listed and read, not run
    if found.pytest_args:
        table.add("pytest-args", _lines(found.pytest_args))
    table.add("gpu-marker", found.gpu_marker)
    return table


def _kernel(kernel: FoundKernel) -> Table:
    roles = kernel.roles
    table = tomlkit.table()
    for doubt in kernel.doubts:
        table.add(tomlkit.comment(f"unsure: {doubt}"))
    table.add("name", roles.name)
    table.add("kind", roles.kind)
    table.add("function", roles.function)
    table.add("entries", _lines(roles.entries))
    if roles.owner:
        table.add("owner", _lines(roles.owner))
    table.add("guards", _lines(roles.guards))
    table.add("helpers", _lines(roles.helpers))
    for key in ("patcher", "patch-call", "unpatcher"):
        text = getattr(roles, key.replace("-", "_"))
        if text:
            table.add(key, text)
    table.add("node", roles.node)
    return table


def _lines(texts: tuple[str, ...]) -> Array:
    array = tomlkit.array()
    array.extend(texts)
    return array.multiline(len(texts) > 1)
