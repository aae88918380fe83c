"""Which rows of the train split learn, which choose the epoch, which are tested: pure functions.

A budget (``--train-rows``) takes the first rows of every class in an order that ``split-seed``
decides, and what is held out to choose is a part of it (Perez, Kiela and Cho 2021, "True Few-Shot
Learning with Language Models"). Smaller budgets lie in larger ones, which largest remainders would
not do (the Alabama paradox): rows come earliest deadline first (Steiner and Yeomans 1993, "Level
Schedules for Mixed-Model, Just-in-Time Processes"), behind one row of every class.

C classes, G groups, K choices, N rows.
"""

import heapq
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
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
    """Rows of the train split, ascending; no row is in two of these."""

    learn_N: Rows
    held_N: Rows  # those that choose; empty where none do
    test_N: Rows | None  # those of a fold


def parts_of(labels: Rows, recipe: Recipe, seed: int = 0) -> Parts:
    """Rows of the train split that learn, choose and are tested; no group is in two of these.

    Only with ``val_folds`` does the seed of an experiment have a say: in which part chooses.
    """
    row_N, test_N = np.arange(len(labels)), None
    names = None if recipe.groups is None else recipe.groups.names
    what = "rows" if names is None else "groups"
    if recipe.fold is not None:
        number, count = recipe.fold
        test_N = _folds(labels, names, count, recipe.split_seed)[number - 1]
        row_N = np.setdiff1d(row_N, test_N)
    first, second = np.arange(len(row_N)), np.arange(0)
    if recipe.drawn:
        first, second = draw(labels[row_N], recipe)
    own = None if names is None else [names[row] for row in row_N]
    how = recipe.val_fraction, recipe.split_seed
    if recipe.val_folds is not None:
        all_N = np.sort(np.concatenate([first, second]))
        label_N = labels[row_N][all_N]
        # another order than that of the folds that are tested
        folds = _folds(
            label_N, own, recipe.val_folds, stream_seed(recipe.split_seed, "rates")
        )
        classes, count_C = np.unique(label_N, return_counts=True)
        second = folds[seed % len(folds)]  # and never the only row of a class
        second = all_N[second[np.isin(label_N[second], classes[count_C > 1])]]
        first = np.setdiff1d(all_N, second)
    elif recipe.select == "val" and own is not None:
        first, second = grouped_holdout(labels[row_N], own, *how)
    elif recipe.select == "val" and not recipe.drawn:
        first, second = holdout(labels[row_N], *how)
    if recipe.select == "val" and not len(second):
        raise ConfigError(
            f"no {what} can be held out to choose the epoch",
            expected=f"a class with two or more {what}, or --select last, which chooses nothing",
            where=str(recipe),
        )
    return Parts(row_N[first], row_N[second], test_N)


def _folds(
    labels: Rows, names: Sequence[str] | None, count: int, seed: int
) -> list[Rows]:
    if count > (most := len(labels) if names is None else len(set(names))):
        expected = f"at most {most}, the {'rows' if names is None else 'groups'} that there are"
        raise ConfigError(
            "too many parts of train", expected=expected, found=str(count)
        )
    if names is None:
        return stratified_folds(labels, count, seed)
    return grouped_folds(names, count, seed)


def holdout(labels: Rows, fraction: float, split_seed: int) -> tuple[Rows, Rows]:
    """Sorted row numbers of two parts with the same share of every class."""
    generator = np.random.default_rng(split_seed)
    held = []
    for label in np.unique(labels):
        row_N = np.flatnonzero(labels == label)
        held.append(generator.permutation(row_N)[: held_counts(len(row_N), fraction)])
    held_N = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), held_N), held_N


def held_counts(rows: int | Rows, fraction: float) -> Rows:
    """How many of so many rows of a class are held out: the share, at least one, never all."""
    found: Rows = np.minimum(
        rows - 1, np.maximum(1, np.rint(fraction * np.asarray(rows)))
    )
    return np.maximum(0, found).astype(np.int64)


def grouped_holdout(
    labels: Rows, groups: Sequence[str], fraction: float, split_seed: int
) -> tuple[Rows, Rows]:
    """Two parts that share no group, as near to ``holdout`` as groups allow.

    Groups in a random order go to the second part where they exceed its share of no class. Then,
    one after the other, goes whichever brings the share of the rows, and the classes of the two
    parts, nearest to one another. The second is empty where no class is in two groups.
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
            return np.flatnonzero(~is_held_G[group_N]), np.flatnonzero(
                is_held_G[group_N]
            )
        off, held_C, is_held_G[best] = off_G[best], held_C + count_GC[best], True


def _off(held_KC: Rows, all_C: Rows, fraction: float) -> NDArray[np.float64]:
    """How far from a good choice each of K is, by the rows of every class that it holds out."""
    learned_KC = all_C - held_KC
    held_K, learned_K = held_KC.sum(1), learned_KC.sum(1)
    lost_K = np.where(learned_KC <= 0, held_KC, 0).sum(1)
    share_KC = held_KC / np.maximum(1, held_K)[:, None]
    classes_K = (
        abs(share_KC - learned_KC / np.maximum(1, learned_K)[:, None]).sum(1) / 2
    )
    off_K = (
        2 * lost_K + classes_K + abs(held_K / all_C.sum() - fraction)
    )  # the others are below 2
    return np.where(lost_K == held_K, np.inf, off_K)


def stratified_folds(labels: Rows, count: int, split_seed: int) -> list[Rows]:
    """Rows in ``count`` parts of nearly the same size with the same share of every class."""
    generator = np.random.default_rng(split_seed)
    by_class = [
        generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)
    ]
    # dealt out in turn over all classes: neither a class nor the whole differs by more than a row
    dealt = np.concatenate(by_class)
    return [np.sort(dealt[place::count]) for place in range(count)]


def grouped_folds(groups: Sequence[str], count: int, split_seed: int) -> list[Rows]:
    """Rows in ``count`` parts that share no group, as equal in size as large groups first make it.

    ``split_seed`` decides between groups of the same size.
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


def draw(labels: Rows, recipe: Recipe) -> tuple[Rows, Rows]:
    """Rows of a budget that learn and those held out: places among these labels, ascending."""
    classes, class_N, there_C = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    fewest, shots = int(there_C.min()), recipe.shots or 0
    size = recipe.train_rows or shots * len(classes)
    if shots > fewest or not len(classes) <= size <= len(labels):
        of_all = (
            f"from {len(classes):,}, one row of every class, to {len(labels):,}, all"
        )
        raise ConfigError(
            "--train-rows is out of range",
            expected=f"1/class to {fewest:,}/class, the smallest one"
            if shots
            else of_all,
            found=f"--train-rows {recipe.train_rows or f'{shots}/class'}",
            where=str(recipe),
        )
    counts = (
        apportioned(tuple(there_C.tolist()), size)
        if recipe.train_rows
        else repeat(shots)
    )
    learn, held = [], []
    for place, (label, count) in enumerate(zip(classes.tolist(), counts, strict=False)):
        generator = np.random.default_rng(stream_seed(recipe.split_seed, "rows", label))
        row_K = generator.permutation(np.flatnonzero(class_N == place))[:count]
        is_held_K = np.zeros(len(row_K), dtype=bool)
        # by the place in the class: what smaller budgets hold out larger ones do too
        if recipe.select == "val":
            is_held_K = (
                np.diff(held_counts(np.arange(len(row_K) + 1), recipe.val_fraction)) > 0
            )
        learn.append(row_K[~is_held_K])
        held.append(row_K[is_held_K])
    return np.sort(np.concatenate(learn)), np.sort(np.concatenate(held))


@lru_cache(maxsize=64)
def apportioned(there: tuple[int, ...], size: int) -> tuple[int, ...]:
    """How many rows of every class a budget has: first one of each, then each its share.

    The k-th row of a class may come when its share, rounded up, is k, and is due when it is k
    rounded down; of those that may come the one that is due first does.
    """
    total = sum(there)
    taken = [1] * len(there)
    # the size of the first budget in which the share of a class, rounded up, is the next number
    waiting = [(total // of + 1, place) for place, of in enumerate(there) if of > 1]
    heapq.heapify(waiting)
    ready: list[tuple[int, int]] = []
    for count in range(len(there) + 1, size + 1):
        while waiting and waiting[0][0] <= count:
            _, place = heapq.heappop(waiting)
            heapq.heappush(
                ready, (-(-(taken[place] + 1) * total // there[place]), place)
            )
        _, place = heapq.heappop(
            ready
        )  # shares rounded up are more than there are rows so far
        taken[place] += 1
        if taken[place] < there[place]:
            heapq.heappush(waiting, (taken[place] * total // there[place] + 1, place))
    return tuple(taken)


def num_rows(recipe: Recipe, cache: EmbeddingCache) -> int:
    """Rows that a recipe learns from or chooses by; with folds a little more than it does."""
    split = cache[recipe.train_split]
    if recipe.shots is not None:
        return recipe.shots * len(np.unique(split.labels))
    return len(split) if recipe.train_rows is None else recipe.train_rows


def check_rows(recipes: Iterable[Recipe], cache: EmbeddingCache) -> None:
    """There are as many rows and groups as every recipe takes; said before any is trained."""
    places = {
        (one.fold, one.split_seed, one.train_rows, one.shots): one for one in recipes
    }
    for recipe in places.values():
        if recipe.groups is not None or recipe.drawn:
            parts_of(cache[recipe.train_split].labels, recipe)
        groups, apart = (
            recipe.groups,
            recipe.fold or recipe.final or recipe.allow_train_as_test,
        )
        if (
            groups is None or groups.kind == "file" or apart
        ):  # a file is of the train split alone
            continue
        if shared := set(groups.names) & set(
            cache[recipe.test_split].column(groups.source)
        ):
            message = f"groups of '{recipe.train_split}' are tested in '{recipe.test_split}' too"
            hint = "--folds 5, which tests whole groups of train-split"
            raise ConfigError(
                message, found=f"{len(shared):,}: '{brief(min(shared))}'", hint=hint
            )


def read_groups(given: str, cache: EmbeddingCache, split: str) -> Groups:
    """A name for every row of a split, from a kept column, or a file with one name per line."""
    if given in cache.columns:
        groups = Groups(
            names=tuple(cache[split].column(given)), source=given, kind="column"
        )
    else:
        path = Path(given).expanduser()
        try:
            lines = path.read_text("utf-8-sig").splitlines()
        except (OSError, ValueError) as error:
            kept = ", ".join(map(shortened, cache.columns)) or "it has none"
            expected = (
                f"a kept column of the cache ({kept}), or a file with a name per row"
            )
            message = f"cannot read the groups '{shortened(given)}'"
            hint = "gaam extract --keep-column NAME"
            raise NotFoundError(
                message, expected=expected, found=str(error), hint=hint
            ) from error
        groups = Groups(names=tuple(lines), source=str(path.absolute()), kind="file")
    rows, count = len(cache[split]), len(groups.names)
    empty = next(
        (n for n, name in enumerate(groups.names, 1) if not name.strip()), None
    )
    if count != rows or empty:
        message = (
            f"the {groups.kind} '{groups.source}' does not fit the split '{split}'"
        )
        expected = f"a name for each of its {rows} rows, in the order of the data set"
        found = f"line {empty} is empty" if empty else f"{count} names"
        raise ConfigError(message, expected=expected, found=found)
    return groups
