"""Learned gates, and the one that was planted.

S seeds, P points.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from numpy import float64
from numpy.typing import NDArray

from gaam_decoder.reports.figures.names import distinct
from gaam_decoder.reports.figures.style import DASHES, PALETTE, SERIES, new_figure

Floats = NDArray[float64]


def gate_curves(
    labels: Sequence[str], curves: Sequence[Floats], residual_P: Floats, planted_P: Floats | None
) -> Figure:
    """Mean over seeds in a band from the lowest to the highest seed; what was planted is dashed.

    Args:
        labels: at most eight rows.
        curves: for every row (S, P).
        residual_P: where they are read.
        planted_P: of the planted gate; None where there is none.
    """
    columns = 2 if max(map(len, labels), default=0) <= 16 else 1
    lines = -(-(len(labels) + (planted_P is not None)) // columns)
    figure = new_figure(2.3 + 0.19 * lines)
    axes = figure.add_subplot()
    handles, names = [], []
    if planted_P is not None:
        (line,) = axes.plot(residual_P, planted_P, color=PALETTE["ink"], ls="--", lw=2, zorder=3)
        handles.append(line)
        names.append("planted")
    for number, (label, value_SP) in enumerate(zip(distinct(labels, 40), curves, strict=True)):
        color = SERIES[number % len(SERIES)]
        dashes = [dash for dash in DASHES if dash != "--" or planted_P is None]
        dash = dashes[number % len(dashes)]
        (line,) = axes.plot(residual_P, value_SP.mean(0), color=color, lw=1.5, ls=dash)
        axes.fill_between(
            residual_P, value_SP.min(0), value_SP.max(0), color=color, alpha=0.18, lw=0
        )
        handles.append(line)
        names.append(label)
    axes.set_xlabel("standardised feature value, from the gate's centre")
    axes.set_ylabel("weight")
    axes.set_ylim(0, 1.05)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    figure.legend(handles, names, loc="outside upper left", ncols=columns, handlelength=2.6)
    return figure
