"""Partitions of rows: held-out parts, folds and budgets, by class or by group.

A budget (``--train-rows``) takes the first rows of every class in an order that
``split-seed`` decides. Its validation rows are a part of it (Perez, Kiela and Cho 2021,
"True Few-Shot Learning with Language Models"). Smaller budgets lie in larger ones;
largest remainders would break this (the Alabama paradox). So after one row of every
class, rows come earliest deadline first (Steiner and Yeomans 1993, "Level Schedules for
Mixed-Model, Just-in-Time Processes").

Rows with sets of labels have a matrix in the place of classes: whether a row has each
label, (N, K). See ``label_sets``. Rows of a regression have their first number, as
floating-point numbers. Of those, a share of all rows is held out or drawn; ranges of
numbers only spread it evenly.

All functions are pure. C classes, G groups, K choices or labels, N rows.
"""

import heapq
from collections.abc import Sequence
from functools import lru_cache
from itertools import cycle
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.tasks.multi_label import rarest_labels
from gaam_decoder.tasks.regression import ranges_of_numbers
from gaam_decoder.training.label_sets import (
    add_no_label_column,
    iterative_parts,
    rows_by_label,
)

Rows = NDArray[np.int64]
Strata = NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_]
"""The class of every row (N,), its number (N,), or whether it has each label (N, K)."""
NUM_RANGES = 10
"""Ranges of numbers that take turns in a budget."""
RANGE_STEP = 3
"""From a range to the next in turn: 0, 3, 6, 9, 2, ...; few turns lie far apart."""


class Division(NamedTuple):
    """Training and validation rows, each ascending."""

    training_N: Rows
    validation_N: Rows  # may be empty


def holdout(labels: Strata, fraction: float, split_seed: int) -> Division:
    """Hold out a share of the rows for validation.

    It is the same share of every class or label. Of numbers it is a share of all rows,
    spread evenly over the numbers.
    """
    if labels.ndim == 2:
        shares = (1 - fraction, fraction)
        return Division(*iterative_parts(labels.astype(bool), shares, split_seed))
    if are_numbers(labels):
        validation_N = _spread_rows(labels, fraction, split_seed)
    else:
        validation_N = _rows_of_every_class(labels, fraction, split_seed)
    training_N = np.setdiff1d(np.arange(len(labels)), validation_N)
    return Division(training_N, validation_N)


def are_numbers(labels: Strata) -> bool:
    """Whether labels are the numbers of a regression, which are no classes."""
    return labels.dtype.kind == "f"


def _spread_rows(number_N: Strata, fraction: float, split_seed: int) -> Rows:
    """Draw a share of the rows, spread evenly over their numbers; ascending.

    The ranking of the numbers is cut into as many equal blocks as rows are drawn. One
    row of each block is drawn, so that every row has the same chance.
    """
    num_drawn = int(validation_counts(len(number_N), fraction))
    ranked_N = np.argsort(number_N, kind="stable")
    # the first place of every block in the ranking, and the end of the last block
    limits = np.arange(num_drawn + 1) * len(number_N) // max(1, num_drawn)
    generator = np.random.default_rng(split_seed)
    drawn_ranks = generator.integers(limits[:-1], limits[1:])
    return np.sort(ranked_N[drawn_ranks])


def _rows_of_every_class(class_N: Strata, fraction: float, split_seed: int) -> Rows:
    """Draw the same share of the rows of every class; ascending."""
    generator = np.random.default_rng(split_seed)
    validation: list[Rows] = []
    for label in np.unique(class_N):
        shuffled_N = generator.permutation(np.flatnonzero(class_N == label))
        validation.append(shuffled_N[: validation_counts(len(shuffled_N), fraction)])
    return np.sort(np.concatenate(validation))


def validation_counts(class_sizes: int | Rows, fraction: float) -> Rows:
    """How many rows of each class to hold out for validation.

    It is the fraction of the rows of the class, rounded; at least one row, but never
    all.
    """
    rounded = np.rint(fraction * np.asarray(class_sizes))
    count: NDArray[np.float64] = np.minimum(class_sizes - 1, np.maximum(1, rounded))
    # a class without rows would have -1
    return np.maximum(0, count).astype(np.int64)


def grouped_holdout(
    labels: Strata, groups: Sequence[str], fraction: float, split_seed: int
) -> Division:
    """Hold out whole groups for validation, as near to ``holdout`` as possible.

    First, in a random order, a group is held out if with it no class has more held-out
    rows than ``holdout`` would take. Then, one after another, the group is held out
    that most improves the division: its classes are alike in both parts, and the
    fraction of all rows is held out. It ends when no group improves it.

    Where every class is in one group alone, no row is held out: a group would take all
    rows of its classes away from the training.
    """
    # numbers of the classes and groups of the rows
    _class_names, class_N = np.unique(one_stratum_per_row(labels), return_inverse=True)
    _group_names, group_N = np.unique(np.asarray(groups), return_inverse=True)
    num_groups = group_N.max() + 1
    # a random order, so that the first of equally good groups is any of them
    group_N = np.random.default_rng(split_seed).permutation(num_groups)[group_N]
    count_GC = np.zeros((num_groups, class_N.max() + 1), dtype=np.int64)
    np.add.at(count_GC, (group_N, class_N), 1)
    total_C = count_GC.sum(0)

    # hold out groups that exceed the rows of no class
    most_rows_C = validation_counts(total_C, fraction)
    most_rows = int(most_rows_C.sum())
    # of numbers, the share of all rows counts: a range need not give a row
    if are_numbers(labels):
        most_rows = int(validation_counts(len(labels), fraction))
    is_held_out_G = _groups_that_fit(count_GC, most_rows_C, most_rows)
    held_out_C = count_GC[is_held_out_G].sum(0)

    # hold out further groups while that improves the division
    [distance] = _distances(held_out_C[None], total_C, fraction)
    while True:
        # the distance if each group were held out, too
        distance_G = _distances(held_out_C + count_GC, total_C, fraction)
        distance_G = np.where(is_held_out_G, np.inf, distance_G)
        best_group = int(np.argmin(distance_G))
        is_improved = distance_G[best_group] < distance
        if not is_improved:
            break
        distance = distance_G[best_group]
        held_out_C = held_out_C + count_GC[best_group]
        is_held_out_G[best_group] = True
    is_held_out_N = is_held_out_G[group_N]
    return Division(np.flatnonzero(~is_held_out_N), np.flatnonzero(is_held_out_N))


def _groups_that_fit(
    count_GC: Rows, most_rows_C: Rows, most_rows: int
) -> NDArray[np.bool_]:
    """The groups, taken in order, with which no class has too many rows, (G,).

    Args:
        count_GC: rows of every group and class.
        most_rows_C: the most rows of each class.
        most_rows: the most rows in all.
    """
    taken_C = np.zeros_like(most_rows_C)
    is_taken_G = np.zeros(len(count_GC), dtype=bool)
    for group, count_C in enumerate(count_GC):
        new_taken_C = taken_C + count_C
        fits = (new_taken_C <= most_rows_C).all()
        if fits and new_taken_C.sum() <= most_rows:
            taken_C = new_taken_C
            is_taken_G[group] = True
    return is_taken_G


def _distances(
    held_out_KC: Rows, total_C: Rows, fraction: float
) -> NDArray[np.float64]:
    """How far K ways to hold out rows are from a perfect one, (K,); 0 is best.

    Each holds out the fraction of all rows, and the classes have the same shares among
    the held-out and the other rows. Infinite where no class has rows on both sides.

    Args:
        held_out_KC: rows of each class that each way holds out.
        total_C: rows of each class.
        fraction: of the rows to hold out.
    """
    learned_KC = total_C - held_out_KC
    num_held_out_K = held_out_KC.sum(1)
    num_learned_K = learned_KC.sum(1)
    held_out_share_KC = held_out_KC / np.maximum(1, num_held_out_K)[:, None]
    learned_share_KC = learned_KC / np.maximum(1, num_learned_K)[:, None]
    class_distance_K = abs(held_out_share_KC - learned_share_KC).sum(1) / 2

    # Held-out rows of classes without any training row. (The training rows are below 0
    # where a group that is held out already is counted again.) The two other terms are
    # together below 2: one such row outweighs them.
    lost_K = np.where(learned_KC <= 0, held_out_KC, 0).sum(1)
    size_distance_K = abs(num_held_out_K / total_C.sum() - fraction)
    distance_K = 2 * lost_K + class_distance_K + size_distance_K
    return np.where(lost_K == num_held_out_K, np.inf, distance_K)


def one_stratum_per_row(labels: Strata) -> Rows:
    """The stratum of every row, (N,): its class, rarest label, or range of numbers."""
    if labels.ndim == 2:
        return rarest_labels(labels.astype(bool))
    if are_numbers(labels):
        return ranges_of_numbers(labels)
    return labels.astype(np.int64, copy=False)


def divide_into_folds(
    labels: Strata, group_names: Sequence[str] | None, num_folds: int, split_seed: int
) -> list[Rows]:
    """Divide rows into folds: by class, or by group where rows have groups.

    Args:
        labels: the class, number or labels of each row.
        group_names: the group of each row, or None.
        num_folds: number of folds.
        split_seed: decides the folds.

    Raises:
        ConfigError: fewer rows, or groups, than folds.
    """
    if group_names is None:
        most_folds = len(labels)
        kind = "rows"
    else:
        most_folds = len(set(group_names))
        kind = "groups"
    if num_folds > most_folds:
        raise ConfigError(
            "too many parts of train",
            expected=f"at most {most_folds}, the number of {kind}",
            found=str(num_folds),
        )
    if group_names is None:
        return stratified_folds(labels, num_folds, split_seed)
    return grouped_folds(group_names, num_folds, split_seed)


def stratified_folds(labels: Strata, num_folds: int, split_seed: int) -> list[Rows]:
    """Divide rows into parts of nearly the same size and share of every class."""
    if labels.ndim == 2:
        shares = [1 / num_folds] * num_folds
        return iterative_parts(labels.astype(bool), shares, split_seed)
    class_N = one_stratum_per_row(labels)
    generator = np.random.default_rng(split_seed)
    rows_by_class = [
        generator.permutation(np.flatnonzero(class_N == label))
        for label in np.unique(class_N)
    ]
    # Rows are dealt to the folds in turn, one class after the other: folds differ by at
    # most one row, in all and in each class.
    shuffled_N = np.concatenate(rows_by_class)
    return [np.sort(shuffled_N[fold::num_folds]) for fold in range(num_folds)]


def grouped_folds(groups: Sequence[str], num_folds: int, split_seed: int) -> list[Rows]:
    """Divide rows into parts that share no group, large groups first.

    ``split_seed`` orders groups of the same size.
    """
    names, group_N = np.unique(np.asarray(groups), return_inverse=True)
    size_G = np.bincount(group_N)
    order = np.random.default_rng(split_seed).permutation(len(names))
    fold_sizes = np.zeros(num_folds, dtype=np.int64)
    fold_G = np.zeros(len(names), dtype=np.int64)
    # each group goes into the smallest fold so far
    for group in sorted(order, key=lambda group: -size_G[group]):
        fold_G[group] = np.argmin(fold_sizes)
        fold_sizes[fold_G[group]] += size_G[group]
    return [np.flatnonzero(fold_G[group_N] == fold) for fold in range(num_folds)]


def draw_budget(labels: Strata, recipe: Recipe) -> Division:
    """Draw the training and validation rows of a budget.

    A budget is a number of rows in all (``recipe.train_rows``) or of every class
    (``recipe.shots``).

    Args:
        labels: of all rows to draw from: their classes or numbers (N,), or whether they
            have each label (N, K).
        recipe: with the budget.
    """
    if labels.ndim == 2 and recipe.shots:
        return _draw_by_label(labels.astype(bool), recipe)
    if are_numbers(labels):
        return _draw_by_number(labels, recipe)
    # a set of labels counts as a row of its rarest label
    classes, class_N, count_C = np.unique(
        one_stratum_per_row(labels), return_inverse=True, return_counts=True
    )
    _check_budget(len(labels), count_C, recipe)
    rows_by_class: Sequence[int]
    if recipe.train_rows:
        rows_by_class = apportion(tuple(count_C.tolist()), recipe.train_rows)
    else:
        rows_by_class = [recipe.shots or 0] * len(classes)

    training: list[Rows] = []
    validation: list[Rows] = []
    for index, class_value in enumerate(classes.tolist()):
        stream = stream_seed(recipe.split_seed, "rows", class_value)
        generator = np.random.default_rng(stream)
        shuffled_M = generator.permutation(np.flatnonzero(class_N == index))
        row_M = shuffled_M[: rows_by_class[index]]
        is_held_out_M = _is_held_out(len(row_M), recipe)
        training.append(row_M[~is_held_out_M])
        validation.append(row_M[is_held_out_M])
    training_N = np.sort(np.concatenate(training))
    return Division(training_N, np.sort(np.concatenate(validation)))


def _draw_by_number(number_N: Strata, recipe: Recipe) -> Division:
    """Draw ``recipe.train_rows`` rows of numbers, and hold some out for validation.

    Equal ranges of the ranking take turns, once for training and once for validation:
    each part is spread evenly over the numbers, and smaller budgets lie in larger ones.
    """
    num_rows = len(number_N)
    _check_budget(num_rows, np.array([num_rows]), recipe)
    generator = np.random.default_rng(stream_seed(recipe.split_seed, "rows"))
    ranked_N = np.argsort(number_N, kind="stable")
    ranges = [
        generator.permutation(row_M).tolist()
        for row_M in np.array_split(ranked_N, NUM_RANGES)
    ]
    first_range = int(generator.integers(NUM_RANGES))
    turns = [
        ranges[(first_range + RANGE_STEP * turn) % NUM_RANGES]
        for turn in range(NUM_RANGES)
    ]

    training: list[int] = []
    validation: list[int] = []
    training_turns = cycle(turns)
    validation_turns = cycle(turns)
    for is_held_out in _is_held_out(recipe.train_rows or 0, recipe).tolist():
        # a range whose rows are all drawn is left out
        if is_held_out:
            validation.append(next(filter(None, validation_turns)).pop())
        else:
            training.append(next(filter(None, training_turns)).pop())
    return Division(
        np.sort(np.array(training, np.int64)), np.sort(np.array(validation, np.int64))
    )


def _draw_by_label(label_NK: NDArray[np.bool_], recipe: Recipe) -> Division:
    """Draw ``recipe.shots`` rows of every label, and hold some out for validation.

    ``label_NK`` says whether each row has each of K labels.
    """
    # rows without a label count as rows of one more label
    count_K = add_no_label_column(label_NK).sum(0)
    _check_budget(len(label_NK), count_K[count_K > 0], recipe)
    drawn_by_label = rows_by_label(label_NK, recipe.shots or 0, recipe.split_seed)
    row_N = np.concatenate(drawn_by_label)
    is_held_out_N = np.concatenate(
        [_is_held_out(len(row_M), recipe) for row_M in drawn_by_label]
    )
    return Division(np.sort(row_N[~is_held_out_N]), np.sort(row_N[is_held_out_N]))


def _is_held_out(num_rows: int, recipe: Recipe) -> NDArray[np.bool_]:
    """Whether each drawn row, of a class or in all, is for validation, (num_rows,).

    Its place among them decides: a row is held out where one row more means one
    validation row more. So it stays held out in larger budgets.
    """
    if recipe.select != "val":
        return np.zeros(num_rows, dtype=bool)
    count_by_size = validation_counts(np.arange(num_rows + 1), recipe.val_fraction)
    is_held_out: NDArray[np.bool_] = np.diff(count_by_size) > 0
    return is_held_out


def _check_budget(num_rows: int, count_C: Rows, recipe: Recipe) -> None:
    """Check that a split has enough rows for a budget.

    Args:
        num_rows: of the split.
        count_C: rows of each class.
        recipe: with the budget.

    Raises:
        ConfigError: it has too few rows, or the budget has less than a row of a class.
    """
    smallest_class = int(count_C.min())
    num_classes = len(count_C)
    shots = recipe.shots or 0  # rows of every class
    is_possible = shots <= smallest_class
    if recipe.train_rows:
        is_possible = num_classes <= recipe.train_rows <= num_rows
    if is_possible:
        return
    fewest = f"{num_classes:,}, one row of every class,"
    if num_classes == 1:
        fewest = "1"
    expected = f"from {fewest} to {num_rows:,}, all"
    if shots:
        expected = (
            f"1/class to {smallest_class:,}/class: the smallest class has no more"
        )
    raise ConfigError(
        "--train-rows is out of range",
        expected=expected,
        found=f"--train-rows {recipe.train_rows or f'{shots}/class'}",
        where=str(recipe),
    )


class _Release(NamedTuple):
    """A class whose next row may not be taken yet; the smallest tuple comes first."""

    first_budget: int  # the smallest budget in which the row may be taken
    class_index: int


class _Deadline(NamedTuple):
    """A class whose next row may be taken; the smallest tuple is taken first."""

    budget: int  # the smallest budget in which the row should be taken
    class_index: int


@lru_cache(maxsize=64)
def apportion(count_by_class: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Divide a budget of rows among the classes, in proportion to their rows.

    A growing budget takes one row of every class first, then one row after another. Of
    n rows, a class with c of all N rows has the share ``n c / N``. Its k-th row may be
    taken in budgets of n rows with ``ceil(n c / N) >= k``, and should be taken where
    ``floor(n c / N) >= k``. The smallest such n are the row's first budget and its
    deadline. Of the rows that may be taken, the one with the earliest deadline is
    taken.

    Args:
        count_by_class: rows of every class.
        size: rows of the budget.

    Returns:
        The rows to take of every class.
    """
    num_rows = sum(count_by_class)
    taken_by_class = [1] * len(count_by_class)

    def next_release(index: int) -> _Release:
        # the smallest n with n c / N above the rows that are taken
        first_budget = taken_by_class[index] * num_rows // count_by_class[index] + 1
        return _Release(first_budget, index)

    def next_deadline(index: int) -> _Deadline:
        # the smallest n with n c / N of one row more: (taken + 1) N / c, rounded up
        next_row = taken_by_class[index] + 1
        deadline = -(-next_row * num_rows // count_by_class[index])
        return _Deadline(deadline, index)

    waiting = [
        next_release(index) for index, count in enumerate(count_by_class) if count > 1
    ]
    heapq.heapify(waiting)
    ready: list[_Deadline] = []
    for budget in range(len(count_by_class) + 1, size + 1):
        # move the classes whose next row may be taken now
        while waiting and waiting[0].first_budget <= budget:
            released = heapq.heappop(waiting)
            heapq.heappush(ready, next_deadline(released.class_index))

        # never empty: rounded-up shares are together more than the rows so far
        index = heapq.heappop(ready).class_index
        taken_by_class[index] += 1
        if taken_by_class[index] < count_by_class[index]:
            heapq.heappush(waiting, next_release(index))
    return tuple(taken_by_class)
