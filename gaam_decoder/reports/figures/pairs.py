"""Differences of all pairs as a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from gaam_decoder.reports.figures.names import distinct
from gaam_decoder.reports.figures.style import PALETTE, WIDTH, new_figure

WRITTEN = 9
"""Rows up to which a difference fits into its cell; of more only the mark is written."""


def matrix(
    difference_KK: NDArray[np.float64],
    labels: Sequence[str],
    marks: Sequence[Sequence[str]],
    digits: int,
) -> Figure:
    """A cell for every pair, the stronger coloured the larger the difference; NaN is empty.

    Args:
        difference_KK: row minus column.
        labels: of the K rows.
        marks: of every cell.
        digits: behind the point.
    """
    count = len(labels)
    largest = float(np.nanmax(np.abs(difference_KK), initial=0.0)) or 1.0
    figure = new_figure(min(WIDTH, 0.95 + 0.3 * count))
    axes = figure.add_subplot()
    for row, column in np.ndindex(difference_KK.shape):
        value = float(difference_KK[row, column])
        if np.isnan(value):
            continue
        axes.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5), 1, 1, lw=0,
                color=PALETTE["c0" if value > 0 else "c1"],
                alpha=0.03 + 0.42 * abs(value) / largest,
            )
        )  # fmt: skip
        text = f"{value:+.{digits}f}" if count <= WRITTEN - 3 * (digits > 1) else ""
        size = 8.5 if count <= 6 else 7
        axes.text(column, row, text + marks[row][column], ha="center", va="center", fontsize=size)
    short = distinct(labels, 24)
    axes.set_xticks(range(count), [str(place) for place in range(1, count + 1)])
    axes.set_yticks(range(count), [f"{name}  {place}" for place, name in enumerate(short, 1)])
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.set_xlabel("row minus column")
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure
