"""Importance of layers against the accuracy of each alone. Accuracies in percent.

S seeds, T other seeds, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy import float64
from numpy.typing import NDArray

from gaam_decoder.reports.figures.style import PALETTE, new_figure

MOST_NAMED = 40
"""Layers whose numbers stand beside their points: those of Llama-2-13B."""

Floats = NDArray[float64]


def importance_against_accuracy(
    layers: Sequence[int], importance_SL: Floats, accuracy_TL: Floats
) -> Figure:
    """A point per layer at both means, with bars from the lowest seed to the highest.

    Args:
        layers: their numbers.
        importance_SL: of every seed.
        accuracy_TL: of every seed that was trained on one layer.
    """
    figure = new_figure(2.6)
    axes = figure.add_subplot()
    x_L, y_L = importance_SL.mean(0), accuracy_TL.mean(0)
    axes.errorbar(
        x_L,
        y_L,
        xerr=_below_and_above(importance_SL),
        yerr=_below_and_above(accuracy_TL),
        fmt="o",
        ms=4.5,
        color=PALETTE["accent"],
        ecolor=PALETTE["muted"],
        elinewidth=0.8,
    )
    for layer, x, y in zip(layers[:MOST_NAMED], x_L, y_L, strict=False):
        axes.annotate(str(layer), (x, y), xytext=(4, 3), textcoords="offset points")
    axes.set_xlabel("importance factor, mean of features")
    axes.set_ylabel("accuracy of the layer alone, %")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
    axes.margins(0.08)
    axes.grid()
    axes.set_axisbelow(True)
    return figure


def _below_and_above(value_SL: Floats) -> tuple[Floats, Floats]:
    mean_L = value_SL.mean(0)
    # a mean that is rounded is none of equal values
    return (mean_L - value_SL.min(0)).clip(0), (value_SL.max(0) - mean_L).clip(0)
