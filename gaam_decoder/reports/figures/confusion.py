"""Confusion matrix.

C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from gaam_decoder.reports.figures.names import distinct
from gaam_decoder.reports.figures.style import PALETTE, WIDTH, new_figure

NUMBERED = 10
"""Classes up to which every cell holds its number."""


def confusion_matrix(count_CC: NDArray[np.int64], class_names: Sequence[str]) -> Figure:
    """Share of every class (a row sums to 100%) that is predicted as each class.

    Args:
        count_CC: true class by predicted class, summed over seeds.
        class_names: C names.
    """
    num_classes = len(class_names)
    share_CC = count_CC / np.maximum(1, count_CC.sum(1, keepdims=True))
    figure = new_figure(min(WIDTH, 1.3 + 0.42 * min(num_classes, NUMBERED)))
    axes = figure.add_subplot()
    if num_classes <= NUMBERED:
        for true, predicted in np.ndindex(share_CC.shape):
            share = float(share_CC[true, predicted])
            # opaque or nearly clear, so that one colour of text is legible on all of them
            axes.add_patch(
                Rectangle(
                    (predicted - 0.5, true - 0.5), 1, 1, lw=0, color=PALETTE["accent"],
                    alpha=0.45 * share,
                )
            )  # fmt: skip
            axes.text(predicted, true, f"{100 * share:.1f}", ha="center", va="center")
        names = distinct(class_names, 14)
        axes.set_xticks(range(num_classes), names, rotation=30 if num_classes > 3 else 0)
        axes.set_yticks(range(num_classes), names)
        if num_classes > 3:
            for tick in axes.get_xticklabels():
                tick.set(ha="right", rotation_mode="anchor")
    else:
        image = axes.imshow(100 * share_CC, cmap="cividis", vmin=0, vmax=100, aspect="auto")
        bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=14)
        bar.set_label("% of the class")
        bar.outline.set_visible(False)
    axes.set_xlim(-0.5, num_classes - 0.5)
    axes.set_ylim(num_classes - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true class")
    return figure
