"""Draw the pictures of a report, and write them as SVG, PDF and PNG.

Pictures use the colours of ``PALETTE``. In HTML these become CSS variables, so that a
picture follows the page into dark mode. matplotlib is imported with the first picture.
"""

from __future__ import annotations

import io
import re
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.messages import brief, join_first, visible
from gaam_decoder.reports.entries import DEFAULT_SCORE, Entry
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import NAMED, capitalised
from gaam_decoder.stats.scores.base import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: a column of a paper, and legible when a phone scales it to its width.
WIDTH = 4.2
LINE_HEIGHT = 0.15  # inches of a line of text
MOST_LINES = 4  # of a panel, those of the best entries
MOST_MARKED = 12  # points of a line up to which each has a marker
BELOW_SEEDS = 0.18  # of the distance between two entries: their intervals, below dots
TEMPLATES = Path(__file__).with_name("templates")
COLOURS = tomllib.loads((TEMPLATES / "colours.toml").read_text("utf-8"))
PALETTE = {
    k: v for k, v in COLOURS["light"].items() if not k.startswith(("pa", "warn"))
}
NUM_COLOURS = 8  # of lines: c0 to c7
# Dashes distinguish lines for readers without colours.
DASHES = ["-", "--", "-.", ":"]
# Without a date a picture has the same bytes at every drawing.
_NO_DATE = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
}
Values = Sequence[float] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: the name of its file, title, caption, and how to draw it."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


class Line(NamedTuple):
    """One line of a panel, with a band between two lines of low and high values."""

    label: str
    x: Values
    y: Values
    band: tuple[Values, Values] | None = None


def not_drawn(labels: Sequence[str]) -> str:
    """A sentence for a caption on the decoders for whose lines there is no room.

    ``labels`` are those of all lines, the best first. Empty if all are drawn.
    """
    undrawn_labels = labels[MOST_LINES:]
    if not undrawn_labels:
        return ""
    return (
        f" Not drawn, because there is room for {MOST_LINES}: "
        f"{join_first(undrawn_labels, NAMED)}."
    )


def wrap_labels(labels: Sequence[str], width: int = 26) -> list[str]:
    """Break labels into short lines, behind a space, a hyphen or a comma."""
    names = []
    for label in labels:
        spaced = re.sub(r",(?=\S)", ", ", visible(label))
        names.append("\n".join(textwrap.wrap(spaced, width)) or "-")
    return names


class Panel(NamedTuple):
    """Lines with common axes."""

    y_label: str
    lines: Sequence[Line]


def line_panels(
    panels: Sequence[Panel],
    x: str,
    *,
    is_log: bool = False,
    reference: Line | None = None,
    bottom: float | None = None,
) -> Figure:
    """Draw panels of lines one below the other, with a common x axis.

    A panel with the same labels as the panel above it has no legend of its own.

    Args:
        panels: from top to bottom.
        x: label of the x axis.
        is_log: whether the x axis has a logarithmic scale.
        reference: a dashed line that every panel shows for comparison.
        bottom: where the y axes start.
    """
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    name_of = dict(zip(labels, wrap_labels(labels, 52), strict=True))
    legend_lines = sum(name.count("\n") + 1 for name in name_of.values())
    if reference:
        legend_lines += len(panels)
    figure = new_figure(0.5 + 1.6 * len(panels) + (LINE_HEIGHT + 0.03) * legend_lines)
    all_axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]

    labels_above: list[str] = []
    for axes, panel in zip(all_axes, panels, strict=True):
        axes.locator_params(nbins=6, steps=[1, 2, 5, 10])
        if reference:
            _draw_reference(axes, reference)
        for line in panel.lines:
            _draw_line(axes, line, name_of[line.label], labels.index(line.label))
        panel_labels = [line.label for line in panel.lines]
        if panel_labels != labels_above:
            _draw_legend_above(axes)
        labels_above = panel_labels
        axes.set_ylabel(panel.y_label)
        axes.set_ylim(bottom=bottom)
        axes.grid(axis="y")

    last_axes = all_axes[-1]
    last_axes.set_xlabel(f"{x} (log scale)" if is_log else x)
    if is_log:
        last_axes.set_xscale("log")
    return figure


def _draw_legend_above(axes: Axes) -> None:
    """Draw the legend of a panel above it, where it hides no line."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, handlelength=2.6
    )


def _draw_reference(axes: Axes, line: Line) -> None:
    """Draw a dashed line with which the others are compared."""
    axes.plot(line.x, line.y, "--", color=PALETTE["ink"], label=line.label, zorder=3)


def _draw_line(axes: Axes, line: Line, name: str, index: int) -> None:
    """Draw a line with its band, if it has one.

    ``index`` is that of its label among all labels: it gives colour and dashes.
    ``name`` is the label, broken into lines.
    """
    # where a colour comes again, it has other dashes
    num_before = index // NUM_COLOURS
    color = PALETTE[f"c{index % NUM_COLOURS}"]
    dash = DASHES[(index + num_before) % len(DASHES)]
    if line.band:
        low, high = line.band
        axes.fill_between(line.x, low, high, color=color, alpha=0.15, lw=0)
    axes.plot(
        line.x,
        line.y,
        dash,
        c=color,
        lw=1.5,
        marker="o" if len(line.x) <= MOST_MARKED else None,
        ms=3,
        label=name,
        # the highest marker is drawn whole
        clip_on=False,
    )


def new_figure(height: float) -> Figure:
    """An empty figure of the usual width, with a height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def overview_pictures(table: Table) -> list[Picture]:
    """Pictures of all shown entries: accuracy, and differences to the baseline."""
    pictures = []
    if table.entries:
        accuracy = Picture(
            name="accuracy",
            title=f"{capitalised(table.score.title)} of every seed",
            caption=(
                "One dot per seed, and two 95% intervals of the mean: over seeds "
                "(thick), and over seeds and test rows (thin)."
            ),
            draw=lambda: _draw_seed_values(table),
        )
        pictures.append(accuracy)
    if any(entry.comparison for entry in table.shown_entries):
        better_side = "Right" if table.score.larger_is_better else "Left"
        differences = Picture(
            name="differences",
            title=f"Differences to {brief(str(table.baseline))} with intervals",
            caption=(
                f"{better_side} of the line: better. An interval over {table.covered} "
                "that crosses it leaves open which is better; within the band, the "
                "margin, a difference does not matter."
            ),
            draw=lambda: _draw_differences(table),
        )
        pictures.append(differences)
    return pictures


def _draw_seed_values(table: Table) -> Figure:
    """Draw the scores of all seeds, with mean and intervals, one entry a line."""
    score = table.score
    figure, axes = _figure_of_entries(table.shown_entries, f"test {score.column}")
    for height, entry in enumerate(table.shown_entries):
        measured = entry.compared_score
        value_S = score.factor * np.sort(measured.scored.values)
        if len(value_S):
            _draw_seeds(axes, height, value_S)
        _draw_intervals(
            axes,
            height + BELOW_SEEDS,
            score.factor,
            measured.seeds_interval,
            measured.seeds_rows_interval,
        )
    return with_legend(figure)


def _draw_seeds(axes: Axes, height: int, value_S: NDArray[np.float64]) -> None:
    """Draw a dot for every seed, and a stroke at their mean.

    ``height`` is the position of the entry on the y axis, ``value_S`` its scores.
    """
    # The steps keep dots apart. They follow the rank, not chance, so that a picture
    # is repeatable.
    steps = np.array([0.0, 0.13, -0.13, 0.06, -0.06])
    y_S = height - 0.16 + np.resize(steps, len(value_S))
    axes.plot(
        value_S,
        y_S,
        "o",
        label="one seed",
        ms=3.4,
        mew=0,
        c=PALETTE["c0"],
        alpha=0.6,
    )
    ends = [height - 0.36, height + 0.32]
    axes.plot([value_S.mean()] * 2, ends, c=PALETTE["ink"], lw=1.4, label="mean")


def draw_margin(axes: Axes, margin: float) -> None:
    """Draw a line at no difference, and a band of the differences within the margin."""
    axes.axvspan(
        -margin,
        margin,
        color=PALETTE["muted"],
        alpha=0.15,
        lw=0,
        label=f"within \u00b1{margin:g}",
    )
    axes.axvline(0, color=PALETTE["ink"], lw=1)


def _draw_differences(table: Table) -> Figure:
    """Draw the differences to the baseline with intervals, one entry a line."""
    score = table.score
    ink = PALETTE["ink"]
    points = (
        "percentage points"
        if table.score_name == DEFAULT_SCORE
        else score.difference_unit
    )
    compared_entries = [entry for entry in table.shown_entries if entry.comparison]
    x = f"difference to {brief(str(table.baseline), 26)},\n{points}"
    figure, axes = _figure_of_entries(compared_entries, x)
    margin = score.factor * table.margin
    draw_margin(axes, margin)

    claims = [entry.comparison.claim for entry in compared_entries if entry.comparison]
    for height, claim in enumerate(claims):
        over_seeds = claim.on_these_rows.interval
        _draw_intervals(
            axes, height, score.factor, over_seeds, claim.interval_corrected
        )
        face = ink if claim.significant else "none"
        label = "mean, Holm p < 0.05" if claim.significant else "mean"
        mean = score.factor * claim.difference
        axes.plot(mean, height, "o", ms=6, mew=1.4, mec=ink, mfc=face, label=label)
    return with_legend(figure)


def _figure_of_entries(entries: Sequence[Entry], x: str) -> tuple[Figure, Axes]:
    """An empty figure with the name of each entry on its y axis, the first on top.

    ``x`` is the label of the x axis.
    """
    names = wrap_labels([entry.label for entry in entries])
    most_lines = max(name.count("\n") + 1 for name in names)
    figure = new_figure(1.2 + max(0.36, LINE_HEIGHT * most_lines + 0.04) * len(names))
    axes = figure.add_subplot()
    axes.locator_params(axis="x", nbins=6, steps=[1, 2, 5, 10])
    axes.set_xlabel(x)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    return figure, axes


def _draw_intervals(
    axes: Axes, y: float, factor: int, seeds: Interval, seeds_and_rows: Interval
) -> None:
    """Draw two 95% intervals at height ``y``: over seeds, and over seeds and rows.

    ``factor`` is 100 for percent.
    """
    _draw_interval(
        axes,
        y,
        factor,
        seeds_and_rows,
        over="seeds and rows",
        colour=PALETTE["muted"],
        width=1.2,
    )
    _draw_interval(
        axes, y, factor, seeds, over="seeds", colour=PALETTE["accent"], width=3.2
    )


def _draw_interval(
    axes: Axes,
    y: float,
    factor: int,
    interval: Interval,
    *,
    over: str,
    colour: str,
    width: float,
) -> None:
    """Draw a 95% interval at height ``y``; nothing where it is None.

    The legend says what it is ``over``. ``factor`` is 100 for percent; ``width`` is
    that of the line, in points.
    """
    if interval:
        x = factor * np.array(interval)
        axes.plot(x, [y] * 2, c=colour, lw=width, alpha=0.8, label=f"95% over {over}")


def with_legend(figure: Figure) -> Figure:
    """Add a legend below, in which every label stands once; return the figure."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(by_label.values()), list(by_label), loc="outside lower left", ncols=2
    )
    return figure


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save pictures in gaam's style, whatever the user's matplotlibrc."""
    import matplotlib as mpl
    import matplotlib.style

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        mpl.rcdefaults()
        mpl.style.use(TEMPLATES / "gaam.mplstyle")
        yield


def inline_svg(picture: Picture, key: str) -> str:
    """Draw an ``<svg>`` element for a page: without size, colours as CSS variables.

    Ids inside begin with ``key``, which is unique in the page. Title and caption are
    the text for screen readers.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    with styled():
        # Figure.savefig would draw the picture twice.
        # matplotlib has no types for its SVG back end.
        canvas: Any = FigureCanvasSVG(picture.draw())
        canvas.print_svg(stream, metadata=_NO_DATE["svg"])
    text = stream.getvalue()
    text = text[text.index("<svg") :]

    # The page has its own style, and no use for metadata.
    metadata = r"<metadata>.*?</metadata>\s*"
    style = r"<defs>\s*<style.*?</style>\s*</defs>"
    for pattern in (metadata, style):
        text = re.sub(pattern, "", text, count=1, flags=re.DOTALL)

    # Only tags change: the text between them has names of decoders.
    text = re.sub("<[^>]+>", lambda match: _tag_for_page(match[0], key), text)
    head, body = text.split(">", 1)
    box = re.findall(r'viewBox="[^"]+"', head)[0]
    alternative = escape(visible(f"{picture.title}. {picture.caption}"))
    return (
        f'<svg role="img" aria-label="{alternative}" {box} '
        'xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink">{body}'
    )


def _tag_for_page(tag: str, key: str) -> str:
    """Fit a tag of an SVG into a page with other SVGs and colours of its own.

    Its ids, and what refers to them, begin with ``key``, so that those of two pictures
    do not clash. Its colours become CSS variables.
    """
    before_ids = r' id="|url\(#|href="#'
    tag = re.sub(f"({before_ids})", rf"\g<1>{key}-", tag)
    for name, colour in PALETTE.items():
        tag = tag.replace(colour, f"var(--{name})")
    return tag


def svg_files(name: str, picture: Picture) -> dict[str, bytes]:
    """SVG files by name, one for a light page and one for a dark page."""
    svg = inline_svg(picture, key="p")
    style = (
        "text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif!important}"
        "svg{stroke-linejoin:round;stroke-linecap:butt}"
    )
    files = {}
    for theme, colours in COLOURS.items():
        text = svg
        for variable, colour in colours.items():
            text = text.replace(f"var(--{variable})", colour)
        head, body = text.split(">", 1)
        paper = f'<rect width="100%" height="100%" fill="{colours["paper"]}"/>'
        themed = f"{head}><style>{style}</style>{paper}{body}\n"
        files[f"{name}-{theme}.svg"] = themed.encode()
    return files


def image_files(picture: Picture) -> dict[str, bytes]:
    """A picture with its title as PDF and as PNG, by suffix; on white, 300 dpi."""
    files = {}
    with styled():
        figure = picture.draw()
        title = wrap_labels([picture.title], 50)[0]
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
        for suffix in ("pdf", "png"):
            content = io.BytesIO()
            figure.savefig(
                content,
                format=suffix,
                dpi=300,
                facecolor="white",
                metadata=_NO_DATE[suffix],
            )
            files[suffix] = content.getvalue()
    return files
