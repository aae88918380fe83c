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


def grouped_holdout(
    labels: Rows, groups: Sequence[str], fraction: float, split_seed: int
) -> tuple[Rows, Rows]:
    """Split rows into two parts that share no group, as near to ``holdout`` as groups allow.

    Groups in a random order go to the second part where they exceed its share of no class. Then,
    one after the other, goes whichever brings the share of the rows, and the classes of the two
    parts, nearest to one another, until none does. The first part loses a class only where every
    choice loses one.

    Args:
        labels: class of every row.
        groups: name of the group of every row.
        fraction: share of the second part.
        split_seed: decides between groups that are as good.

    Returns:
        Sorted row numbers of both parts; the second is empty where no class is in two groups, so
        that whatever is held out would be of classes that are not learned.
    """
    _, class_N = np.unique(labels, return_inverse=True)
    _, group_N = np.unique(np.asarray(groups), return_inverse=True)
    num_groups = group_N.max() + 1
    # in a random order, so that the first of the best is any of them
    group_N = np.random.default_rng(split_seed).permutation(num_groups)[group_N]
    count_GC = np.zeros((num_groups, class_N.max() + 1), dtype=np.int64)
    np.add.at(count_GC, (group_N, class_N), 1)
    all_C = count_GC.sum(0)
    most_C = held_counts(all_C, fraction)
    held_C, is_held_G = np.zeros_like(all_C), np.zeros(num_groups, dtype=bool)
    for group, count_C in enumerate(count_GC):
        if (held_C + count_C <= most_C).all():
            held_C, is_held_G[group] = held_C + count_C, True
    [off] = _off(held_C[None], all_C, fraction)
    while True:
        off_G = np.where(is_held_G, np.inf, _off(held_C + count_GC, all_C, fraction))
        best = int(np.argmin(off_G))
        if not off_G[best] < off:
            return np.flatnonzero(~is_held_G[group_N]), np.flatnonzero(is_held_G[group_N])
        off, held_C, is_held_G[best] = off_G[best], held_C + count_GC[best], True


def _off(held_KC: Rows, all_C: Rows, fraction: float) -> NDArray[np.float64]:
    """How far from a good choice each of K is, by the rows of every class that it holds out."""
    learned_KC = all_C - held_KC
    held_K, learned_K = held_KC.sum(1), learned_KC.sum(1)
    lost_K = np.where(learned_KC <= 0, held_KC, 0).sum(1)
    share_KC = held_KC / np.maximum(1, held_K)[:, None]
    classes_K = abs(share_KC - learned_KC / np.maximum(1, learned_K)[:, None]).sum(1) / 2
    off_K = 2 * lost_K + classes_K + abs(held_K / all_C.sum() - fraction)  # the others are below 2
    return np.where(lost_K == held_K, np.inf, off_K)


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
