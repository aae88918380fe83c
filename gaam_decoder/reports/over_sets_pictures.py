"""Pictures of an answer over data sets: all decoders, or one on every data set.

Reports and the pages of studies show the same. Statistics over data sets are above 0
where a decoder is better; a picture has the sign and the unit of the score.
"""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gaam_cache.common.messages import brief, visible
from gaam_decoder.reports.drawing import (
    LINE_HEIGHT,
    PALETTE,
    Picture,
    draw_margin,
    new_figure,
    with_legend,
    wrap_labels,
)
from gaam_decoder.reports.over_sets import AnswerOverSets, DecoderOverSets
from gaam_decoder.reports.over_sets_text import (
    cells_on,
    in_sign_of_score,
    interval_in_sign_of_score,
    mean_interval,
)
from gaam_decoder.stats.scores.base import Interval, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALL_ENCODERS = "all encoders"


def overview_picture(name: str, answer: AnswerOverSets) -> Picture:
    """The mean differences of all decoders, with a dot for every cell."""
    shown = (
        "The mean difference over data sets with its 95% interval (thick, not "
        "corrected for the number of decoders) and that of another data set of the "
        "kind (thin); one dot for every data set and encoder."
    )
    if answer.is_of_one_set:
        shown = "A dot with its 95% interval for each encoder; a circle is their mean."
    return Picture(
        name,
        f"Differences to {brief(answer.all_results.baseline)}, {answer.in_words}",
        f"{_better_side(answer)} {shown}",
        partial(_draw_overview, answer),
    )


def forest_picture(
    name: str, answer: AnswerOverSets, decoder: DecoderOverSets
) -> Picture:
    """The differences of one decoder: a row for each data set, a panel an encoder."""
    baseline = brief(answer.all_results.baseline)
    return Picture(
        name,
        f"{decoder.name} minus {baseline}, {answer.in_words}",
        f"{_better_side(answer)} A dot and its 95% interval for each data set; the "
        "diamond is the mean and its interval, the thin line the interval of another "
        "data set.",
        partial(_draw_forest, answer, decoder),
    )


def _better_side(answer: AnswerOverSets) -> str:
    """A sentence on the side of the line where a decoder is better."""
    side = "Right" if answer.all_results.score.larger_is_better else "Left"
    return f"{side} of the line: better."


def _x_label(answer: AnswerOverSets, width: int) -> str:
    """What the x axis of both pictures shows, in lines of so many characters."""
    baseline = brief(answer.all_results.baseline, 26)
    label = f"difference to {baseline}, {answer.all_results.score.difference_unit}"
    return "\n".join(textwrap.wrap(visible(label), width))


def _shown(difference: float, score: Score) -> float:
    """A difference as a picture shows it: of the score, in percent where it is."""
    return score.factor * in_sign_of_score(difference, score)


def _shown_interval(interval: Interval, score: Score) -> Interval:
    """The same of an interval."""
    ends = interval_in_sign_of_score(interval, score)
    if ends is None:
        return None
    low, high = ends
    return score.factor * low, score.factor * high


def _draw_overview(answer: AnswerOverSets) -> Figure:
    """Draw a row for each decoder: dots of its cells, below them its mean."""
    score = answer.all_results.score
    names = wrap_labels([decoder.name for decoder in answer.decoders])
    # the legend has two columns: encoders and five other marks
    legend_lines = (len(answer.encoders) + 6) // 2
    legend_height = (LINE_HEIGHT + 0.05) * legend_lines
    figure = new_figure(0.8 + legend_height + 0.45 * len(names))
    axes = figure.add_subplot()
    draw_margin(axes, score.factor * answer.all_results.margin)
    for row, decoder in enumerate(answer.decoders):
        _draw_cells(axes, row, answer, decoder)
        # of a single cell, the mean is its dot
        if len(decoder.differences) > 1:
            _draw_mean(axes, row, decoder, score)

    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(_x_label(answer, 36))
    axes.grid(axis="x")
    return with_legend(figure)


def _draw_cells(
    axes: Axes, row: int, answer: AnswerOverSets, decoder: DecoderOverSets
) -> None:
    """Draw a dot for every cell, in the colour of its encoder and a line for each.

    A single data set has no interval of a mean: its cells then have their own.
    """
    score = answer.all_results.score
    heights = row + np.linspace(-0.32, -0.06, len(answer.encoders))
    if len(decoder.differences) == 1:
        # no mean stands below a single cell
        heights = np.array([row])
    for number, encoder in enumerate(answer.encoders):
        colour = PALETTE[f"c{number % 8}"]
        cells = [
            cell
            for (_data_set, cell_encoder), cell in decoder.differences.items()
            if cell_encoder == encoder
        ]
        axes.plot(
            [_shown(cell.difference, score) for cell in cells],
            [heights[number]] * len(cells),
            "o",
            ms=2.4,
            mew=0,
            alpha=0.7,
            c=colour,
            label=visible(brief(encoder, 30)),
        )
        ends = _shown_interval(cells[0].interval, score)
        if len(cells) == 1 and ends:
            axes.plot(ends, [heights[number]] * 2, c=colour, lw=1, alpha=0.7)


def _draw_mean(axes: Axes, row: int, decoder: DecoderOverSets, score: Score) -> None:
    """Draw the mean difference with both of its intervals, below the dots."""
    y = row + 0.2
    combined = decoder.combined
    for interval, colour, width, label in (
        (combined.prediction, "muted", 1.2, "95%, another data set"),
        (combined.interval, "accent", 3.2, "95%, mean"),
    ):
        ends = _shown_interval(interval, score)
        if ends:
            axes.plot(
                ends, [y] * 2, c=PALETTE[colour], lw=width, alpha=0.8, label=label
            )
    ink = PALETTE["ink"]
    differs = combined.verdict in ("better", "worse")
    axes.plot(
        _shown(combined.difference, score),
        y,
        "o",
        ms=5,
        mew=1.2,
        mec=ink,
        mfc=ink if differs else "none",
        label="mean, better or worse" if differs else "mean",
    )


def _draw_forest(answer: AnswerOverSets, decoder: DecoderOverSets) -> Figure:
    """Draw a panel for each encoder, and the mean as a diamond below the last one."""
    score = answer.all_results.score
    data_sets = [data_set.name for data_set in decoder.combined.sets]
    panels = [*answer.encoders]
    if len(panels) > 1:
        panels.append(ALL_ENCODERS)
    names = wrap_labels(data_sets, 18 if len(panels) > 1 else 26)
    most_lines = max(name.count("\n") + 1 for name in names)
    height = max(0.26, LINE_HEIGHT * most_lines + 0.04) * (len(names) + 1)
    figure = new_figure(1.1 + height)
    all_axes = figure.subplots(1, len(panels), squeeze=False, sharey=True, sharex=True)

    for axes, panel in zip(all_axes[0], panels, strict=True):
        if len(panels) > 1:
            axes.set_title("\n".join(textwrap.wrap(visible(panel), 14)), fontsize=7)
        num_ticks = 5 if len(panels) < 3 else 3
        axes.locator_params(axis="x", nbins=num_ticks, steps=[1, 2, 5, 10])
        if len(panels) > 2:
            axes.tick_params(axis="x", labelsize=6)
        draw_margin(axes, score.factor * answer.all_results.margin)
        for row, data_set in enumerate(data_sets):
            difference, interval = _of_panel(answer, decoder, data_set, panel)
            _draw_difference(
                axes, row, _shown(difference, score), _shown_interval(interval, score)
            )
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")

    _draw_diamond(all_axes[0, -1], len(names), decoder, score)
    all_axes[0, 0].set_yticks(range(len(names) + 1), [*names, "mean"])
    all_axes[0, 0].set_ylim(len(names) + 0.6, -0.6)
    figure.supxlabel(_x_label(answer, 60), fontsize=8)
    return figure


def _of_panel(
    answer: AnswerOverSets, decoder: DecoderOverSets, data_set: str, panel: str
) -> tuple[float, Interval]:
    """The difference and interval on a data set: of an encoder, or of all encoders."""
    if panel in answer.encoders:
        cell = decoder.differences[data_set, panel]
        return cell.difference, cell.interval
    cells = cells_on(answer, decoder, data_set)
    mean = float(np.mean([cell.difference for cell in cells]))
    return mean, mean_interval(cells)


def _draw_difference(
    axes: Axes, row: int, difference: float, interval: Interval
) -> None:
    """Draw a difference as a dot, with its interval as a line."""
    if interval:
        axes.plot(interval, [row] * 2, c=PALETTE["accent"], lw=1.6, alpha=0.8)
    axes.plot(difference, row, "o", ms=4, c=PALETTE["ink"])


def _draw_diamond(axes: Axes, row: int, decoder: DecoderOverSets, score: Score) -> None:
    """Draw the mean with its interval as a diamond; a dot where it has no interval.

    A thin line is the interval of another data set.
    """
    ink = PALETTE["ink"]
    combined = decoder.combined
    mean = _shown(combined.difference, score)
    prediction_interval = _shown_interval(combined.prediction, score)
    if prediction_interval:
        axes.plot(prediction_interval, [row] * 2, c=PALETTE["muted"], lw=1.2)
    interval = _shown_interval(combined.interval, score)
    if interval is None:
        axes.plot(mean, row, "D", ms=5, c=ink)
        return
    low, high = interval
    axes.fill(
        [low, mean, high, mean], [row, row - 0.25, row, row + 0.25], color=ink, lw=0
    )
