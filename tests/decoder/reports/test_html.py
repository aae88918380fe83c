"""The page as a reader meets it, well formed, in light and dark; and the pictures in it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest

from gaam_decoder.reports.columns import sheet
from gaam_decoder.reports.drawing import (
    COLOURS,
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
from gaam_decoder.reports.sections import sections
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import AG_NEWS, answers, build_run, written
from tests.hostile_strings import HOSTILE, harmful

VOID = {"meta", "link", "br", "wbr", "img"}
RNG = np.random.default_rng(1)
ATTACK = '<img src=x onerror="console.error(1)"><script src="http://127.0.0.1:9/x.js"></script>'


def rich_tables() -> list[Table]:
    """Everything that a page can show: two caches, maps, learned parameters, logs, a failure."""
    log = [
        {
            "seed": seed,
            "epoch": epoch,
            "loss": 1 / epoch,
            "train_accuracy": 0.8,
            "accuracy": 0.7,
        }
        for seed in range(6)
        for epoch in (1, 2, 3)
    ]
    cache = {"dataset": "ag_news", "rows": {"train": 99, "test": 400}}
    common = {"cache": cache, "classes": tuple(AG_NEWS), "log": log}
    runs = [
        build_run("gaam", answers(6, 0.95, 1), attention_map=RNG.random((6, 6, 600)),
                  learned={"xi": RNG.random((6, 3, 8)).astype(np.float32)}, **common),
        build_run("generalized-gaussian:heads=1,location=median", answers(6, 0.8, 2),
                  attention_map=RNG.random((6, 2, 1, 6)), failed={2: ATTACK}, **common),
        build_run("none", answers(6, 0.8, 3), select="test", **common),
        build_run("none", answers(6, 0.8, 3), **common),
        build_run("none", answers(3, 0.8, 3), cache={"fingerprint": "e" * 64, "dataset": ATTACK}),
    ]  # fmt: skip
    return build_tables(runs)


class Outline(HTMLParser):
    """Checks nesting, and collects ids, headings, references and tables."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.links += [
            str(values[k]) for k in ("href", "src", "xlink:href") if k in values
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_accessible_and_asks_for_nothing() -> None:
    outline = Outline()
    text = written("html", rich_tables())
    outline.feed(text)
    outline.close()
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(outline.headings))
    names = [tag for tag, _ in outline.tags]
    assert names.count("caption") == names.count("table") > 4
    assert all(
        values.get("scope") in ("col", "row")
        for tag, values in outline.tags
        if tag == "th"
    )
    pictures = [values for tag, values in outline.tags if tag == "svg"]
    assert len(pictures) > 6
    assert all(values["role"] == "img" and values["aria-label"] for values in pictures)
    assert ("html", {"lang": "en"}) in outline.tags
    assert not {"script", "iframe", "object", "form"} & set(names)
    for link in outline.links:
        assert link.startswith(("#", "data:")), link
        assert not link.startswith("#") or link[1:] in outline.ids
    assert "<img src=x" not in text
    assert "&lt;img src=x" in text


def test_on_a_telephone_the_columns_that_answer_stand_before_those_that_scroll() -> (
    None
):
    """Below the decoder at most four, which share the width; a browser puts all others behind."""
    runs = [
        build_run("gaam", answers(8, 0.9, 1)),
        build_run("none", answers(8, 0.8, 2)),
    ]
    (table,), (alone,) = build_tables(runs), build_tables(runs[:1])
    assert "--columns:repeat(2,calc(100%/2))" in written(
        "html", [alone]
    )  # its own interval
    outline = Outline()
    outline.feed(written("html", [table]))
    tables = [values for tag, values in outline.tags if tag == "table"]
    assert tables[0]["class"] == "fold"
    assert str(tables[0]["style"]).startswith(
        "--columns:repeat(4,calc(100%/4)) repeat("
    )
    of_main = list(takewhile(lambda tag: tag[0] != "figure", outline.tags))
    cells = [values for tag, values in of_main if tag in ("th", "td")]
    behind = [cell for cell in cells if "rest" in str(cell.get("class"))]
    columns = len(sheet(table).header)
    assert len(cells) == 3 * columns
    assert len(behind) == 3 * (columns - 5)


def pictures_of(table: Table) -> dict[str, Picture]:
    every = [picture for section in sections(table) for picture in section.parts[1]]
    return {picture.name: picture for picture in [*overviews(table), *every]}


def test_pictures_are_well_formed_and_take_their_colours_from_the_page() -> None:
    names = set()
    for table in rich_tables():
        for name, picture in pictures_of(table).items():
            names.add(name)
            svg = inline_svg(
                replace(picture, title='of "xi" & <others>', caption=""), "k1"
            )
            root = ET.fromstring(svg)
            assert root.get("aria-label") == 'of "xi" & <others>. '
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
                assert len(axes.lines) <= MOST_LINES + 1 or name in (
                    "accuracy",
                    "differences",
                )
    assert {"accuracy", "differences", "curves", "importance", "reliability"} <= names


def test_what_pictures_show_are_the_numbers_of_the_table() -> None:
    gate = np.arange(4.0)[:, None, None] + np.ones((4, 6, 5))
    gate[2] = np.nan
    runs = [
        build_run(
            "gaam", answers(4, 0.8, 1), path="a", failed={2: "nan"}, attention_map=gate
        ),
        build_run(
            "gaam", answers(4, 0.8, 2), path="b", seeds=(3, 4, 5, 6), attention_map=gate
        ),
    ]
    runs[1].failed[5] = "nan"  # and seed 3 is there twice
    vars(runs[1])["logits"][2] = np.nan
    (table,) = build_tables(runs)
    found, row = pictures_of(table), table.entries[0]
    (share,) = [
        n for n in found["importance"].draw().axes[0].lines if n.get_label() == "gaam"
    ]
    np.testing.assert_allclose(share.get_ydata(), 100 / 6)
    assert found["importance"].draw().axes[0].get_ylim()[0] == 0
    dots, mean, both, seeds = found["accuracy"].draw().axes[0].lines
    np.testing.assert_allclose(
        sorted(dots.get_xdata()), sorted(100 * row.accuracy.scored.values)
    )
    np.testing.assert_allclose(mean.get_xdata(), 100 * (row.accuracy.mean or 0))
    np.testing.assert_allclose(both.get_xdata(), 100 * np.array(row.accuracy.two_level))
    np.testing.assert_allclose(seeds.get_xdata(), 100 * np.array(row.accuracy.interval))


@pytest.mark.filterwarnings("error")
def test_a_dozen_files_at_most_are_written_each_with_its_title(tmp_path: Path) -> None:
    paths = Report(tuple(rich_tables())).save_figures(tmp_path)
    assert 4 <= len(paths) == len(set(paths)) <= 12
    for path in paths:
        start = b"%PDF" if path.suffix == ".pdf" else b"\x89PNG"
        assert path.read_bytes().startswith(start)


@pytest.mark.filterwarnings("error")
def test_pictures_draw_every_name_and_obey_none() -> None:
    names = [name[:80] for name in HOSTILE.values()]
    lines = [Line(name, [1, 2], [3, 4]) for name in names]
    panels = [("y", lines[first : first + 8]) for first in range(0, len(lines), 8)]
    few = [("y", [line]) for line in lines[:9]]
    picture = Picture("p", "".join(names), "", lambda: line_panels(few, "x"))
    svg = inline_svg(replace(picture, draw=lambda: line_panels(panels, "x")), "k")
    assert not harmful(svg)
    kinds = {element.tag.split("}")[-1] for element in ET.fromstring(svg).iter()}
    assert not {"script", "a", "foreignObject", "image"} & kinds
    assert HOSTILE["Chinese"] in "".join(ET.fromstring(svg).itertext())
    assert image_files(picture)["pdf"].startswith(b"%PDF")  # whatever our font lacks


def test_contrast_is_that_of_wcag_aa_in_light_and_dark() -> None:
    def luminance(colour: str) -> float:
        part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(
            part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4
        )
        return float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05

    for of in COLOURS.values():
        pairs = [
            (of[n], of[on])
            for n in ("ink", "muted", "accent")
            for on in ("paper", "panel")
        ]
        for first, second in [*pairs, (of["warn"], of["warn-paper"])]:
            low, high = sorted(map(luminance, (first, second)))
            assert high / low >= 4.5, (first, second)
