from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from gaam_decoder.reports.figures import (
    accuracy,
    attention,
    confusion,
    curves,
    learned,
    output,
)
from gaam_decoder.reports.figures.style import PALETTE

RNG = np.random.default_rng(0)
FIGURES: dict[str, Callable[[], Figure]] = {
    "strip": lambda: accuracy.strip(
        ["gaam", "mha $x$ & <b>", "one seed", "all failed"],
        [RNG.normal(88, 1, 10), RNG.normal(87, 1, 3), np.array([86.0]), np.array([])],
        [(87.0, 89.0), (86.0, 88.0), None, None],
        [(86.0, 90.0), (85.0, 89.0), None, None],
    ),
    "forest": lambda: accuracy.forest(
        ["gaam", "mha"], [0.5, -0.2], [(0.1, 0.9), None], [(0.0, 1.0), None], [True, False],
        baseline="none", margin=0.5,
    ),
    "curves": lambda: curves.learning_curves(
        ["a", "b", "c"], [RNG.random((3, 5)), RNG.random((1, 1)), None], what="loss"
    ),
    "heatmap": lambda: attention.importance_heatmap(RNG.random((40, 1000)), range(1, 41)),
    "contributions": lambda: attention.layer_contributions(RNG.random((5, 40)), range(1, 41)),
    "contributions of one seed": lambda: attention.layer_contributions(np.eye(1, 3), [7, 8, 9]),
    "learned": lambda: learned.histograms(
        {"xi": RNG.random((3, 2, 8)), "constant": np.full((3, 2), 5.0), "nan": np.r_[1, np.nan]}
    ),
    "confusion": lambda: confusion.confusion_matrix(
        np.array([[3, 1], [0, 0]]), ["World", "a very long class name indeed"]
    ),
}  # fmt: skip


def test_pictures_are_well_formed_and_take_their_colours_from_the_page() -> None:
    for draw in FIGURES.values():
        svg = output.inline_svg(draw, key="k1", alt='of "xi" & <others>')
        root = ET.fromstring(svg)
        assert root.get("aria-label") == 'of "xi" & <others>'
        assert not re.search(r"#[0-9a-f]{6}\b", re.sub(r"base64,[^\"]+", "", svg)), "a fixed colour"
        variables = set(re.findall(r"var\(--(\w+)\)", svg))
        assert "ink" in variables
        assert variables <= set(PALETTE)
        assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]+"', "", svg)
        ids = re.findall(r' id="([^"]+)"', svg)
        assert len(ids) == len(set(ids))
        for reference in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg):
            assert "".join(reference) in ids


def test_pictures_for_a_paper_are_pdf_and_png() -> None:
    files = output.image_files(FIGURES["forest"])
    assert list(files) == ["pdf", "png"]
    assert files["pdf"].startswith(b"%PDF")
    assert files["png"].startswith(b"\x89PNG")


def test_what_the_strip_plot_shows_are_the_numbers() -> None:
    values = np.array([88.1, 88.9, 87.5])
    axes = accuracy.strip(["a"], [values], [(87, 89)], [(86, 90)]).axes[0]
    both, seeds, dots, mean = axes.lines
    assert list(both.get_xdata()) == [86, 90]
    assert list(seeds.get_xdata()) == [87, 89]
    assert sorted(dots.get_xdata()) == sorted(values)
    np.testing.assert_allclose(mean.get_xdata(), values.mean())


def test_values_that_hardly_differ_have_a_histogram() -> None:
    """Parameters that all moved alike differ in their last digits, which are no bins."""
    for start, steps in product((0.0, 1.0, 1e6), (0, 1, 3)):
        value = np.float32(start)
        for _ in range(steps):
            value = np.nextafter(value, np.float32(np.inf))
        values = np.array([[start, value] * 20], dtype=np.float32)
        assert learned.histograms({"k": values}).axes
