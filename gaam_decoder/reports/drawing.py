"""How pictures are drawn: style, labels, lines, the overviews, and what becomes of a figure.

Pictures are drawn in the colours of ``PALETTE``; in HTML those become CSS variables, so that a
picture follows the page into dark mode. matplotlib is imported when something is drawn.
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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gaam_cache.common.messages import brief, visible
from gaam_decoder.reports.rows import DEFAULT, Row
from gaam_decoder.reports.table import Table
from gaam_decoder.stats.scores.base import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = (
    4.2  # inches: a column of a paper, and legible when a phone scales it to its width
)
LINE = 0.15  # inches of a line of text
MOST_LINES = 4  # of a panel, those of the best rows
MOST_MARKED = 12  # points of a line up to which each is marked
TEMPLATES = Path(__file__).with_name("templates")
COLOURS = tomllib.loads((TEMPLATES / "colours.toml").read_text("utf-8"))
PALETTE = {
    k: v for k, v in COLOURS["light"].items() if not k.startswith(("pa", "warn"))
}
DASHES = ["-", "--", "-.", ":"]  # beside colours, for who does not see or print these
_NO_DATE = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
}
Values = Sequence[float] | np.ndarray


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: a name for its file, what is said above and below, and how it is drawn."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


class Line(NamedTuple):
    """One line of a panel, in a band from the lows to the highs where these are given."""

    label: str
    x: Values
    y: Values
    band: tuple[Values, Values] | None = None


def names_of(labels: Sequence[str], width: int = 26) -> list[str]:
    """Labels on lines of bounded length, which end behind a space, a hyphen or a comma."""
    apart = [re.sub(r",(?=\S)", ", ", visible(label)) for label in labels]
    return ["\n".join(textwrap.wrap(label, width)) or "-" for label in apart]


def line_panels(
    panels: Sequence[tuple[str, Sequence[Line]]], x: str, *,
    log: bool = False, beside: Line | None = None, bottom: float | None = None,
) -> Figure:  # fmt: skip
    """Panels one below the other; labels that the panel above has too are not written again.

    ``panels`` have the label of their y axis and lines, ``x`` is the label of the x axis;
    ``beside`` is a dashed line in every panel, and the y axes start at ``bottom``.
    """
    labels = list(dict.fromkeys(line.label for _, lines in panels for line in lines))
    name_of = dict(zip(labels, names_of(labels, 52), strict=True))
    rows = sum(name.count("\n") + 1 for name in name_of.values()) + len(panels) * bool(
        beside
    )
    figure = _figure(0.5 + 1.6 * len(panels) + (LINE + 0.03) * rows)
    every = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    before: list[str] = []
    for axes, (what, lines) in zip(every, panels, strict=True):
        axes.locator_params(nbins=6, steps=[1, 2, 5, 10])
        if beside:
            axes.plot(
                beside.x,
                beside.y,
                "--",
                color=PALETTE["ink"],
                label=beside.label,
                zorder=3,
            )
        for line in lines:
            place = labels.index(line.label)
            color, dash = PALETTE[f"c{place % 8}"], DASHES[place % len(DASHES)]
            mark = "o" if len(line.x) <= MOST_MARKED else None
            if line.band:
                axes.fill_between(line.x, *line.band, color=color, alpha=0.15, lw=0)
            axes.plot(
                line.x,
                line.y,
                dash,
                c=color,
                lw=1.5,
                marker=mark,
                ms=3,
                label=name_of[line.label],
            )
        if before != (before := [line.label for line in lines]):
            axes.legend(
                loc="lower left",
                bbox_to_anchor=(0, 1),
                borderaxespad=0,
                handlelength=2.6,
            )
        axes.set_ylabel(what)
        axes.set_ylim(bottom=bottom)
        axes.grid(axis="y")
    every[-1].set_xlabel(f"{x} (log scale)" if log else x)
    if log:
        every[-1].set_xscale("log")
    return figure


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def overviews(table: Table) -> list[Picture]:
    """One row beside the other, those that are shown; none without rows."""
    title = table.unit.title
    accuracy = Picture(
        "accuracy",
        f"{title[0].upper()}{title[1:]} of every seed",
        "One dot per seed, and two 95% intervals of the mean: over seeds (thick), and over seeds "
        "and test rows (thin).",
        lambda: _strip(table),
    )
    differences = Picture(
        "differences",
        f"Differences to {brief(str(table.baseline))} with intervals",
        f"{'Right' if table.unit.larger_is_better else 'Left'} of the line: better. An interval "
        "over seeds and rows that crosses it leaves open which is better; within the band, the "
        "margin, a difference does not matter.",
        lambda: _forest(table),
    )
    compared = any(row.compared for row in table.shown)
    return [accuracy] * bool(table.rows) + [differences] * compared


def _strip(table: Table) -> Figure:
    unit, dot = table.unit, {"ms": 3.4, "mew": 0, "c": PALETTE["c0"], "alpha": 0.6}
    figure, axes = _name_rows(table.shown, f"test {unit.column}")
    steps = np.array([0.0, 0.13, -0.13, 0.06, -0.06])
    for height, chosen in enumerate(row.chosen for row in table.shown):
        value_S = unit.factor * np.sort(chosen.scored.values)
        if len(value_S):
            # heights that keep dots apart are by rank, not by chance: a picture is repeatable
            y = height - 0.16 + np.resize(steps, len(value_S))
            axes.plot(value_S, y, "o", label="one seed", **dot)
            ends = [height - 0.36, height + 0.32]
            axes.plot(
                [value_S.mean()] * 2, ends, c=PALETTE["ink"], lw=1.4, label="mean"
            )
        _intervals(axes, height + 0.18, unit.factor, chosen.interval, chosen.two_level)
    return _with_legend(figure)


def _forest(table: Table) -> Figure:
    unit, ink, margin = table.unit, PALETTE["ink"], table.unit.factor * table.margin
    points = "percentage points" if table.score == DEFAULT else unit.of_differences
    shown = [row for row in table.shown if row.compared]
    x = f"difference to {brief(str(table.baseline), 26)},\n{points}"
    figure, axes = _name_rows(shown, x)
    within = f"within \u00b1{margin:g}"
    axes.axvspan(
        -margin, margin, color=PALETTE["muted"], alpha=0.15, lw=0, label=within
    )
    axes.axvline(0, color=ink, lw=1)
    for height, claim in enumerate(row.compared.claim for row in shown if row.compared):
        seeds, both = claim.on_these_rows.interval, claim.interval_corrected
        _intervals(axes, height, unit.factor, seeds, both)
        face, label = (
            (ink, "mean, Holm p < 0.05") if claim.significant else ("none", "mean")
        )
        at = unit.factor * claim.difference
        axes.plot(at, height, "o", ms=6, mew=1.4, mec=ink, mfc=face, label=label)
    return _with_legend(figure)


def _name_rows(rows: Sequence[Row], x: str) -> tuple[Figure, Axes]:
    names = names_of([row.label for row in rows])
    most = max(name.count("\n") + 1 for name in names)
    figure = _figure(1.2 + max(0.36, LINE * most + 0.04) * len(names))
    axes = figure.add_subplot()
    axes.locator_params(axis="x", nbins=6, steps=[1, 2, 5, 10])
    axes.set_xlabel(x)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    return figure, axes


def _intervals(
    axes: Axes, y: float, factor: int, seeds: Interval, both: Interval
) -> None:
    kinds = (both, "seeds and rows", "muted", 1.2), (seeds, "seeds", "accent", 3.2)
    for interval, over, colour, width in kinds:
        if interval:
            x, label = factor * np.array(interval), f"95% over {over}"
            axes.plot(x, [y] * 2, c=PALETTE[colour], lw=width, alpha=0.8, label=label)


def _with_legend(figure: Figure) -> Figure:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(by_label.values()), list(by_label), loc="outside lower left", ncols=2
    )
    return figure


@contextmanager
def styled() -> Iterator[None]:
    """Within it, pictures are drawn and saved in this style, whatever the user's matplotlibrc."""
    import matplotlib as mpl
    import matplotlib.style

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        mpl.rcdefaults()
        mpl.style.use(TEMPLATES / "gaam.mplstyle")
        yield


def inline_svg(picture: Picture, key: str) -> str:
    """An ``<svg>`` element to stand in a page: no fixed size, its colours CSS variables.

    Ids inside begin with ``key``, unique in the page; title and caption are said to who does not
    see it.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream, alt = io.StringIO(), f"{picture.title}. {picture.caption}"
    with styled():  # savefig would draw it twice
        FigureCanvasSVG(picture.draw()).print_svg(stream, metadata=_NO_DATE["svg"])
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    for gone in (
        r"<metadata>.*?</metadata>\s*",
        r"<defs>\s*<style.*?</style>\s*</defs>",
    ):
        text = re.sub(gone, "", text, count=1, flags=re.DOTALL)

    def of_page(found: re.Match[str]) -> str:
        tag = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{key}-", found[0])
        for name, colour in PALETTE.items():
            tag = tag.replace(colour, f"var(--{name})")
        return tag

    head, rest = re.sub("<[^>]+>", of_page, text).split(
        ">", 1
    )  # between tags are names
    box = re.findall(r'viewBox="[^"]+"', head)[0]
    return (
        f'<svg role="img" aria-label="{escape(visible(alt))}" {box} '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{rest}'
    )


def svg_files(name: str, picture: Picture) -> dict[str, bytes]:
    """SVG files for a page in the light and in the dark, by name."""
    files, svg = {}, inline_svg(picture, "p")
    style = "text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif!important}"
    style += "svg{stroke-linejoin:round;stroke-linecap:butt}"
    for theme, colours in COLOURS.items():
        text = svg
        for variable, colour in colours.items():
            text = text.replace(f"var(--{variable})", colour)
        head, rest = text.split(">", 1)
        paper = f'<rect width="100%" height="100%" fill="{colours["paper"]}"/>'
        files[f"{name}-{theme}.svg"] = (
            f"{head}><style>{style}</style>{paper}{rest}\n".encode()
        )
    return files


def image_files(picture: Picture) -> dict[str, bytes]:
    """A picture with its title, as PDF and as PNG (300 dots per inch, on white), by suffix."""
    files = {}
    with styled():
        figure = picture.draw()
        figure.suptitle(
            names_of([picture.title], 50)[0], x=0.01, ha="left", fontsize=9.5
        )
        for suffix in ("pdf", "png"):
            content, about = io.BytesIO(), _NO_DATE[suffix]
            figure.savefig(
                content, format=suffix, dpi=300, facecolor="white", metadata=about
            )
            files[suffix] = content.getvalue()
    return files
