"""Which rows train, which choose the epoch, and which epoch is chosen: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def holdout(labels: Rows, fraction: float, split_seed: int) -> tuple[Rows, Rows]:
    """Split rows into two parts with the same share of every class.

    Args:
        labels: class of every row.
        fraction: share of the second part; at least one row of every class that has two or more.
        split_seed: decides which rows; the seed of an experiment has no say, so that all seeds and
            mechanisms learn from the same rows.

    Returns:
        Sorted row numbers of the first and the second part.
    """
    generator = np.random.default_rng(split_seed)
    held = []
    for label in np.unique(labels):
        row_N = np.flatnonzero(labels == label)
        count = min(len(row_N) - 1, max(1, round(fraction * len(row_N))))
        held.append(generator.permutation(row_N)[:count])
    held_N = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), held_N), held_N


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy and loss of one epoch on the rows that choose."""

    accuracy: float
    loss: float

    def beats(self, other: Score | None) -> bool:
        """Whether this epoch is to be kept: higher accuracy, or the same with a lower loss."""
        if other is None:
            return True
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)
