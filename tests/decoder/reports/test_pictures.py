"""What pictures show, that they are well formed, and that their labels are whole."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from gaam_decoder.reports.drawing import (
    MOST_LINES,
    PALETTE,
    Line,
    Picture,
    image_files,
    inline_svg,
    line_panels,
    overviews,
)
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.sections._base import sections
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import answers, build_run
from tests.decoder.reports.test_html import rich_tables
from tests.hostile_strings import HOSTILE, harmful


def pictures_of(table: Table) -> dict[str, Picture]:
    every = [picture for section in sections(table) for picture in section.pictures]
    return {picture.name: picture for picture in [*overviews(table), *every]}


def test_pictures_are_well_formed_and_take_their_colours_from_the_page() -> None:
    names = set()
    for table in rich_tables():
        for name, picture in pictures_of(table).items():
            names.add(name)
            svg = inline_svg(picture.draw, key="k1", alt='of "xi" & <others>')
            root = ET.fromstring(svg)
            assert root.get("aria-label") == 'of "xi" & <others>'
            assert not re.search(r"#[0-9a-f]{6}\b", svg), f"a fixed colour in {name}"
            variables = set(re.findall(r"var\(--(\w+)\)", svg))
            assert "ink" in variables
            assert variables <= set(PALETTE)
            assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]+"', "", svg)
            ids = re.findall(r' id="([^"]+)"', svg)
            assert len(ids) == len(set(ids))
            for reference in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg):
                assert "".join(reference) in ids
            figure = picture.draw()
            for axes in figure.axes:
                assert len(axes.lines) <= MOST_LINES + 1 or name in ("accuracy", "differences")
    assert {"accuracy", "differences", "curves", "importance", "reliability"} <= names


def test_what_pictures_show_are_the_numbers_of_the_table() -> None:
    gate = np.arange(4.0)[:, None, None] + np.ones((4, 6, 5))
    gate[2] = np.nan
    runs = [
        build_run("gaam", answers(4, 0.8, 1), path="a", failed={2: "nan"}, attention_map=gate),
        build_run("gaam", answers(4, 0.8, 2), path="b", seeds=(3, 4, 5, 6), attention_map=gate),
    ]
    runs[1].failed[5] = "nan"  # and seed 3 is there twice
    vars(runs[1])["logits"][2] = np.nan
    (table,) = build_tables(runs)
    found, row = pictures_of(table), table.rows[0]
    (share,) = [n for n in found["importance"].draw().axes[0].lines if n.get_label() == "gaam"]
    np.testing.assert_allclose(share.get_ydata(), 100 / 6)
    assert found["importance"].draw().axes[0].get_ylim()[0] == 0
    dots, mean, both, seeds = found["accuracy"].draw().axes[0].lines
    np.testing.assert_allclose(
        sorted(dots.get_xdata()), sorted(100 * row.scores.accuracy.scored.values)
    )
    np.testing.assert_allclose(mean.get_xdata(), 100 * (row.mean or 0))
    np.testing.assert_allclose(both.get_xdata(), 100 * np.array(row.scores.accuracy.two_level))
    np.testing.assert_allclose(seeds.get_xdata(), 100 * np.array(row.scores.accuracy.interval))


@pytest.mark.filterwarnings("error")
def test_a_dozen_files_at_most_are_written_each_with_its_title(tmp_path: Path) -> None:
    for number, tables in enumerate((rich_tables(), rich_tables()[:1])):
        paths = Report(tuple(tables)).save_figures(tmp_path / str(number))
        assert 4 <= len(paths) == len(set(paths)) <= 12
        for path in paths:
            start = b"%PDF" if path.suffix == ".pdf" else b"\x89PNG"
            assert path.read_bytes().startswith(start)


@pytest.mark.filterwarnings("error")
def test_pictures_draw_every_name_and_obey_none() -> None:
    names = [name[:80] for name in HOSTILE.values()]
    panels = [("y", [Line(name, [1, 2], [3, 4])]) for name in names]
    svg = inline_svg(lambda: line_panels(panels, "x"), key="k", alt="".join(names))
    assert not harmful(svg)
    kinds = {element.tag.split("}")[-1] for element in ET.fromstring(svg).iter()}
    assert not {"script", "a", "foreignObject", "image"} & kinds
    shown = "".join(ET.fromstring(svg).itertext())
    for what in ("mathematics", "Chinese"):
        assert HOSTILE[what] in shown
    picture = Picture("p", "".join(names), "", lambda: line_panels(panels[:9], "x"))
    assert image_files(picture)["pdf"].startswith(b"%PDF")  # whatever our font lacks
