"""Partitions of rows: held-out parts, folds and budgets, by class or by group.

A budget (``--train-rows``) takes the first rows of every class in an order that
``split-seed`` decides. Its validation rows are a part of it (Perez, Kiela and Cho 2021,
"True Few-Shot Learning with Language Models"). Smaller budgets lie in larger ones;
largest remainders would break this (the Alabama paradox). So after one row of every
class, rows come earliest deadline first (Steiner and Yeomans 1993, "Level Schedules for
Mixed-Model, Just-in-Time Processes").

Rows with sets of labels have a matrix in the place of classes: whether a row has each
label, (N, K). See ``label_sets``.

All functions are pure. C classes, G groups, K choices or labels, N rows.
"""

import heapq
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.tasks.multi_label import rarest_labels
from gaam_decoder.training.label_sets import (
    iterative_parts,
    rows_by_label,
    with_no_label,
)

Rows = NDArray[np.int64]
Strata = NDArray[np.int64] | NDArray[np.bool_]
"""The stratum of every row (N,), or whether it has each label (N, K)."""


class Division(NamedTuple):
    """Training and validation rows, each ascending."""

    training_N: Rows
    validation_N: Rows  # may be empty


def holdout(labels: Strata, fraction: float, split_seed: int) -> Division:
    """Hold out the same share of the rows of every class or label for validation."""
    if labels.ndim == 2:
        shares = (1 - fraction, fraction)
        return Division(*iterative_parts(labels.astype(bool), shares, split_seed))
    generator = np.random.default_rng(split_seed)
    validation: list[Rows] = []
    for label in np.unique(labels):
        shuffled_N = generator.permutation(np.flatnonzero(labels == label))
        validation.append(shuffled_N[: validation_counts(len(shuffled_N), fraction)])
    validation_N = np.sort(np.concatenate(validation))
    training_N = np.setdiff1d(np.arange(len(labels)), validation_N)
    return Division(training_N, validation_N)


def validation_counts(rows: int | Rows, fraction: float) -> Rows:
    """The rows of a class to hold out: the fraction, at least one, but never all."""
    share = np.rint(fraction * np.asarray(rows))
    count: NDArray[np.float64] = np.minimum(rows - 1, np.maximum(1, share))
    return np.maximum(0, count).astype(np.int64)


def grouped_holdout(
    labels: Strata, groups: Sequence[str], fraction: float, split_seed: int
) -> Division:
    """Hold out whole groups for validation, as near to ``holdout`` as possible.

    First, in a random order, each group is held out that exceeds the share of no class.
    Then one group after another is held out: the one that brings the held-out share
    nearest to ``fraction``, and the classes of both parts nearest to one another. No
    row is held out where no class is in two groups.
    """
    _, class_N = np.unique(one_stratum(labels), return_inverse=True)
    _, group_N = np.unique(np.asarray(groups), return_inverse=True)
    num_groups = group_N.max() + 1
    # a random order, so that the first of equally good groups is any of them
    group_N = np.random.default_rng(split_seed).permutation(num_groups)[group_N]
    count_GC = np.zeros((num_groups, class_N.max() + 1), dtype=np.int64)
    np.add.at(count_GC, (group_N, class_N), 1)
    all_C = count_GC.sum(0)

    # hold out groups within the share of every class
    most_C = validation_counts(all_C, fraction)
    held_C = np.zeros_like(all_C)
    is_held_G = np.zeros(num_groups, dtype=bool)
    for group, count_C in enumerate(count_GC):
        if (held_C + count_C <= most_C).all():
            held_C = held_C + count_C
            is_held_G[group] = True

    # hold out further groups while that improves the division
    [distance] = _distances(held_C[None], all_C, fraction)
    while True:
        distance_G = _distances(held_C + count_GC, all_C, fraction)
        distance_G = np.where(is_held_G, np.inf, distance_G)
        best = int(np.argmin(distance_G))
        if not distance_G[best] < distance:
            break
        distance = distance_G[best]
        held_C = held_C + count_GC[best]
        is_held_G[best] = True
    is_held_N = is_held_G[group_N]
    return Division(np.flatnonzero(~is_held_N), np.flatnonzero(is_held_N))


def _distances(held_KC: Rows, all_C: Rows, fraction: float) -> NDArray[np.float64]:
    """Distances of K divisions from a perfect one, by held-out rows of each class."""
    learned_KC = all_C - held_KC
    held_K = held_KC.sum(1)
    learned_K = learned_KC.sum(1)
    held_share_KC = held_KC / np.maximum(1, held_K)[:, None]
    learned_share_KC = learned_KC / np.maximum(1, learned_K)[:, None]
    class_distance_K = abs(held_share_KC - learned_share_KC).sum(1) / 2

    # a held-out row whose class is not learned outweighs the other terms, below 2
    lost_K = np.where(learned_KC <= 0, held_KC, 0).sum(1)
    size_distance_K = abs(held_K / all_C.sum() - fraction)
    distance_K = 2 * lost_K + class_distance_K + size_distance_K
    return np.where(lost_K == held_K, np.inf, distance_K)


def one_stratum(labels: Strata) -> Rows:
    """One stratum a row, (N,): of label sets the rarest label."""
    if labels.ndim == 2:
        return rarest_labels(labels.astype(bool))
    return labels.astype(np.int64, copy=False)


def divide_into_folds(
    labels: Strata, names: Sequence[str] | None, count: int, split_seed: int
) -> list[Rows]:
    """Divide rows into folds: by class, or by group if there are names.

    Raises:
        ConfigError: fewer rows, or groups, than folds.
    """
    if names is None:
        largest = len(labels)
        kind = "rows"
    else:
        largest = len(set(names))
        kind = "groups"
    if count > largest:
        raise ConfigError(
            "too many parts of train",
            expected=f"at most {largest}, the number of {kind}",
            found=str(count),
        )
    if names is None:
        return stratified_folds(labels, count, split_seed)
    return grouped_folds(names, count, split_seed)


def stratified_folds(labels: Strata, count: int, split_seed: int) -> list[Rows]:
    """Divide rows into parts of nearly the same size and share of every class."""
    if labels.ndim == 2:
        shares = [1 / count] * count
        return iterative_parts(labels.astype(bool), shares, split_seed)
    generator = np.random.default_rng(split_seed)
    rows_by_class = [
        generator.permutation(np.flatnonzero(labels == label))
        for label in np.unique(labels)
    ]
    # dealt in turn over all classes, parts differ by at most a row, as do their classes
    dealt = np.concatenate(rows_by_class)
    return [np.sort(dealt[part::count]) for part in range(count)]


def grouped_folds(groups: Sequence[str], count: int, split_seed: int) -> list[Rows]:
    """Divide rows into parts that share no group, large groups first.

    ``split_seed`` orders groups of the same size.
    """
    names, group_N = np.unique(np.asarray(groups), return_inverse=True)
    sizes = np.bincount(group_N)
    order = np.random.default_rng(split_seed).permutation(len(names))
    filled = np.zeros(count, dtype=np.int64)
    part_G = np.zeros(len(names), dtype=np.int64)
    for group in sorted(order, key=lambda group: -sizes[group]):
        part_G[group] = np.argmin(filled)
        filled[part_G[group]] += sizes[group]
    return [np.flatnonzero(part_G[group_N] == part) for part in range(count)]


def draw(labels: Strata, recipe: Recipe) -> Division:
    """Draw the training and validation rows of a budget among these labels."""
    if labels.ndim == 2 and recipe.shots:
        return _draw_by_label(labels.astype(bool), recipe)
    labels = one_stratum(labels)
    classes, class_N, count_C = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    _check_budget(len(labels), count_C, recipe)
    shots = recipe.shots or 0
    size_by_class: Sequence[int] = [shots] * len(classes)
    if recipe.train_rows:
        size_by_class = apportioned(tuple(count_C.tolist()), recipe.train_rows)

    training: list[Rows] = []
    validation: list[Rows] = []
    for index, label in enumerate(classes.tolist()):
        generator = np.random.default_rng(stream_seed(recipe.split_seed, "rows", label))
        row_K = generator.permutation(np.flatnonzero(class_N == index))
        row_K = row_K[: size_by_class[index]]
        is_held_K = _held_out(len(row_K), recipe)
        training.append(row_K[~is_held_K])
        validation.append(row_K[is_held_K])
    training_N = np.sort(np.concatenate(training))
    return Division(training_N, np.sort(np.concatenate(validation)))


def _draw_by_label(label_NK: NDArray[np.bool_], recipe: Recipe) -> Division:
    """Draw so many rows of every label; of them hold out what validates."""
    count_K = with_no_label(label_NK).sum(0)
    _check_budget(len(label_NK), count_K[count_K > 0], recipe)
    drawn = rows_by_label(label_NK, recipe.shots or 0, recipe.split_seed)
    held = [_held_out(len(row_M), recipe) for row_M in drawn]
    row_N = np.concatenate(drawn)
    is_held_N = np.concatenate(held)
    return Division(np.sort(row_N[~is_held_N]), np.sort(row_N[is_held_N]))


def _held_out(num_rows: int, recipe: Recipe) -> NDArray[np.bool_]:
    """Whether each drawn row of a class validates.

    Its place in the class decides: a row stays held out in larger budgets.
    """
    if recipe.select != "val":
        return np.zeros(num_rows, dtype=bool)
    counts = validation_counts(np.arange(num_rows + 1), recipe.val_fraction)
    is_held: NDArray[np.bool_] = np.diff(counts) > 0
    return is_held


def _check_budget(rows: int, count_C: Rows, recipe: Recipe) -> None:
    """Check that the classes of a split have the rows of a budget."""
    fewest = int(count_C.min())
    classes = len(count_C)
    shots = recipe.shots or 0
    is_possible = shots <= fewest
    if recipe.train_rows:
        is_possible = classes <= recipe.train_rows <= rows
    if is_possible:
        return
    expected = f"from {classes:,}, one row of every class, to {rows:,}, all"
    if shots:
        expected = f"1/class to {fewest:,}/class, the smallest one"
    raise ConfigError(
        "--train-rows is out of range",
        expected=expected,
        found=f"--train-rows {recipe.train_rows or f'{shots}/class'}",
        where=str(recipe),
    )


@lru_cache(maxsize=64)
def apportioned(count_by_class: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The rows of every class in a budget: first one of each, then each its share.

    The k-th row of a class may come when its share, rounded up, is k, and is due when
    its share, rounded down, is k. Of the rows that may come, the first due comes.

    Args:
        count_by_class: rows of every class.
        size: of the budget.
    """
    num_rows = sum(count_by_class)
    size_by_class = [1] * len(count_by_class)

    # by the size of the first budget in which the rounded-up share of a class rises
    waiting = [
        (num_rows // count + 1, index)
        for index, count in enumerate(count_by_class)
        if count > 1
    ]
    heapq.heapify(waiting)
    ready: list[tuple[int, int]] = []
    for budget in range(len(count_by_class) + 1, size + 1):
        # rows that may come now, by the size of the budget in which they are due
        while waiting and waiting[0][0] <= budget:
            _, index = heapq.heappop(waiting)
            count = count_by_class[index]
            due = -(-(size_by_class[index] + 1) * num_rows // count)
            heapq.heappush(ready, (due, index))

        # never empty: rounded-up shares are together more than the rows so far
        _, index = heapq.heappop(ready)
        size_by_class[index] += 1
        count = count_by_class[index]
        if size_by_class[index] < count:
            first_budget = size_by_class[index] * num_rows // count + 1
            heapq.heappush(waiting, (first_budget, index))
    return tuple(size_by_class)
