"""What every seed learns from, is chosen by and is tested on.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError
from gaam_decoder.recipe import Fold, Recipe
from gaam_decoder.training.rows.budget import class_counts, draw
from gaam_decoder.training.rows.features import Features
from gaam_decoder.training.rows.loaded import Loaded, Wanted
from gaam_decoder.training.rows.protocol import Rows, grouped_folds, holdout, stratified_folds


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
        ConfigError: the cache has no such split or pooling, too few rows to hold any out, or a file
            of groups that does not fit.
    """
    train_split = cache[recipe.train_split]
    train_rows = np.arange(len(train_split))
    held_rows = tested = None
    if recipe.fold is not None:
        tested = Wanted(train_split, fold_rows(train_split.labels, recipe))
        train_rows = np.setdiff1d(train_rows, tested.row_N)
    elif not recipe.final:
        test_split = cache[recipe.test_split]
        tested = Wanted(test_split, np.arange(len(test_split)))
    together = None
    if recipe.drawn or recipe.select == "val":
        labels = train_split.labels[train_rows]
        if recipe.drawn:
            first, second = draw(labels, recipe)
            together = np.sort(train_rows[np.concatenate([first, second])])
        else:
            first, second = holdout(labels, recipe.val_fraction, recipe.split_seed)
        if recipe.select == "val" and not len(second):
            raise _none_held_out(recipe, len(first))
        train_rows, held_rows = train_rows[first], train_rows[second]
    wanted = {"train": Wanted(train_split, train_rows, together)}
    if held_rows is not None and len(held_rows):
        wanted["held"] = Wanted(train_split, held_rows, together)
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


def check_budgets(recipes: Iterable[Recipe], cache: EmbeddingCache) -> None:
    """There are as many rows as every recipe of a sweep takes; said before any is trained.

    Raises:
        ConfigError: there are not, or too few for the folds.
    """
    count_C: dict[tuple[Fold | None, int], Rows] = {}
    for recipe in recipes:
        if not recipe.drawn:
            continue
        labels, place = cache[recipe.train_split].labels, (recipe.fold, recipe.split_seed)
        if place not in count_C:
            if recipe.fold is not None:
                labels = np.delete(labels, fold_rows(labels, recipe))
            count_C[place] = np.unique(labels, return_counts=True)[1]
        drawn_C = class_counts(count_C[place], recipe)
        if recipe.select == "val" and drawn_C.max() < 2:
            raise _none_held_out(recipe, int(drawn_C.sum()))


def _none_held_out(recipe: Recipe, rows: int) -> ConfigError:
    return ConfigError(
        "no rows can be held out to choose the epoch",
        expected=f"a class with two or more rows in '{recipe.train_split}'"
        + (", or a larger --train-rows" if recipe.train_rows else ""),
        found=f"{rows:,} rows, each the only one of its class",
        hint="--select last, which chooses nothing",
    )


def fold_rows(labels: Rows, recipe: Recipe) -> Rows:
    """Rows of the train split that the fold of a recipe tests.

    Raises:
        ConfigError: more folds than rows or groups, or not one name per row.
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
    if len(names) != len(labels):
        raise ConfigError(
            f"{source} does not fit the split '{recipe.train_split}'",
            expected=f"{len(labels)} lines, one per row in the order of the data set",
            found=f"{len(names)} lines",
        )
    if count > len(set(names)):
        raise ConfigError(
            "more folds than groups",
            expected=f"--folds of at most {len(set(names))}, the names in {source}"
            if len(set(names)) > 1
            else f"two names or more in {source}",
            found=f"--folds {count}" if len(set(names)) > 1 else f"one name for all {count} folds",
        )
    return grouped_folds(names, count, recipe.split_seed)[number - 1]
