"""The page as a reader meets it, well formed, in light and dark; and its pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gaam_decoder.reports.columns import entries_sheet
from gaam_decoder.reports.drawing import (
    COLOURS,
    MOST_LINES,
    PALETTE,
    Line,
    Panel,
    Picture,
    image_files,
    inline_svg,
    line_panels,
    overview_pictures,
)
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.sections import sections
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import (
    AG_NEWS,
    answers,
    build_run,
    change_arrays,
    text_of,
)
from tests.hostile_strings import HOSTILE, harmful

VOID = {"meta", "link", "br", "wbr", "img"}
"""Tags without an end."""
ATTACK = (
    '<img src=x onerror="console.error(1)">'
    '<script src="http://127.0.0.1:9/x.js"></script>'
)


@pytest.fixture(scope="module")
def rich_tables() -> list[Table]:
    """All that a page can show: two caches, maps, learned parameters, a failure."""
    rng = np.random.default_rng(1)
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
    common: dict[str, Any] = {
        "cache": {"dataset": "ag_news", "rows": {"train": 99, "test": 400}},
        "classes": tuple(AG_NEWS),
        "log": log,
    }
    gaam = build_run(
        "gaam",
        answers(6, 0.95, 1),
        attention_map=rng.random((6, 6, 600)),
        learned={"xi": rng.random((6, 3, 8)).astype(np.float32)},
        **common,
    )
    failing = build_run(
        "generalized-gaussian:heads=1,location=median",
        answers(6, 0.8, 2),
        attention_map=rng.random((6, 2, 1, 6)),
        failed={2: ATTACK},
        **common,
    )
    chosen_on_test = build_run("none", answers(6, 0.8, 3), select="test", **common)
    none = build_run("none", answers(6, 0.8, 3), **common)
    other_cache = {"fingerprint": "e" * 64, "dataset": ATTACK}
    of_another_cache = build_run("none", answers(3, 0.8, 3), cache=other_cache)
    return build_tables([gaam, failing, chosen_on_test, none, of_another_cache])


class Tag(NamedTuple):
    """The start of an element."""

    name: str
    attributes: dict[str, str | None]


class Outline(HTMLParser):
    """Checks nesting, and collects the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[Tag] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(Tag(tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def names(self) -> list[str]:
        return [tag.name for tag in self.tags]

    def attributes_of(self, *names: str) -> list[dict[str, str | None]]:
        return [tag.attributes for tag in self.tags if tag.name in names]

    def values(self, *keys: str) -> list[str]:
        """The values of attributes of all tags, where they are not empty."""
        return [
            str(tag.attributes[key])
            for tag in self.tags
            for key in keys
            if tag.attributes.get(key)
        ]


@pytest.fixture(scope="module")
def rich_page(rich_tables: list[Table]) -> str:
    return text_of("html", rich_tables)


def test_the_page_is_well_formed_and_accessible(rich_page: str) -> None:
    outline = Outline(rich_page)
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    names = outline.names()
    headings = [int(name[1]) for name in names if re.fullmatch("h[1-6]", name)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    assert names.count("caption") == names.count("table") > 4
    for attributes in outline.attributes_of("th"):
        assert attributes.get("scope") in ("col", "row")
    pictures = outline.attributes_of("svg")
    assert len(pictures) > 6
    for attributes in pictures:
        assert attributes["role"] == "img"
        assert attributes["aria-label"]
    assert outline.attributes_of("html") == [{"lang": "en"}]


def test_the_page_asks_for_nothing(rich_page: str) -> None:
    outline = Outline(rich_page)
    assert not {"script", "iframe", "object", "form"} & set(outline.names())
    ids = outline.values("id")
    for link in outline.values("href", "src", "xlink:href"):
        assert link.startswith(("#", "data:")), link
        if link.startswith("#"):
            assert link[1:] in ids
    assert "<img src=x" not in rich_page
    assert "&lt;img src=x" in rich_page


def test_on_a_telephone_the_columns_that_answer_stand_before_those_that_scroll() -> (
    None
):
    """Below the decoder at most four share the width; all others stand behind."""
    runs = [
        build_run("gaam", answers(8, 0.9, 1)),
        build_run("none", answers(8, 0.8, 2)),
    ]
    tables = build_tables(runs)
    outline = Outline(text_of("html", tables))
    main_table = outline.attributes_of("table")[0]
    assert main_table["class"] == "fold"
    style = str(main_table["style"])
    assert style.startswith("--columns:repeat(4,calc(100%/4)) repeat(")
    # the main table stands before the first picture
    tags = takewhile(lambda tag: tag.name != "figure", outline.tags)
    cells = [tag.attributes for tag in tags if tag.name in ("th", "td")]
    behind = [cell for cell in cells if "rest" in str(cell.get("class"))]
    num_columns = len(entries_sheet(tables[0]).header)
    assert len(cells) == 3 * num_columns
    assert len(behind) == 3 * (num_columns - 5)


def test_a_decoder_alone_has_the_column_of_its_own_interval_on_a_telephone() -> None:
    tables = build_tables([build_run("gaam", answers(8, 0.9, 1))])
    assert "--columns:repeat(2,calc(100%/2))" in text_of("html", tables)


def pictures_of(table: Table) -> dict[str, Picture]:
    """All pictures of a page, by name."""
    pictures = list(overview_pictures(table))
    for section in sections(table):
        pictures += section.parts[1]
    return {picture.name: picture for picture in pictures}


def test_pictures_are_well_formed_and_take_their_colours_from_the_page(
    rich_tables: list[Table],
) -> None:
    names: set[str] = set()
    for table in rich_tables:
        for name, picture in pictures_of(table).items():
            names.add(name)
            check_svg(picture)
            check_number_of_lines(picture)
    assert {"accuracy", "differences", "curves", "importance", "reliability"} <= names


def check_svg(picture: Picture) -> None:
    name = picture.name
    picture = replace(picture, title='of "xi" & <others>', caption="")
    svg = inline_svg(picture, "k1")
    root = ET.fromstring(svg)
    assert root.get("aria-label") == 'of "xi" & <others>. '
    assert not re.search(r"#[0-9a-f]{6}\b", svg), f"a fixed colour in {name}"
    variables = set(re.findall(r"var\(--(\w+)\)", svg))
    assert "ink" in variables
    assert variables <= set(PALETTE)
    without_namespaces = re.sub(r'xmlns(:xlink)?="[^"]+"', "", svg)
    assert "http" not in without_namespaces
    ids = re.findall(r' id="([^"]+)"', svg)
    assert len(ids) == len(set(ids))
    references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg)
    for reference in references:
        assert "".join(reference) in ids


def check_number_of_lines(picture: Picture) -> None:
    # a line for every decoder
    if picture.name in ("accuracy", "differences"):
        return
    for axes in picture.draw().axes:
        assert len(axes.lines) <= MOST_LINES + 1, picture.name


def table_of_two_runs() -> Table:
    """Seeds in two runs; one seed of each failed, and seed 3 is in both."""
    map_SLD = np.arange(4.0)[:, None, None] + np.ones((4, 6, 5))
    map_SLD[2] = np.nan
    first = build_run(
        "gaam", answers(4, 0.8, 1), path="a", failed={2: "nan"}, attention_map=map_SLD
    )
    second = build_run(
        "gaam", answers(4, 0.8, 2), path="b", seeds=(3, 4, 5, 6), attention_map=map_SLD
    )
    second.failed[5] = "nan"
    logits = second.logits.copy()
    logits[2] = np.nan
    change_arrays(second, logits=logits)
    [table] = build_tables([first, second])
    return table


def test_the_picture_of_importance_shows_the_numbers_of_the_table() -> None:
    picture = pictures_of(table_of_two_runs())["importance"]
    axes = picture.draw().axes[0]
    [line] = [line for line in axes.lines if line.get_label() == "gaam"]
    np.testing.assert_allclose(np.asarray(line.get_ydata()), 100 / 6)
    assert axes.get_ylim()[0] == 0


def test_the_picture_of_accuracies_shows_the_numbers_of_the_table() -> None:
    table = table_of_two_runs()
    accuracy = table.entries[0].default_score
    picture = pictures_of(table)["accuracy"]
    dots, mean, seeds_rows_interval, over_seeds = picture.draw().axes[0].lines
    values = sorted(100 * accuracy.scored.values)
    np.testing.assert_allclose(sorted(np.asarray(dots.get_xdata())), values)
    assert accuracy.mean is not None
    np.testing.assert_allclose(np.asarray(mean.get_xdata()), 100 * accuracy.mean)
    np.testing.assert_allclose(
        np.asarray(seeds_rows_interval.get_xdata()),
        100 * np.array(accuracy.seeds_rows_interval),
    )
    np.testing.assert_allclose(
        np.asarray(over_seeds.get_xdata()), 100 * np.array(accuracy.seeds_interval)
    )


@pytest.mark.filterwarnings("error")
def test_a_dozen_files_at_most_are_written_each_with_its_title(
    rich_tables: list[Table], tmp_path: Path
) -> None:
    paths = Report(tuple(rich_tables)).save_figures(tmp_path)
    assert 4 <= len(paths) == len(set(paths)) <= 12
    for path in paths:
        start = b"%PDF" if path.suffix == ".pdf" else b"\x89PNG"
        assert path.read_bytes().startswith(start)


@pytest.mark.filterwarnings("error")
def test_pictures_draw_every_name_and_obey_none() -> None:
    names = [name[:80] for name in HOSTILE.values()]
    lines = [Line(name, [1, 2], [3, 4]) for name in names]
    panels = [Panel("y", lines[first : first + 8]) for first in range(0, len(lines), 8)]
    picture = Picture("p", "".join(names), "", lambda: line_panels(panels, "x"))
    svg = inline_svg(picture, "k")
    assert not harmful(svg)
    root = ET.fromstring(svg)
    kinds = {element.tag.split("}")[-1] for element in root.iter()}
    assert not {"script", "a", "foreignObject", "image"} & kinds
    assert HOSTILE["Chinese"] in "".join(root.itertext())


@pytest.mark.filterwarnings("error")
def test_a_file_has_every_name_even_where_our_font_lacks_its_letters() -> None:
    names = [name[:80] for name in HOSTILE.values()]
    panels = [Panel("y", [Line(name, [1, 2], [3, 4])]) for name in names[:9]]
    picture = Picture("p", "".join(names), "", lambda: line_panels(panels, "x"))
    assert image_files(picture)["pdf"].startswith(b"%PDF")


def luminance(colour: str) -> float:
    """The relative luminance of WCAG of ``#rrggbb``, raised by its 0.05."""
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05


PAIRS_OF_COLOURS = [
    *(
        (text, ground)
        for text in ("ink", "muted", "accent")
        for ground in ("paper", "panel")
    ),
    ("warn", "warn-paper"),
]


@pytest.mark.parametrize("theme", COLOURS)
@pytest.mark.parametrize(("text", "ground"), PAIRS_OF_COLOURS)
def test_contrast_is_that_of_wcag_aa(theme: str, text: str, ground: str) -> None:
    colours = COLOURS[theme]
    low, high = sorted([luminance(colours[text]), luminance(colours[ground])])
    assert high / low >= 4.5
