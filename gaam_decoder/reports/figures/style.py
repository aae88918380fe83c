"""Size, type and colours of all pictures."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ticker import MaxNLocator

from gaam_cache.messages import visible

WIDTH = 4.2
"""Inches: a column of a paper, and legible when a phone scales it to its width."""
PALETTE = {
    "ink": "#1f2328",
    "muted": "#57606a",
    "rule": "#d1d8df",
    "accent": "#0a58a8",
    "c0": "#0b6cb5",
    "c1": "#c2410b",
    "c2": "#047857",
    "c3": "#8a3f97",
    "c4": "#8a6a00",
    "c5": "#be185e",
    "c6": "#4b5563",
    "c7": "#0e7490",
}
"""Name of a CSS variable -> its colour on white paper; no two alike."""
SERIES = [PALETTE[f"c{number}"] for number in range(8)]
DASHES = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 2, 1, 2))]
"""Line styles beside colours, for who does not see or print these."""

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "text.color": PALETTE["ink"],
    "axes.labelcolor": PALETTE["ink"],
    "axes.titlecolor": PALETTE["ink"],
    "axes.edgecolor": PALETTE["muted"],
    "xtick.color": PALETTE["muted"],
    "ytick.color": PALETTE["muted"],
    "xtick.labelcolor": PALETTE["ink"],
    "ytick.labelcolor": PALETTE["ink"],
    "grid.color": PALETTE["rule"],
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # text stays text: it can be searched and scales with the page
    "svg.hashsalt": "gaam",  # the same picture has the same bytes
    "pdf.fonttype": 42,
    "axes.unicode_minus": True,
    "text.parse_math": False,  # a dollar in a name is a dollar
}


_FONT = _RC["font.family"]
_ONLY_OURS: ContextVar[bool] = ContextVar("_ONLY_OURS", default=False)


@contextmanager
def styled(*, only_our_font: bool = False) -> Iterator[None]:
    """Within it, pictures are drawn and saved in this style, whatever the user's matplotlibrc.

    Args:
        only_our_font: characters that it lacks are shown as escapes; a page has other fonts.
    """
    token = _ONLY_OURS.set(only_our_font)
    try:
        with mpl.rc_context(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            mpl.rcdefaults()
            mpl.rcParams.update(_RC)
            yield
    finally:
        _ONLY_OURS.reset(token)


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(_FONT)).get_charmap())


def new_figure(height: float, *, width: float = WIDTH) -> Figure:
    """An empty figure, sizes in inches, that arranges itself when it is saved."""
    return Figure(figsize=(width, height), layout="constrained")


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Write labels, short enough, beside rows 0, 1, ... that go downwards."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.set_axisbelow(True)


def shorten(text: str, longest: int = 26) -> str:
    """A label of bounded length that can be drawn; what is left out is marked."""
    text = drawable(text)
    if len(text) <= longest:
        return text
    front = (longest - 1) // 2
    return f"{text[:front]}\N{HORIZONTAL ELLIPSIS}{text[front - longest + 1 :]}"


def drawable(text: str) -> str:
    """A label with escapes for what cannot be drawn."""
    text = visible(text)
    if _ONLY_OURS.get():
        text = "".join(c if ord(c) in _glyphs() else ascii(c)[1:-1] for c in text)
    return text
