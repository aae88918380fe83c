"""Accuracies of all seeds, and differences to a baseline.

S seeds. Everything is in percent or percentage points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from gaam_decoder.reports.figures.names import on_two_lines
from gaam_decoder.reports.figures.style import PALETTE, name_rows, new_figure, shorten

Interval = tuple[float, float] | None
ROW = 0.36
"""Inches of one row: two lines of text."""
LONGEST = 26
"""Characters of a line beside a row."""
LONGEST_AXIS = 36
"""Characters of a line below an axis, which is narrower than the picture."""


def strip(
    labels: Sequence[str],
    accuracies: Sequence[NDArray[np.float64]],
    over_seeds: Sequence[Interval],
    two_level: Sequence[Interval],
    *,
    what: str = "test accuracy, %",
) -> Figure:
    """One row per mechanism: a dot for each seed, the mean, and both intervals.

    Args:
        labels: names of the rows.
        accuracies: (S,) for every row, in percent; may be empty.
        over_seeds: t interval of every row.
        two_level: interval over seeds and test rows.
        what: label of the axis.
    """
    figure = new_figure(0.95 + ROW * len(labels))
    axes = figure.add_subplot()
    for row, (value_S, seeds, both) in enumerate(
        zip(accuracies, over_seeds, two_level, strict=True)
    ):
        if both:
            axes.plot(both, [row + 0.18] * 2, color=PALETTE["muted"], lw=1.2)
        if seeds:
            axes.plot(seeds, [row + 0.18] * 2, color=PALETTE["accent"], lw=3.2, alpha=0.75)
        if len(value_S):
            axes.plot(
                value_S, row - 0.16 + _spread(value_S), "o", ms=3.4, mew=0, color=PALETTE["c0"],
                alpha=0.6,
            )  # fmt: skip
            axes.plot([value_S.mean()] * 2, [row - 0.36, row + 0.32], color=PALETTE["ink"], lw=1.4)
    name_rows(axes, on_two_lines(labels, LONGEST))
    axes.set_xlabel(what)
    _legend(
        figure,
        Line2D([], [], marker="o", ls="", ms=3.4, mew=0, color=PALETTE["c0"], alpha=0.6),
        Line2D([], [], color=PALETTE["ink"], lw=1.4),
    )
    return figure


def forest(
    labels: Sequence[str],
    differences: Sequence[float],
    over_seeds: Sequence[Interval],
    two_level: Sequence[Interval],
    significant: Sequence[bool],
    *,
    baseline: str,
    margin: float,
    unit: str = "percentage points",
) -> Figure:
    """Differences to a baseline with both intervals; filled where the corrected test finds one.

    Args:
        labels: names of the rows.
        differences: mean paired difference, in points.
        over_seeds: t interval of it.
        two_level: interval over seeds and test rows.
        significant: whether Holm's p is below 0.05.
        baseline: what is subtracted.
        margin: differences that do not matter, in points; a band.
        unit: what differences are in.
    """
    what = f"difference to {shorten(baseline)}"
    lines = 1 + (len(what) + len(unit) > LONGEST_AXIS)
    figure = new_figure(0.97 + 0.15 * lines + ROW * len(labels))
    axes = figure.add_subplot()
    axes.axvspan(-margin, margin, color=PALETTE["muted"], alpha=0.15, lw=0)
    axes.axvline(0, color=PALETTE["ink"], lw=1)
    for row, (difference, seeds, both, found) in enumerate(
        zip(differences, over_seeds, two_level, significant, strict=True)
    ):
        if both:
            axes.plot(both, [row] * 2, color=PALETTE["muted"], lw=1.2)
        if seeds:
            axes.plot(seeds, [row] * 2, color=PALETTE["accent"], lw=3.2, alpha=0.75)
        axes.plot(
            difference, row, "o", ms=6, mew=1.4, mec=PALETTE["ink"],
            mfc=PALETTE["ink"] if found else "none",
        )  # fmt: skip
    name_rows(axes, on_two_lines(labels, LONGEST))
    axes.set_xlabel(f"{what},{' ' if lines == 1 else chr(10)}{unit}")
    _legend(
        figure,
        _mean_dot(filled=False),
        _mean_dot(filled=True),
        names=("mean", "mean, Holm p < 0.05"),
        margin=margin,
    )
    return figure


def _mean_dot(*, filled: bool) -> Line2D:
    ink = PALETTE["ink"]
    face = ink if filled else "none"
    return Line2D([], [], marker="o", ls="", ms=6, mew=1.4, mec=ink, mfc=face)


def _legend(
    figure: Figure,
    first: Line2D,
    second: Line2D,
    names: tuple[str, str] = ("one seed", "mean"),
    margin: float | None = None,
) -> None:
    handles: list[Artist] = [
        first,
        second,
        Line2D([], [], color=PALETTE["accent"], lw=3.2, alpha=0.75),
        Line2D([], [], color=PALETTE["muted"], lw=1.2),
    ]
    texts = [*names, "95% over seeds", "95% over seeds and rows"]
    if margin is not None:
        handles.append(Patch(color=PALETTE["muted"], alpha=0.15, lw=0))
        texts.append(f"within \u00b1{margin:g}")
    figure.legend(handles, texts, loc="outside upper left", ncols=2, handlelength=1.4)


def _spread(value_S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Heights that keep dots apart: by rank, not by chance, so that a picture is repeatable."""
    steps = np.array([0.0, 0.13, -0.13, 0.06, -0.06])
    height = np.empty(len(value_S))
    height[np.argsort(value_S, kind="stable")] = np.resize(steps, len(value_S))
    return height
