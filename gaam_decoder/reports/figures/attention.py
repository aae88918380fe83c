"""What a mechanism attends to: layers x features, and the share of every layer.

S seeds, L encoder layers, F features (or heads), K columns of the picture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gaam_decoder.reports.figures.style import PALETTE, new_figure

COLUMNS = 256
"""Columns of a heatmap at most: about as many as a screen or page shows of it."""

Floats = NDArray[np.float64]


def downsample(value_LF: Floats, columns: int = COLUMNS) -> Floats:
    """Means of neighbouring features, (L, K): no more than ``columns`` groups of equal size.

    Every feature is in exactly one mean; the groups differ by at most one feature in size. Taking
    every n-th feature instead would show a few as if they were all.
    """
    num_features = value_LF.shape[1]
    if num_features <= columns:
        return value_LF
    edge = np.linspace(0, num_features, columns + 1).round().astype(int)
    return np.add.reduceat(value_LF, edge[:-1], axis=1) / np.diff(edge)


def importance_heatmap(importance_LF: Floats, layers: Sequence[int]) -> Figure:
    """Importance Factor of every layer and feature; the last layer is on top.

    Args:
        importance_LF: in [0, 1].
        layers: their numbers in the encoder.
    """
    num_layers, num_features = importance_LF.shape
    figure = new_figure(0.9 + min(3.2, max(1.2, 0.075 * num_layers)))
    axes = figure.add_subplot()
    image = axes.imshow(
        downsample(importance_LF),
        aspect="auto",
        origin="lower",
        cmap="cividis",
        vmin=0,
        vmax=1,
        interpolation="nearest",
        extent=(0.5, num_features + 0.5, 0.5, num_layers + 0.5),
    )
    axes.set_xlabel("feature")
    axes.set_ylabel("encoder layer")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    if num_features == 1:
        axes.set_xticks([])
        axes.set_xlabel("all features alike")
    shown = _some(num_layers, 8)
    axes.set_yticks(shown + 1, [str(layers[place]) for place in shown])
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=14)
    bar.set_label("Importance Factor")
    bar.outline.set_visible(False)
    return figure


def layer_contributions(share_SL: Floats, layers: Sequence[int]) -> Figure:
    """Share of every layer in the summed attention, in percent: mean and spread over seeds.

    The dashed line is where all bars would end if all layers had the same share.

    Args:
        share_SL: in percent; a row sums to 100.
        layers: their numbers in the encoder.
    """
    num_seeds, num_layers = share_SL.shape
    figure = new_figure(2.1)
    axes = figure.add_subplot()
    layer = np.arange(1, num_layers + 1)
    axes.bar(layer, share_SL.mean(0), width=0.75, color=PALETTE["c0"], alpha=0.75)
    if num_seeds > 1:
        axes.errorbar(
            layer, share_SL.mean(0), share_SL.std(0, ddof=1), fmt="none", color=PALETTE["ink"],
            elinewidth=1, capsize=min(3, 60 / num_layers),
        )  # fmt: skip
    axes.axhline(100 / num_layers, color=PALETTE["muted"], lw=1, ls="--")
    axes.set_xlabel("encoder layer")
    axes.set_ylabel("contribution, %")
    shown = _some(num_layers, 12)
    axes.set_xticks(shown + 1, [str(layers[place]) for place in shown])
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return figure


def _some(count: int, longest: int) -> NDArray[np.int64]:
    """Places to label: all, or evenly spaced ones where there are too many."""
    return np.arange(0, count, -(-count // longest))
