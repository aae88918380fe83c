"""Learning curves.

S seeds, E epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gaam_decoder.reports.figures.style import DASHES, SERIES, new_figure, shorten


def learning_curves(
    labels: Sequence[str], panels: Mapping[str, Sequence[NDArray[np.float64] | None]]
) -> Figure:
    """Mean over seeds by epoch, in a band of one standard deviation.

    Args:
        labels: at most eight mechanisms.
        panels: what is drawn on each vertical axis -> for every mechanism (S, E), NaN where a seed
            has no value, or None where there is nothing to show.
    """
    rows_of_legend = (len(labels) + 1) // 2
    figure = new_figure(0.35 + 1.75 * len(panels) + 0.19 * rows_of_legend)
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    handles = {}
    for axes, (title, curves) in zip(all_axes, panels.items(), strict=True):
        for number, (label, value_SE) in enumerate(zip(labels, curves, strict=True)):
            if value_SE is None:
                continue
            seen_E = np.flatnonzero(np.isfinite(value_SE).any(0))
            mean_E = np.nanmean(value_SE[:, seen_E], 0)
            sd_E = np.nanstd(value_SE[:, seen_E], 0)
            color = SERIES[number % len(SERIES)]
            dashes = DASHES[number % len(DASHES)]
            (line,) = axes.plot(seen_E + 1, mean_E, color=color, ls=dashes, lw=1.5)
            axes.fill_between(
                seen_E + 1, mean_E - sd_E, mean_E + sd_E, color=color, alpha=0.18, lw=0
            )
            handles[shorten(label)] = line
        axes.set_ylabel(title)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    all_axes[-1].set_xlabel("epoch")
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper left", ncols=2, handlelength=2.6
    )
    return figure
