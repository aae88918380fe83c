"""Learned parameters of a mechanism.

S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gaam_decoder.reports.figures.style import PALETTE, new_figure, shorten


def histograms(learned: Mapping[str, NDArray[np.float64]]) -> Figure:
    """One panel per parameter: all its values of all seeds, and where the middle 95% lie.

    Args:
        learned: name -> (S, ...), as the mechanism uses it.
    """
    figure = new_figure(0.3 + 1.45 * len(learned))
    all_axes = figure.subplots(len(learned), squeeze=False)[:, 0]
    for axes, (name, values) in zip(all_axes, learned.items(), strict=True):
        flat = values[np.isfinite(values)].ravel()
        low, middle, high = np.quantile(flat, [0.025, 0.5, 0.975])
        # one value many times over has no width for bins
        spread = float(flat.max()) - float(flat.min()) > 1e-5 * max(1.0, abs(middle))
        limits = None if spread else (middle - 0.5, middle + 0.5)
        axes.hist(
            flat, bins=48, range=limits, color=PALETTE["c0"], alpha=0.75, histtype="stepfilled"
        )
        axes.axvline(middle, color=PALETTE["ink"], lw=1.2)
        axes.axvspan(low, high, color=PALETTE["muted"], alpha=0.14, lw=0)
        axes.set_xlabel(f"{shorten(name)}: median {middle:.3g}, middle 95% {low:.3g} to {high:.3g}")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    return figure
