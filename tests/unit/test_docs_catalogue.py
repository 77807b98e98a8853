"""docs/catalogue.md says what the catalogue finds today."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_catalogue_page_is_what_its_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "catalogue.py"))
    assert (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8") == script["page"]()
