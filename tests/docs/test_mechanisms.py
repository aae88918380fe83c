"""The page of the mechanisms and its pictures are those of the code."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NUMBER = re.compile(r"-?\d+\.\d")
TOLERANCE = 0.2
"""Of a place in a picture: the last bits of a curve differ between machines."""


def test_the_page_of_the_mechanisms_is_what_the_code_says() -> None:
    made = runpy.run_path(str(DOCS / "generate_mechanisms.py"))["files"]()
    folder = DOCS / "concepts" / "mechanisms"
    pictures = {f"mechanisms/{file.name}" for file in folder.iterdir()}
    assert made.keys() == pictures | {"mechanisms.md"}
    for name, content in made.items():
        written = (DOCS / "concepts" / name).read_text("utf-8")
        hint = f"{name}: run python docs/generate_mechanisms.py"
        assert NUMBER.sub("#", written) == NUMBER.sub("#", content), hint
        places = [float(number) for number in NUMBER.findall(content)]
        assert [float(number) for number in NUMBER.findall(written)] == pytest.approx(
            places, abs=TOLERANCE
        ), hint
