"""Draw the picture of docs/concepts/attention-pooling.md.

    python data/studies/attention_pooling.py docs/concepts/attention-pooling.svg

The points are those of the page. Every curve is a decoder that gaam fitted.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from numpy.typing import NDArray

import gaam_decoder
from gaam_decoder.reports.drawing import PALETTE, TEMPLATES

KERNELS = ("gaussian", "boxcar", "epanechnikov")
WIDTHS = (0.1, 0.2, 0.5, 1.0)
Floats = NDArray[np.float64]


def curve(x: Floats) -> Floats:
    """The function that the points scatter around."""
    values: Floats = 2 * np.sin(x) + x
    return values


def points() -> tuple[Floats, Floats]:
    """100 keys and their values, with noise of standard deviation 1."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, 100))
    return x, curve(x) + rng.normal(size=100)


def pooled(x: Floats, y: Floats, query: Floats, kernel: str, width: float) -> Floats:
    """What gaam's head answers to queries; the width is in the unit of x."""
    head = f"nadaraya-watson:kernel={kernel},width={width / x.std()}"
    decoder = gaam_decoder.fit(x[:, None, None], y, attn="none", head=head)
    return decoder.predict(query[:, None, None])


def draw(kernels: Sequence[str] = KERNELS, widths: Sequence[float] = WIDTHS) -> Figure:
    """A panel for every kernel and width."""
    x, y = points()
    query = np.arange(0, 5, 0.025)
    figure = Figure(
        figsize=(2.1 * len(widths), 1.7 * len(kernels)), layout="constrained"
    )
    panels = figure.subplots(
        len(kernels), len(widths), sharex=True, sharey=True, squeeze=False
    )
    for kernel, row in zip(kernels, panels, strict=True):
        row[0].set_ylabel(kernel)
        for width, axes in zip(widths, row, strict=True):
            axes.plot(x, y, ".", color=PALETTE["muted"], ms=2.5)
            axes.plot(query, curve(query), "--", color=PALETTE["ink"], lw=1)
            answer = pooled(x, y, query, kernel, width)
            axes.plot(query, answer, color=PALETTE["c0"], lw=1.6)
    for width, axes in zip(widths, panels[0], strict=True):
        axes.set_title(f"width {width:g}")
    return figure


def main(out: Path) -> None:
    """Write the picture."""
    with style.context(TEMPLATES / "gaam.mplstyle"):
        draw().savefig(out, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
