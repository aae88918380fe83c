"""Sections: what one says stands in every format that has room for it, and where it belongs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gaam_cache import plugins
from gaam_decoder.reports.figures.accuracy import strip
from gaam_decoder.reports.pictures.picture import Picture
from gaam_decoder.reports.pictures.pictures import save_pictures
from gaam_decoder.reports.table import Table, build_tables
from gaam_decoder.reports.writing import section
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet
from tests.decoder.reports.conftest import FORMATS, answers, build_run, written


def made(name: str, *, folded: bool) -> type[Writer]:
    class Made(Writer):
        place = 2 if folded else 1

        def of(self, table: Table) -> Section | None:
            return Section(
                name=name,
                heading=f"Heading {name}",
                lead=f"lead {name}",
                lines=(f"line {name}",),
                sheets=(Sheet(caption=f"caption {name}", header=["who", "much"],
                              lines=[[f"cell {name}", "1.5"]], words=("who",)),),
                pictures=(
                    Picture(kind=name, name=f"picture-{name}", title=f"title {name}",
                            caption="below", alt="instead",
                            draw=lambda: strip(["a"], [np.array([1.0, 2.0])], [None], [None])),
                ),
                folded=folded,
                values={"number": 1.5},
            )  # fmt: skip

    return Made


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    classes = {"later": made("later", folded=True), "first": made("first", folded=False)}

    def load(package: str, name: str, **details: Any) -> Any:
        return classes[name] if package == section.PACKAGE else real(package, name, **details)

    real = plugins.load
    monkeypatch.setattr(section.plugins, "load", load)
    names = plugins.names
    monkeypatch.setattr(
        section.plugins, "names", lambda p: list(classes) if p == section.PACKAGE else names(p)
    )
    return build_tables([build_run("none", answers(8, 0.8, 2))])[0]


def test_every_format_shows_what_a_section_says(table: Table) -> None:
    """A terminal names it, and says the first line of one that is not folded."""
    for format in set(FORMATS) - {"csv"}:
        text = written(format, [table])
        first, later = (
            [f"lead {name}", f"line {name}", *([f"cell {name}"] if format != "json" else [])]
            for name in ("first", "later")
        )
        if format == "terminal":
            first, later = ["Heading first: lead first"], ["json: first, later"]
            assert "line first" not in text
        for part in first + later:
            assert part in text.replace("Lead ", "lead "), (format, part)
        if format == "html":
            before, _, folded = text.partition("<details>")
            assert "title first" in before
            assert "title later" in folded.partition("</details>")[0]
        if format == "json":
            assert json.loads(text)["sections"]["later"]["values"] == {"number": 1.5}


def test_pictures_of_sections_are_saved(table: Table, tmp_path: Any) -> None:
    names = {path.name for path in save_pictures([table], tmp_path)}
    assert {"picture-first.pdf", "picture-later.png"} <= names
