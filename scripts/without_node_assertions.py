"""Writes a target whose reference suites don't assert which path ran: what still kills a kernel that doesn't run?

    python -P scripts/without_node_assertions.py FOLDER
    fastlora-verify mutate --family delegation --target FOLDER/target.toml

Every `assert` that reads a node, or the reason that the kernel gives for its path, is taken out of a copy of the
suites; with the pins gone, most of the delegation family must survive, loudly, and no killer may be one of them.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import libcst as cst

NODE = re.compile(
    r"\btold\(|\bdelegation_reasons\(|\bnodes\(|\bgrad_fn\b|\.node\b|\bstream\.seen\b|\bset\(seen\)|\bNODES?\b|FusedLora\w*Backward"
)
ROOT = Path(__file__).resolve().parent.parent


class NoNodeAssertions(cst.CSTTransformer):
    """Makes asserts that read a node expressions that nobody looks at."""

    def __init__(self) -> None:
        self.removed = 0

    def leave_Assert(self, original_node: cst.Assert, updated_node: cst.Assert) -> cst.BaseSmallStatement:  # noqa: N802
        if not NODE.search(cst.Module([]).code_for_node(original_node.test)):
            return updated_node
        self.removed += 1
        return cst.Expr(updated_node.test)  # what it calls is still called


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    suites = folder / "suites"
    shutil.copytree(ROOT / "tests" / "suites", suites, ignore=shutil.ignore_patterns("__pycache__"))
    removed = 0
    for path in suites.glob("*.py"):
        transformer = NoNodeAssertions()
        path.write_text(cst.parse_module(path.read_text("utf-8")).visit(transformer).code, encoding="utf-8")
        removed += transformer.removed
    text = (ROOT / "kernels" / "reference.toml").read_text("utf-8")
    text = text.replace('"tests" = "package:fastlora_verify.suites"', '"tests" = "suites"')
    (folder / "target.toml").write_text(text, encoding="utf-8")
    print(f"{removed} assertions removed; {folder / 'target.toml'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
