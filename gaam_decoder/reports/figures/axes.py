"""Accuracy along one number of a recipe, and over a grid of two. In percent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray

from gaam_decoder.reports.figures.names import distinct
from gaam_decoder.reports.figures.style import DASHES, PALETTE, SERIES, WIDTH, new_figure

MOST_TICKS = 12
"""Values that are written below an axis."""
WRITTEN = 12
"""Values of an axis up to which a number fits into every cell."""

Points = tuple[Sequence[float], Sequence[float], Sequence[tuple[float, float] | None]]
"""Values, mean accuracies, and their intervals."""


def accuracy_along(
    labels: Sequence[str], lines: Sequence[Points], name: str, *, log: bool
) -> Figure:
    """One line per series: means, and the band of their intervals.

    Args:
        labels: at most eight series.
        lines: their points.
        name: of the axis.
        log: whether equal ratios are equal steps.
    """
    short = distinct(labels, 40)
    columns = 2 if max(map(len, short)) <= 16 else 1
    figure = new_figure(2.4 + 0.19 * -(-len(labels) // columns))
    axes = figure.add_subplot()
    handles = []
    for number, (values, means, intervals) in enumerate(lines):
        color = SERIES[number % len(SERIES)]
        low = [found[0] if found else mean for mean, found in zip(means, intervals, strict=True)]
        high = [found[1] if found else mean for mean, found in zip(means, intervals, strict=True)]
        axes.fill_between(values, low, high, color=color, alpha=0.4 / max(3, len(lines)), lw=0)
        (line,) = axes.plot(
            values, means, color=color, ls=DASHES[number % len(DASHES)], lw=1.5, marker="o", ms=3
        )
        handles.append(line)
    if log:
        axes.set_xscale("log")
    ticks = sorted({value for values, _, _ in lines for value in values})
    ticks = ticks[:: -(-len(ticks) // MOST_TICKS)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    axes.set_xlabel(f"{name} (log scale)" if log else name)
    axes.set_ylabel("test accuracy, %")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    figure.legend(handles, short, loc="outside upper left", ncols=columns, handlelength=2.6)
    return figure


def accuracy_grid(
    value_RC: NDArray[np.float64], rows: Sequence[float], columns: Sequence[float],
    names: tuple[str, str],
) -> Figure:  # fmt: skip
    """A cell for every pair of values, the darker the more accurate; NaN is left empty.

    Args:
        value_RC: in percent.
        rows: values of the first axis.
        columns: of the second.
        names: of both.
    """
    low, high = float(np.nanmin(value_RC)), float(np.nanmax(value_RC))
    figure = new_figure(min(WIDTH, 1.1 + 0.36 * len(rows)))
    axes = figure.add_subplot()
    for row, column in np.ndindex(value_RC.shape):
        value = float(value_RC[row, column])
        if np.isnan(value):
            continue
        # nearly clear to opaque enough, so that one colour of text is legible on all of them
        share = (value - low) / (high - low) if high > low else 0.5
        axes.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5), 1, 1, lw=0, color=PALETTE["accent"],
                alpha=0.03 + 0.42 * share,
            )
        )  # fmt: skip
        if len(columns) <= WRITTEN:
            axes.text(column, row, f"{value:.1f}", ha="center", va="center")
    for axis, values in ((axes.yaxis, rows), (axes.xaxis, columns)):
        step = -(-len(values) // MOST_TICKS)
        axis.set_ticks(range(0, len(values), step), [f"{value:g}" for value in values[::step]])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_ylabel(names[0])
    axes.set_xlabel(names[1])
    return figure
