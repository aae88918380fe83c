"""The forest plot of a study."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gaam_cache.common.messages import brief
from gaam_decoder.grids.answers import DecoderAnswer, GridAnswer
from gaam_decoder.reports.drawing import (
    LINE_HEIGHT,
    PALETTE,
    WIDTH,
    Picture,
    draw_margin,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def forest(answer: GridAnswer) -> Picture:
    """Mean differences with their intervals, above them a dot for every cell."""
    return Picture(
        "forest",
        f"Differences to {answer.baseline} over data sets",
        "The mean difference over data sets with its 95% interval (thick) and that of "
        "another data set of the kind (thin); one dot for every data set and encoder.",
        partial(_draw_forest, answer),
    )


def _draw_forest(answer: GridAnswer) -> Figure:
    from matplotlib.figure import Figure

    compared = answer.compared
    height = 1.2 + (2.6 * LINE_HEIGHT) * len(compared)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    draw_margin(axes, 100 * answer.grid.margin)
    for y, entry in enumerate(compared):
        _draw_cells(axes, y, entry, list(answer.grid.encoders))
        _draw_mean(axes, y, entry)

    axes.set_yticks(range(len(compared)), [brief(e.decoder, 30) for e in compared])
    axes.set_ylim(len(compared) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"difference to {brief(answer.baseline, 26)},\npercentage points")
    axes.grid(axis="x")
    handles, labels = axes.get_legend_handles_labels()
    by_label: dict[str, Any] = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(by_label.values()), list(by_label), loc="outside lower left", ncols=2
    )
    return figure


def _draw_cells(axes: Axes, y: int, entry: DecoderAnswer, encoders: list[str]) -> None:
    """A dot for every cell, in the colour of its encoder."""
    for number, encoder in enumerate(encoders):
        differences = [
            100 * row.difference
            for row in entry.rows
            if row.encoder == encoder and row.difference is not None
        ]
        axes.plot(
            differences,
            [y - 0.3 + 0.1 * number] * len(differences),
            "o",
            ms=2.4,
            mew=0,
            alpha=0.7,
            c=PALETTE[f"c{number % 8}"],
            label=encoder,
        )


def _draw_mean(axes: Axes, y: int, entry: DecoderAnswer) -> None:
    """The mean difference of a decoder, with both of its intervals."""
    across = entry.across
    if across is None:
        return
    for interval, width, label in (
        (across.prediction, 1.2, "95%, another data set"),
        (across.interval, 3.2, "95%, mean"),
    ):
        if interval:
            low, high = interval
            axes.plot(
                [100 * low, 100 * high],
                [y + 0.15] * 2,
                c=PALETTE["accent" if width > 2 else "muted"],
                lw=width,
                alpha=0.8,
                label=label,
            )
    ink = PALETTE["ink"]
    axes.plot(
        100 * across.difference,
        y + 0.15,
        "o",
        ms=5,
        mew=1.2,
        mec=ink,
        mfc=ink if across.verdict in ("better", "worse") else "none",
        label="mean",
    )
