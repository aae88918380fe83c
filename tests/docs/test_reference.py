"""The pages of the reference that follow from the code are up to date."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("command-line.md", "python.md", "report-columns.md", "settings.md")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    pages = runpy.run_path(str(DOCS / "generate.py"))["PAGES"]
    assert tuple(pages) == PAGES
    written = (DOCS / "reference" / name).read_text("utf-8")
    assert written == pages[name](), "run: python docs/generate.py"
