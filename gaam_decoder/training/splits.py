"""Divide the rows of the train split into training, validation and test rows.

A budget (``--train-rows``) takes the first rows of every class in an order that
``split-seed`` decides. Its validation rows are a part of it (Perez, Kiela and Cho 2021,
"True Few-Shot Learning with Language Models"). Smaller budgets lie in larger ones;
largest remainders would break this (the Alabama paradox). So after one row of every
class, rows come earliest deadline first (Steiner and Yeomans 1993, "Level Schedules for
Mixed-Model, Just-in-Time Processes").

All functions are pure. C classes, G groups, K choices, N rows.
"""

import heapq
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, NotFoundError
from gaam_cache.common.messages import brief, shortened
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Groups, Recipe

Rows = NDArray[np.int64]


class Parts(NamedTuple):
    """Disjoint rows of the train split, ascending."""

    learn_N: Rows
    held_N: Rows  # validation rows; may be empty
    test_N: Rows | None  # of a fold


def parts_of(labels: Rows, recipe: Recipe, seed: int = 0) -> Parts:
    """Divide the train split of a recipe; no group is in two parts.

    The seed of a training matters only with ``val_folds``: it chooses the part that
    validates.
    """
    # a fold sets its test rows aside
    groups = recipe.named_groups
    names = None if groups is None else groups.names
    row_N = np.arange(len(labels))
    test_N: Rows | None = None
    if recipe.fold is not None:
        folds = _folds(labels, names, recipe.fold.total, recipe.split_seed)
        test_N = folds[recipe.fold.number - 1]
        row_N = np.setdiff1d(row_N, test_N)

    # divide the other rows
    own_names = None if names is None else [names[row] for row in row_N]
    learn_N, held_N = _hold_out(labels[row_N], own_names, recipe, seed)
    if recipe.select == "val" and not len(held_N):
        kind = "rows" if names is None else "groups"
        raise ConfigError(
            f"no {kind} can be held out to choose the epoch",
            expected=(
                f"a class with two or more {kind}, or --select last, which chooses "
                "nothing"
            ),
            where=str(recipe),
        )
    return Parts(row_N[learn_N], row_N[held_N], test_N)


def _hold_out(
    labels: Rows, names: Sequence[str] | None, recipe: Recipe, seed: int
) -> tuple[Rows, Rows]:
    """Training and validation rows among these labels."""
    learn_N = np.arange(len(labels))
    held_N = np.arange(0)
    if recipe.drawn:
        learn_N, held_N = draw(labels, recipe)
    if recipe.val_folds is not None:
        budget_N = np.sort(np.concatenate([learn_N, held_N]))
        held_N = _validation_fold(labels, names, budget_N, recipe, seed)
        return np.setdiff1d(budget_N, held_N), held_N
    if recipe.select != "val":
        return learn_N, held_N
    if names is not None:
        return grouped_holdout(labels, names, recipe.val_fraction, recipe.split_seed)
    if not recipe.drawn:
        return holdout(labels, recipe.val_fraction, recipe.split_seed)
    return learn_N, held_N


def _validation_fold(
    labels: Rows,
    names: Sequence[str] | None,
    budget_N: Rows,
    recipe: Recipe,
    seed: int,
) -> Rows:
    """The validation rows of one tuning seed: one part of the rows of a budget."""
    assert recipe.val_folds is not None
    label_N = labels[budget_N]
    # another order than that of the test folds
    split_seed = stream_seed(recipe.split_seed, "rates")
    folds = _folds(label_N, names, recipe.val_folds, split_seed)
    fold_N = folds[seed % len(folds)]

    # the only row of a class is always trained on
    classes, count_C = np.unique(label_N, return_counts=True)
    is_repeated_N = np.isin(label_N[fold_N], classes[count_C > 1])
    return budget_N[fold_N[is_repeated_N]]


def _folds(
    labels: Rows, names: Sequence[str] | None, count: int, seed: int
) -> list[Rows]:
    """Divide rows into parts: by class, or by group if there are names."""
    if names is None:
        most = len(labels)
        kind = "rows"
    else:
        most = len(set(names))
        kind = "groups"
    if count > most:
        raise ConfigError(
            "too many parts of train",
            expected=f"at most {most}, the number of {kind}",
            found=str(count),
        )
    if names is None:
        return stratified_folds(labels, count, seed)
    return grouped_folds(names, count, seed)


def holdout(labels: Rows, fraction: float, split_seed: int) -> tuple[Rows, Rows]:
    """Divide rows into two parts with the same share of every class, each ascending."""
    generator = np.random.default_rng(split_seed)
    held = []
    for label in np.unique(labels):
        row_N = np.flatnonzero(labels == label)
        held.append(generator.permutation(row_N)[: held_counts(len(row_N), fraction)])
    held_N = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), held_N), held_N


def held_counts(rows: int | Rows, fraction: float) -> Rows:
    """The rows of a class to hold out: the fraction, at least one, but never all."""
    share = np.rint(fraction * np.asarray(rows))
    count: NDArray[np.float64] = np.minimum(rows - 1, np.maximum(1, share))
    return np.maximum(0, count).astype(np.int64)


def grouped_holdout(
    labels: Rows, groups: Sequence[str], fraction: float, split_seed: int
) -> tuple[Rows, Rows]:
    """Divide rows into two parts that share no group, as near to ``holdout`` as can be.

    In a random order, each group that exceeds the share of no class is held out. Then
    one group after another is held out, each time the one that brings the share of the
    rows, and the classes of the two parts, nearest to one another. The second part is
    empty where no class is in two groups.
    """
    _, class_N = np.unique(labels, return_inverse=True)
    _, group_N = np.unique(np.asarray(groups), return_inverse=True)
    num_groups = group_N.max() + 1
    # a random order, so that the first of equally good groups is any of them
    group_N = np.random.default_rng(split_seed).permutation(num_groups)[group_N]
    count_GC = np.zeros((num_groups, class_N.max() + 1), dtype=np.int64)
    np.add.at(count_GC, (group_N, class_N), 1)
    all_C = count_GC.sum(0)

    # hold out groups within the share of every class
    most_C = held_counts(all_C, fraction)
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
    return np.flatnonzero(~is_held_N), np.flatnonzero(is_held_N)


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


def stratified_folds(labels: Rows, count: int, split_seed: int) -> list[Rows]:
    """Divide rows into parts of nearly the same size and share of every class."""
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
    part_of = np.zeros(len(names), dtype=np.int64)
    for group in sorted(order, key=lambda group: -sizes[group]):
        part_of[group] = np.argmin(filled)
        filled[part_of[group]] += sizes[group]
    return [np.flatnonzero(part_of[group_N] == part) for part in range(count)]


def draw(labels: Rows, recipe: Recipe) -> tuple[Rows, Rows]:
    """The training and validation rows of a budget among these labels, ascending."""
    classes, class_N, count_C = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    _check_budget(len(labels), count_C, recipe)
    shots = recipe.shots or 0
    taken_by_class: Sequence[int] = [shots] * len(classes)
    if recipe.train_rows:
        taken_by_class = apportioned(tuple(count_C.tolist()), recipe.train_rows)

    learn: list[Rows] = []
    held: list[Rows] = []
    for index, label in enumerate(classes.tolist()):
        generator = np.random.default_rng(stream_seed(recipe.split_seed, "rows", label))
        row_K = generator.permutation(np.flatnonzero(class_N == index))
        row_K = row_K[: taken_by_class[index]]
        # by its place in the class: a row stays held out in larger budgets
        is_held_K = np.zeros(len(row_K), dtype=bool)
        if recipe.select == "val":
            counts = held_counts(np.arange(len(row_K) + 1), recipe.val_fraction)
            is_held_K = np.diff(counts) > 0
        learn.append(row_K[~is_held_K])
        held.append(row_K[is_held_K])
    return np.sort(np.concatenate(learn)), np.sort(np.concatenate(held))


def _check_budget(rows: int, count_C: Rows, recipe: Recipe) -> None:
    """Check that the classes of a split have the rows of a budget."""
    fewest = int(count_C.min())
    classes = len(count_C)
    shots = recipe.shots or 0
    size = recipe.train_rows or shots * classes
    if shots <= fewest and classes <= size <= rows:
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
def apportioned(there: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The rows of every class in a budget: first one of each, then each its share.

    The k-th row of a class may come when its share, rounded up, is k, and is due when
    its share, rounded down, is k. Of the rows that may come, the first due comes.

    Args:
        there: rows of every class.
        size: of the budget.
    """
    total = sum(there)
    taken = [1] * len(there)

    # by the size of the first budget in which the rounded-up share of a class rises
    waiting = [
        (total // count + 1, index) for index, count in enumerate(there) if count > 1
    ]
    heapq.heapify(waiting)
    ready: list[tuple[int, int]] = []
    for budget in range(len(there) + 1, size + 1):
        # rows that may come now, by the size of the budget in which they are due
        while waiting and waiting[0][0] <= budget:
            _, index = heapq.heappop(waiting)
            due = -(-(taken[index] + 1) * total // there[index])
            heapq.heappush(ready, (due, index))

        # never empty: rounded-up shares are together more than the rows so far
        _, index = heapq.heappop(ready)
        taken[index] += 1
        if taken[index] < there[index]:
            first_budget = taken[index] * total // there[index] + 1
            heapq.heappush(waiting, (first_budget, index))
    return tuple(taken)


def num_rows(recipe: Recipe, cache: EmbeddingCache) -> int:
    """Training and validation rows of a recipe; of a fold, its test rows, too."""
    split = cache[recipe.train_split]
    if recipe.shots is not None:
        return recipe.shots * len(np.unique(split.labels))
    return len(split) if recipe.train_rows is None else recipe.train_rows


def check_rows(recipes: Iterable[Recipe], cache: EmbeddingCache) -> None:
    """Check that the cache has the rows and groups of every recipe.

    Raises:
        ConfigError: too few rows or groups, or a group in the training and test splits.
    """
    # other settings divide the rows in the same way
    distinct: dict[tuple[object, ...], Recipe] = {}
    for recipe in recipes:
        key = recipe.fold, recipe.split_seed, recipe.train_rows, recipe.shots
        distinct[key] = recipe
    for recipe in distinct.values():
        if recipe.groups is not None or recipe.drawn:
            parts_of(cache[recipe.train_split].labels, recipe)
        _check_groups_apart(recipe, cache)


def _check_groups_apart(recipe: Recipe, cache: EmbeddingCache) -> None:
    """Check that no group is in the training and the test split."""
    groups = recipe.named_groups
    if recipe.fold or recipe.final or recipe.allow_train_as_test:
        return
    # a file names the rows of the training split alone
    if groups is None or groups.kind == "file":
        return
    test_names = cache[recipe.test_split].column(groups.source)
    shared = set(groups.names) & set(test_names)
    if shared:
        raise ConfigError(
            f"groups of '{recipe.train_split}' are tested in '{recipe.test_split}' too",
            found=f"{len(shared):,}: '{brief(min(shared))}'",
            hint="--folds 5, which tests whole groups of train-split",
        )


def read_groups(given: str, cache: EmbeddingCache, split: str) -> Groups:
    """The group of every row of a split, from a kept column or a file of names.

    Raises:
        NotFoundError: there is no such column or file.
        ConfigError: there is not one name for each row.
    """
    if given in cache.columns:
        names = tuple(cache[split].column(given))
        groups = Groups(names=names, source=given, kind="column")
    else:
        groups = _read_group_file(given, cache)

    rows = len(cache[split])
    count = len(groups.names)
    empty_lines = [
        line for line, name in enumerate(groups.names, 1) if not name.strip()
    ]
    if count == rows and not empty_lines:
        return groups
    found = f"{count} names"
    if empty_lines:
        found = f"line {empty_lines[0]} is empty"
    raise ConfigError(
        f"the {groups.kind} '{groups.source}' does not fit the split '{split}'",
        expected=f"a name for each of its {rows} rows, in the order of the data set",
        found=found,
    )


def _read_group_file(name: str, cache: EmbeddingCache) -> Groups:
    """The names in the lines of a file."""
    path = Path(name).expanduser()
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        columns = ", ".join(map(shortened, cache.columns)) or "it has none"
        raise NotFoundError(
            f"cannot read the groups '{shortened(name)}'",
            expected=(
                f"a kept column of the cache ({columns}), or a file with a name per row"
            ),
            found=str(error),
            hint="gaam extract --keep-column NAME",
        ) from error
    return Groups(names=tuple(lines), source=str(path.absolute()), kind="file")
