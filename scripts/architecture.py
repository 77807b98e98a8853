"""Writes the module tables of ARCHITECTURE.md from the modules' own first lines.

python -P scripts/architecture.py           # write
python -P scripts/architecture.py --check   # exit 1 if the page is stale
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
TABLE = re.compile(r"(<!-- modules of (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def modules(folder: str) -> str:
    """A table row a module of a folder, in the folder's order."""
    rows = ["", "| module | what |", "| --- | --- |"]
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.name == "__init__.py" or path.name.endswith("_examples.py"):
            continue
        first = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").splitlines()[0]
        rows.append(f"| `{path.name}` | {first.replace('|', chr(92) + '|')} |")
    return "\n".join([*rows, "", ""])


def page(text: str) -> str:
    """The page with its tables written anew."""
    return TABLE.sub(lambda match: match.group(1) + modules(match.group(2)) + match.group(3), text)


def main() -> int:
    text = PAGE.read_text("utf-8")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(text), encoding="utf-8")
        return 0
    if page(text) == text:
        return 0
    print(f"{PAGE.name} is stale: python -P scripts/architecture.py writes it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
