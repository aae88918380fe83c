"""How often what is predicted is right, against how sure it was.

B bins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gaam_decoder.reports.figures.names import distinct
from gaam_decoder.reports.figures.style import PALETTE, new_figure

MARKS = "os^D"
FEWEST = 5
"""Rows of a bin that is drawn: the share of fewer is anything."""


def reliability_diagram(labels: Sequence[str], bins: Sequence[NDArray[np.float64]]) -> Figure:
    """A line for every row; on the dashed one probabilities are what they say.

    Args:
        labels: names of the rows, four at most.
        bins: of every row its rows, right ones, and the sum of their probabilities, (3, B).
    """
    figure = new_figure(3.2 + 0.18 * len(labels))
    axes = figure.add_subplot()
    axes.plot([0, 100], [0, 100], "--", color=PALETTE["muted"], lw=1)
    short = distinct(labels, 40)
    for place, (label, (count_B, right_B, sure_B)) in enumerate(zip(short, bins, strict=True)):
        there_B = count_B >= FEWEST
        axes.plot(
            100 * sure_B[there_B] / count_B[there_B],
            100 * right_B[there_B] / count_B[there_B],
            f"{MARKS[place]}-", color=PALETTE[f"c{place}"], ms=4.5, mew=0, lw=1.4,
            label=label,
        )  # fmt: skip
    axes.set_xlabel("mean probability of what is predicted, %")
    axes.set_ylabel("accuracy, %")
    figure.legend(loc="outside upper left", ncols=1, handlelength=1.8)
    return figure
