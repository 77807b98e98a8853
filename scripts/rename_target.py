"""Renames the kernels of a copied tree: every local, parameter and private name, and public ones that nobody else uses.

python -P scripts/rename_target.py TREE

Writes the kernel modules under TREE/kernels and the roles in TREE/kernels/reference.toml. What the catalogue finds must
not depend on names: the renamed copy has as many sites, mutation by mutation, and its suites still pass.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.source import SourceFile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))
from renaming import Renamed, rename

PACKAGE = "fastlora_verify."
ROLES = ("function", "entries", "guards", "helpers", "patcher", "unpatcher")


def path_of(tree: Path, module: str) -> Path:
    """`fastlora_verify.kernels.linear` in a checkout: kernels/linear.py."""
    return tree.joinpath(*module.removeprefix(PACKAGE).split(".")).with_suffix(".py")


def outside(tree: Path, modules: set[Path]) -> list[str]:
    """The other files of the tree that may import from the kernels."""
    folders = [tree / name for name in ("kernels", "oracles", "tests", "harness", "scripts")]
    files = (path for folder in folders for path in sorted(folder.rglob("*.py")) if "testdata" not in path.parts)
    return [path.read_text(encoding="utf-8") for path in files if path not in modules]


def renamed(tree: Path) -> Renamed:
    """The tree's kernels and roles under other names."""
    table = tomllib.loads((tree / "kernels" / "reference.toml").read_text(encoding="utf-8"))
    files = {m: path_of(tree, m) for m in table["target"]["modules"]}
    sources = {m: SourceFile(m, str(path), path.read_bytes().decode()) for m, path in files.items()}
    kernels = [
        KernelRoles(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in table["kernel"]
    ]
    return rename(sources, kernels, outside(tree, set(files.values())))


def write(tree: Path, new: Renamed) -> int:
    """Writes the modules and the table; returns the number of top-level names that changed."""
    for module, file in new.sources.items():
        path_of(tree, module).write_bytes(file.text.encode())
    table = tree / "kernels" / "reference.toml"
    text = table.read_text(encoding="utf-8")
    for (module, name), other in new.names.items():
        text = re.sub(rf'"{re.escape(module)}:{name}(?=[".])', f'"{module}:{other}', text)
    table.write_text(text, encoding="utf-8")
    return len(new.names)


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1], "kernels", "reference.toml").is_file():
        print(__doc__, file=sys.stderr)
        return 2
    tree = Path(sys.argv[1]).resolve()
    if tree == Path(__file__).resolve().parent.parent:
        print("this is the checkout itself: copy it first", file=sys.stderr)
        return 2
    print(f"{write(tree, renamed(tree))} functions, classes and constants renamed, and all locals and parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
