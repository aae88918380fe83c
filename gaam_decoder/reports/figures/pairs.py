"""Differences of all pairs as a matrix, and mean ranks on a line."""

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


def critical_difference(
    mean_ranks: Sequence[float], labels: Sequence[str], distance: float,
    alike: Sequence[Sequence[int]],
) -> Figure:  # fmt: skip
    """Mean ranks on a line, the best at the left, and bars that join what does not differ.

    Args:
        mean_ranks: of the K mechanisms.
        labels: their names.
        distance: critical difference of two ranks.
        alike: places in each group that a bar joins.
    """
    count = len(labels)
    order = sorted(range(count), key=lambda place: mean_ranks[place])
    short = distinct(labels, 20)
    half = -(-count // 2)
    deep = 0.35 * len(alike) + 0.5
    figure = new_figure(0.7 + 0.2 * (half + deep))
    axes = figure.add_subplot()
    axes.plot([1, count], [0, 0], color=PALETTE["ink"], lw=0.8)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [0, 0.2], color=PALETTE["ink"], lw=0.8)
        axes.text(tick, 0.3, str(tick), ha="center", va="bottom")
    axes.plot([1, 1 + distance], [1.6, 1.6], color=PALETTE["accent"], lw=2)
    axes.text(1, 1.75, f"critical difference {distance:.2f}", ha="left", va="bottom")
    for number, group in enumerate(alike):
        ends = [mean_ranks[group[0]], mean_ranks[group[-1]]]
        level = -0.35 * (number + 1.0)
        axes.plot(ends, [level, level], color=PALETTE["accent"], lw=2.5, solid_capstyle="butt")
    for number, place in enumerate(order):
        left = number < half
        below = -deep - (number if left else count - 1 - number) - 0.3
        end = 0.8 if left else count + 0.2
        rank = mean_ranks[place]
        axes.plot([rank, rank, end], [0, below, below], color=PALETTE["muted"], lw=0.8)
        side = "right" if left else "left"
        axes.text(end + (-0.05 if left else 0.05), below, short[place], ha=side, va="center")
    room = 0.35 * count + 0.6
    axes.set_xlim(0.8 - room, count + 0.2 + room)
    axes.set_ylim(-deep - half - 0.2, 2.7)
    axes.set_axis_off()
    return figure
