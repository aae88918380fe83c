"""Which rows a training may learn from and choose by, where these are not all: its budget.

Every class has one order of its rows, which ``split-seed`` decides, and a budget takes the first
of each. How many of each is one order too, of classes: ``--train-rows`` takes a beginning of it,
``--train-rows N/class`` as many of every class. What is held out to choose is a part of the budget:
rows that choose are labelled rows (Perez, Kiela and Cho 2021, "True Few-Shot Learning with Language
Models").
The place of a row in its class says whether it is held out. So the rows of 100 are among those of
1,000, those held out among those held out, and no other size, seed or mechanism has a say.

Largest remainders, the usual way to share rows among classes, would not do: there a class may have
fewer of more rows (the Alabama paradox; Balinski and Young 1975, "The Quota Method of
Apportionment"), and budgets would not lie in one another. Here they do, and as with largest
remainders every class has its share rounded down or up. Of the ways to do that this is the earliest
deadline first (Steiner and Yeomans 1993, "Level Schedules for Mixed-Model, Just-in-Time
Processes"), behind one row of every class, for which the share of large ones waits.

C classes, N rows, K of a class.
"""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.rows.protocol import Rows, held_counts


class Drawn(NamedTuple):
    """Places among the rows that there are, ascending."""

    learn_N: Rows  # noqa: N815 a shape suffix
    held_N: Rows  # noqa: N815
    """Empty where nothing is held out."""


def draw(labels: Rows, recipe: Recipe) -> Drawn:
    """The rows that a budget is, and which of them are held out.

    A pure function of labels, split seed and size; and of the share that is held out, which decides
    about that alone.

    Args:
        labels: classes of the rows that there are, (N,).
        recipe: its size, split seed, and share of the rows that choose.

    Raises:
        ConfigError: there are fewer rows than that.
    """
    classes, class_N = np.unique(labels, return_inverse=True)
    count_C = class_counts(np.bincount(class_N), recipe)
    learn, held = [], []
    for place, (label, count) in enumerate(zip(classes.tolist(), count_C.tolist(), strict=True)):
        generator = np.random.default_rng(stream_seed(recipe.split_seed, "rows", label))
        row_K = generator.permutation(np.flatnonzero(class_N == place))[:count]
        is_held_K = np.zeros(count, dtype=bool)
        if recipe.select == "val":
            is_held_K = np.diff(held_counts(np.arange(count + 1), recipe.val_fraction)) > 0
        learn.append(row_K[~is_held_K])
        held.append(row_K[is_held_K])
    return Drawn(np.sort(np.concatenate(learn)), np.sort(np.concatenate(held)))


def class_counts(there_C: Rows, recipe: Recipe) -> Rows:
    """Rows of every class in a budget, (C,).

    Args:
        there_C: rows that there are, of the classes that have any.
        recipe: its size.

    Raises:
        ConfigError: there are fewer rows than that, or not one for every class.
    """
    where = f"of '{recipe.train_split}'" + (f" without fold {recipe.fold}" if recipe.fold else "")
    if recipe.shots is not None:
        if recipe.shots > there_C.min():
            raise ConfigError(
                "a class has fewer rows than --train-rows takes of each",
                expected=f"--train-rows of at most {there_C.min():,}/class, the rows {where} in "
                "its smallest class",
                found=f"--train-rows {recipe.shots}/class",
            )
        return np.full_like(there_C, recipe.shots)
    size, rows, classes = recipe.train_rows, int(there_C.sum()), len(there_C)
    assert size is not None
    if size > rows:
        raise ConfigError(
            "there are fewer rows than --train-rows takes",
            expected=f"--train-rows of at most {rows:,}, the rows {where}, or all",
            found=f"--train-rows {size}",
        )
    if size < classes:
        raise ConfigError(
            "--train-rows takes fewer rows than there are classes",
            expected=f"--train-rows of {classes:,} or more: one of every class {where}",
            found=f"--train-rows {size}",
        )
    return np.array(apportioned(tuple(there_C.tolist()), size))


@lru_cache(maxsize=64)
def apportioned(there: tuple[int, ...], size: int) -> tuple[int, ...]:
    """How many rows of every class a budget has: first one of each, then each its share.

    The k-th row of a class may come when its share, rounded up, is k, and should have come when it
    is k rounded down; of those that may come the one that is due first does. All in whole numbers.

    Args:
        there: rows of every class, each 1 or more.
        size: of the budget, from one of each to all.
    """
    total = sum(there)
    taken = [1] * len(there)
    waiting = [(_may_come(2, of, total), place) for place, of in enumerate(there) if of > 1]
    heapq.heapify(waiting)
    ready: list[tuple[int, int]] = []
    for count in range(len(there) + 1, size + 1):
        while waiting and waiting[0][0] <= count:
            _, place = heapq.heappop(waiting)
            heapq.heappush(ready, (-(-(taken[place] + 1) * total // there[place]), place))
        _, place = heapq.heappop(ready)  # shares rounded up are more than there are rows so far
        taken[place] += 1
        if taken[place] < there[place]:
            heapq.heappush(waiting, (_may_come(taken[place] + 1, there[place], total), place))
    return tuple(taken)


def _may_come(number: int, of: int, total: int) -> int:
    """Size of the first budget in which the share of a class, rounded up, is ``number``."""
    return (number - 1) * total // of + 1


def num_rows(recipe: Recipe, cache: EmbeddingCache) -> int:
    """Rows that a recipe learns from or chooses by; with folds a little more than it does."""
    split = cache[recipe.train_split]
    if recipe.shots is not None:
        return recipe.shots * len(np.unique(split.labels))
    return len(split) if recipe.train_rows is None else recipe.train_rows
