"""Which rows train, which select the epoch, and which epoch is selected: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
        held.append(generator.permutation(row_N)[: held_counts(len(row_N), fraction)])
    held_N = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), held_N), held_N


def held_counts(rows: int | Rows, fraction: float) -> Rows:
    """How many of so many rows of a class are held out: the share, at least one, never all.

    One row more holds out one more at most.
    """
    found: Rows = np.minimum(rows - 1, np.maximum(1, np.rint(fraction * np.asarray(rows))))
    return np.maximum(0, found).astype(np.int64)


def stratified_folds(labels: Rows, count: int, split_seed: int) -> list[Rows]:
    """Rows in ``count`` parts of nearly the same size with the same share of every class.

    Args:
        labels: class of every row.
        count: number of parts.
        split_seed: decides which rows.

    Returns:
        Sorted row numbers of every part.
    """
    generator = np.random.default_rng(split_seed)
    by_class = [generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    # dealt out in turn over all classes: neither a class nor the whole differs by more than a row
    dealt = np.concatenate(by_class)
    return [np.sort(dealt[place::count]) for place in range(count)]


def grouped_folds(groups: Sequence[str], count: int, split_seed: int) -> list[Rows]:
    """Rows in ``count`` parts that share no group, as equal in size as large groups first make it.

    Args:
        groups: name of the group of every row.
        count: number of parts; at most the number of groups.
        split_seed: decides between groups of the same size.

    Returns:
        Sorted row numbers of every part.
    """
    names, group_N = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(group_N)
    order = np.random.default_rng(split_seed).permutation(len(names))
    filled = np.zeros(count, dtype=np.int64)
    part_of = np.zeros(len(names), dtype=np.int64)
    for group in sorted(order, key=lambda g: -sizes[g]):
        part_of[group] = np.argmin(filled)
        filled[part_of[group]] += sizes[group]
    return [np.flatnonzero(part_of[group_N] == part) for part in range(count)]


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy and loss of one epoch on the rows that select it."""

    accuracy: float
    loss: float

    def beats(self, other: Score | None, ties: Literal["loss", "first"] = "loss") -> bool:
        """Whether this epoch is to be kept and not an earlier one: it has the higher accuracy.

        Args:
            other: the best so far.
            ties: which of two with the same accuracy: that with the lower loss, or the first.
        """
        if other is None:
            return True
        if ties == "first":
            return self.accuracy > other.accuracy
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)
