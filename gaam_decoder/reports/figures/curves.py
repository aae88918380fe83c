"""Learning curves.

S seeds, E epochs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gaam_decoder.reports.figures.names import distinct
from gaam_decoder.reports.figures.style import DASHES, SERIES, new_figure


def learning_curves(
    labels: Sequence[str], curves: Sequence[NDArray[np.float64] | None], *, what: str
) -> Figure:
    """Mean over seeds by epoch, in a band of one standard deviation.

    Args:
        labels: at most eight mechanisms.
        curves: for every mechanism (S, E), NaN where a seed has no value, or None where there is
            nothing to show.
        what: is drawn.
    """
    columns = 2 if max(map(len, labels)) <= 16 else 1  # two long names do not fit side by side
    figure = new_figure(2.3 + 0.19 * -(-len(labels) // columns))
    axes = figure.add_subplot()
    handles, names = [], []
    short = distinct(labels, 40)
    for number, (label, value_SE) in enumerate(zip(short, curves, strict=True)):
        if value_SE is None:
            continue
        seen_E = np.flatnonzero(np.isfinite(value_SE).any(0))
        mean_E = np.nanmean(value_SE[:, seen_E], 0)
        sd_E = np.nanstd(value_SE[:, seen_E], 0)
        color = SERIES[number % len(SERIES)]
        (line,) = axes.plot(
            seen_E + 1, mean_E, color=color, ls=DASHES[number % len(DASHES)], lw=1.5,
            marker="o" if len(seen_E) == 1 else None,
        )  # fmt: skip
        axes.fill_between(seen_E + 1, mean_E - sd_E, mean_E + sd_E, color=color, alpha=0.18, lw=0)
        handles.append(line)
        names.append(label)
    axes.set_ylabel(what)
    axes.set_xlabel("epoch")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(handles, names, loc="outside upper left", ncols=columns, handlelength=2.6)
    return figure
