"""What every seed learns from, is chosen by and is tested on.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief
from gaam_decoder.recipe import Fold, Groups, Recipe
from gaam_decoder.training.rows.budget import class_counts, draw
from gaam_decoder.training.rows.features import Features
from gaam_decoder.training.rows.loaded import Loaded, Wanted
from gaam_decoder.training.rows.protocol import (
    Rows,
    grouped_folds,
    grouped_holdout,
    holdout,
    stratified_folds,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Rows of a split with their labels, on the device."""

    features: Features
    rows: Rows
    label_N: Tensor  # noqa: N815 a shape suffix

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainData:
    """What every seed of every mechanism learns from, is chosen by and is tested on."""

    train: Subset
    selection: Subset | None
    """Rows that select the epoch; None keeps the last."""
    test: Subset | None
    """None of a final model, which learns from all rows."""


class Parts(NamedTuple):
    """Rows of the train split, ascending; no row is in two of these."""

    learn_N: Rows  # noqa: N815 a shape suffix
    held_N: Rows  # noqa: N815
    """Those that choose; empty where none do."""
    test_N: Rows | None  # noqa: N815
    """Those of a fold."""


def choosing(data: TrainData, recipe: Recipe) -> Subset | None:
    """The rows of train that select the epoch, of which a run keeps the logits.

    None where none do. None of shuffled labels too, which every seed is told others of.
    """
    held = recipe.select == "val" and not recipe.shuffle_labels
    return data.selection if held else None


def prepare_data(
    cache: EmbeddingCache,
    recipe: Recipe,
    device: torch.device,
    loaded: Loaded | None = None,
) -> TrainData:
    """Load the splits that a recipe names and say which rows learn, select and test.

    Raises:
        ConfigError: the cache has no such split or pooling, or too few rows or groups to hold any
            out.
    """
    train_split = cache[recipe.train_split]
    rows = parts_of(train_split.labels, recipe)
    tested = None
    if rows.test_N is not None:
        tested = Wanted(train_split, rows.test_N)
    elif not recipe.final:
        test_split = cache[recipe.test_split]
        tested = Wanted(test_split, np.arange(len(test_split)))
    together = np.sort(np.concatenate([rows.learn_N, rows.held_N])) if recipe.drawn else None
    wanted = {"train": Wanted(train_split, rows.learn_N, together)}
    if len(rows.held_N):
        wanted["held"] = Wanted(train_split, rows.held_N, together)
    if tested is not None:
        wanted["test"] = tested
    found = (loaded or Loaded()).get(list(wanted.values()), recipe, device)
    parts = {
        name: Subset(
            features=features,
            rows=one.row_N,
            label_N=torch.from_numpy(one.split.labels[one.row_N]).to(device),
        )
        for (name, one), features in zip(wanted.items(), found, strict=True)
    }
    test = parts.get("test")
    selection = test if recipe.select == "test" else parts.get("held")
    return TrainData(train=parts["train"], selection=selection, test=test)


def parts_of(labels: Rows, recipe: Recipe) -> Parts:
    """Rows of the train split that learn, choose and are tested; no group has rows in two of these.

    Raises:
        ConfigError: there are too few rows or groups.
    """
    row_N, test_N = np.arange(len(labels)), None
    if recipe.fold is not None:
        test_N = fold_rows(labels, recipe)
        row_N = np.setdiff1d(row_N, test_N)
    first, second = np.arange(len(row_N)), np.arange(0)
    if recipe.drawn:
        first, second = draw(labels[row_N], recipe)
    elif recipe.select == "val" and recipe.groups is not None:
        names = [recipe.groups.names[row] for row in row_N]
        share, seed = recipe.val_fraction, recipe.split_seed
        first, second = grouped_holdout(labels[row_N], names, share, seed)
        if not len(second):
            raise _no_group_held_out(recipe, len(set(names)))
    elif recipe.select == "val":
        first, second = holdout(labels[row_N], recipe.val_fraction, recipe.split_seed)
    if recipe.select == "val" and not len(second):
        raise _none_held_out(recipe, len(first))
    return Parts(row_N[first], row_N[second], test_N)


def check_rows(recipes: Iterable[Recipe], cache: EmbeddingCache) -> None:
    """There are as many rows and groups as every recipe takes; said before any is trained.

    Raises:
        ConfigError: there are not, or too few for the folds; or a group is learned and tested.
    """
    count_C: dict[tuple[Fold | None, int], Rows] = {}
    grouped: set[tuple[Fold | None, int]] = set()
    for recipe in recipes:
        labels, place = cache[recipe.train_split].labels, (recipe.fold, recipe.split_seed)
        if recipe.groups is not None and place not in grouped:
            parts_of(labels, recipe)
            _check_tested(recipe.groups, recipe, cache)
            grouped.add(place)
        if not recipe.drawn:
            continue
        if place not in count_C:
            if recipe.fold is not None:
                labels = np.delete(labels, fold_rows(labels, recipe))
            count_C[place] = np.unique(labels, return_counts=True)[1]
        drawn_C = class_counts(count_C[place], recipe)
        if recipe.select == "val" and drawn_C.max() < 2:
            raise _none_held_out(recipe, int(drawn_C.sum()))


def _check_tested(groups: Groups, recipe: Recipe, cache: EmbeddingCache) -> None:
    """A kept column says of a test split too which group a row is of; a file does not."""
    if recipe.fold or recipe.final or recipe.allow_train_as_test or groups.kind == "file":
        return
    shared = set(groups.names) & set(cache[recipe.test_split].column(groups.source))
    if shared:
        raise ConfigError(
            f"groups of '{recipe.train_split}' are tested in '{recipe.test_split}' too",
            expected="groups of their own in every split",
            found=f"{len(shared):,} of {groups.in_words()} in both, such as '{brief(min(shared))}'",
            hint="--folds 5, which tests whole groups of train-split",
        )


def _none_held_out(recipe: Recipe, rows: int) -> ConfigError:
    return ConfigError(
        "no rows can be held out to choose the epoch",
        expected=f"a class with two or more rows in '{recipe.train_split}'"
        + (", or a larger --train-rows" if recipe.train_rows else ""),
        found=f"{rows:,} rows, each the only one of its class",
        hint="--select last, which chooses nothing",
    )


def _no_group_held_out(recipe: Recipe, groups: int) -> ConfigError:
    where = f"'{recipe.train_split}'" + (f" without fold {recipe.fold}" if recipe.fold else "")
    return ConfigError(
        "no whole group can be held out to choose",
        expected=f"a class with rows in two or more groups of {where}",
        found="1 group" if groups == 1 else f"{groups:,} groups, and every class in one of them",
        hint="--select last, which chooses nothing" + ("; or more --folds" if recipe.fold else ""),
    )


def fold_rows(labels: Rows, recipe: Recipe) -> Rows:
    """Rows of the train split that the fold of a recipe tests.

    Raises:
        ConfigError: more folds than rows or groups.
    """
    assert recipe.fold is not None
    number, count = recipe.fold
    if recipe.groups is None:
        if count > len(labels):
            raise ConfigError(
                "more folds than rows",
                expected=f"--folds of at most {len(labels)}, the rows of '{recipe.train_split}'",
                found=f"--folds {count}",
            )
        return stratified_folds(labels, count, recipe.split_seed)[number - 1]
    names, source = recipe.groups.names, recipe.groups.in_words()
    if count > len(set(names)):
        raise ConfigError(
            "more folds than groups",
            expected=f"--folds of at most {len(set(names))}, the names in {source}"
            if len(set(names)) > 1
            else f"two names or more in {source}",
            found=f"--folds {count}" if len(set(names)) > 1 else f"one name for all {count} folds",
        )
    return grouped_folds(names, count, recipe.split_seed)[number - 1]
