"""Divide the rows of the train split into training, validation and test rows.

``divide`` sets the test rows of a fold aside; a protocol divides the others into
training and validation rows. N rows.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gaam_cache.common.cells import is_blank, lookalike_groups
from gaam_cache.common.errors import ConfigError, GaamWarning, NotFoundError
from gaam_cache.common.messages import brief, counted, did_you_mean, shortened
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Groups, Recipe
from gaam_decoder.tasks import task_of
from gaam_decoder.training.partitions import (
    Division,
    Rows,
    Strata,
    divide_into_folds,
    draw_budget,
    grouped_holdout,
    holdout,
    one_stratum_per_row,
)

GroupNames = Sequence[str]


class Parts(NamedTuple):
    """Disjoint rows of the train split, ascending."""

    training_N: Rows
    validation_N: Rows  # empty where no row is held out
    test_N: Rows | None  # of a fold


class DivisionProtocol(ABC):
    """A way to divide rows, apart from test rows, into training and validation rows."""

    @abstractmethod
    def divide(self, labels: Strata, group_names: GroupNames | None) -> Division:
        """Divide rows.

        Args:
            labels: the class, number or labels of each row.
            group_names: the group of each row; None where rows have no groups.
        """


class NoValidation(DivisionProtocol):
    """All rows are training rows."""

    def divide(
        self,
        labels: Strata,
        group_names: GroupNames | None,  # noqa: ARG002
    ) -> Division:
        return Division(np.arange(len(labels)), np.arange(0))


@dataclass(frozen=True)
class Holdout(DivisionProtocol):
    """A share of every class, or of all numbers, validates, or whole groups do."""

    fraction: float
    split_seed: int

    def divide(self, labels: Strata, group_names: GroupNames | None) -> Division:
        """Hold out a share of the rows, or whole groups where rows have groups."""
        if group_names is not None:
            return grouped_holdout(labels, group_names, self.fraction, self.split_seed)
        return holdout(labels, self.fraction, self.split_seed)


@dataclass(frozen=True)
class Budget(DivisionProtocol):
    """A drawn part of the rows trains and validates; the other rows do neither."""

    recipe: Recipe

    def divide(
        self,
        labels: Strata,
        group_names: GroupNames | None,  # noqa: ARG002
    ) -> Division:
        return draw_budget(labels, self.recipe)


@dataclass(frozen=True)
class TuningFold(DivisionProtocol):
    """One of several folds validates: each tuning seed has a fold of its own."""

    # its training and validation rows are divided into folds, its other rows are left
    # out; with groups it leaves none out
    row_choice: DivisionProtocol
    num_folds: int
    split_seed: int
    seed: int  # that trains

    def divide(self, labels: Strata, group_names: GroupNames | None) -> Division:
        """Hold out the fold of the seed; the other chosen rows train."""
        training_N, validation_N = self.row_choice.divide(labels, group_names)
        row_N = np.sort(np.concatenate([training_N, validation_N]))
        label_M = labels[row_N]
        # a stream of its own for tuning, so that the folds differ from the test folds
        split_seed = stream_seed(self.split_seed, "rates")
        folds = divide_into_folds(label_M, group_names, self.num_folds, split_seed)
        position_M = folds[self.seed % len(folds)]

        # the only row of a class is always trained on
        class_M = one_stratum_per_row(label_M)
        classes, count_C = np.unique(class_M, return_counts=True)
        has_class_mates_M = np.isin(class_M[position_M], classes[count_C > 1])
        validation_N = row_N[position_M[has_class_mates_M]]
        return Division(np.setdiff1d(row_N, validation_N), validation_N)


def protocol_of(recipe: Recipe, seed: int = 0) -> DivisionProtocol:
    """How a recipe divides rows into training and validation rows (a protocol).

    Args:
        recipe: of a training.
        seed: of the training; it matters only with ``val_folds``, where each seed
            validates on another fold of the training rows.
    """
    if recipe.val_folds is not None:
        row_choice = Budget(recipe) if recipe.has_budget else NoValidation()
        return TuningFold(row_choice, recipe.val_folds, recipe.split_seed, seed)
    # a budget need not look at groups: a config refuses both together
    if recipe.has_budget:
        return Budget(recipe)
    if recipe.holds_out_rows:
        return Holdout(recipe.val_fraction, recipe.split_seed)
    return NoValidation()


def divide(labels: Strata, recipe: Recipe, seed: int = 0) -> Parts:
    """Divide the train split of a recipe into training, validation and test rows.

    Rows of one group, such as a speaker, are all in the same part.

    Args:
        labels: the class, number or labels of every row, of which each part gets
            nearly the same share, see ``Task.stratify_by``.
        recipe: of a training.
        seed: of the training, see ``protocol_of``.

    Raises:
        ConfigError: fewer rows or groups than the recipe asks for.
    """
    # a fold sets its test rows aside
    groups = recipe.named_groups
    names = None if groups is None else groups.names
    row_N = np.arange(len(labels))
    test_N: Rows | None = None
    if recipe.fold is not None:
        folds = divide_into_folds(labels, names, recipe.fold.total, recipe.split_seed)
        test_N = folds[recipe.fold.number - 1]
        row_N = np.setdiff1d(row_N, test_N)

    # divide the other rows
    own_names = None if names is None else [names[row] for row in row_N]
    division = protocol_of(recipe, seed).divide(labels[row_N], own_names)
    if recipe.holds_out_rows and not len(division.validation_N):
        kind = "rows" if names is None else "groups"
        raise ConfigError(
            f"no {kind} can be held out to choose the epoch",
            expected=(
                f"a class with two or more {kind}, or --select last, which chooses "
                "nothing"
            ),
            where=str(recipe),
        )
    return Parts(row_N[division.training_N], row_N[division.validation_N], test_N)


def num_rows(recipe: Recipe, cache: EmbeddingCache) -> int:
    """Number of rows that are divided into training, validation and, of folds, test."""
    split = cache[recipe.train_split]
    if recipe.shots is not None:
        # the number depends on the classes; a row with several labels counts for each
        strata = task_of(cache.task).stratify_by(split.labels)
        division = draw_budget(strata, recipe)
        return len(division.training_N) + len(division.validation_N)
    return len(split) if recipe.train_rows is None else recipe.train_rows


def check_rows(recipes: Iterable[Recipe], cache: EmbeddingCache) -> None:
    """Check that the cache has the rows and groups of every recipe.

    Raises:
        ConfigError: too few rows or groups, or a group in the training and test splits.
    """
    # whether the rows suffice depends on these settings alone: of recipes that agree in
    # them, one is enough
    distinct_recipes: dict[tuple[object, ...], Recipe] = {}
    for recipe in recipes:
        key = recipe.fold, recipe.split_seed, recipe.train_rows, recipe.shots
        distinct_recipes[key] = recipe
    for recipe in distinct_recipes.values():
        if recipe.groups is not None or recipe.has_budget:
            strata = task_of(cache.task).stratify_by(cache[recipe.train_split].labels)
            divide(strata, recipe)
        _check_no_shared_group(recipe, cache)


def _check_no_shared_group(recipe: Recipe, cache: EmbeddingCache) -> None:
    """Check that no group is in two of the training, validation and test splits.

    Raises:
        ConfigError: a group is, or a row has none.
    """
    groups = recipe.named_groups
    # a fold tests whole groups
    if groups is None or recipe.fold:
        return
    if groups.kind == "file":
        _check_names_suffice(recipe)
        return
    splits = recipe.used_splits
    # a final model has no test rows, and training rows may be tested if a user says so
    if recipe.final or recipe.allow_train_as_test:
        splits = splits[:-1]
    names_by_split = {recipe.train_split: set(groups.names)}
    for split in splits[1:]:
        names_by_split[split] = set(read_groups(groups.source, cache, split).names)
    # training and test rows first: without val-split they have to be mended as well
    pairs = sorted(combinations(splits, 2), key=lambda pair: recipe.val_split in pair)
    for split, other_split in pairs:
        shared = names_by_split[split] & names_by_split[other_split]
        if not shared:
            continue
        use = "tested in" if other_split == recipe.test_split else "validation rows of"
        hint = "leave val-split out: whole groups of train-split validate then"
        if recipe.val_split not in (split, other_split):
            condition = ", without val-split" if recipe.val_split else ""
            hint = (
                f"--folds 5{condition}, which tests whole groups of train-split; or "
                "divide the rows again: gaam extract --test-groups"
            )
        raise ConfigError(
            f"groups of '{split}' are {use} '{other_split}' too",
            found=f"{counted(len(shared), 'group')}, such as '{brief(min(shared))}'",
            hint=hint,
        )


def _check_names_suffice(recipe: Recipe) -> None:
    """Check that a file of groups, which names training rows alone, has a use.

    Raises:
        ConfigError: the validation rows are of another split.
    """
    if recipe.val_split is not None:
        raise ConfigError(
            "a file of --groups names training rows, and no training row is held out",
            expected="a kept column of the cache, which names the rows of all splits",
            found=f"--set val-split={recipe.val_split}",
            hint="gaam extract --keep-column NAME; "
            "--set states-from=CACHE copies the states",
        )


def read_groups(source: str, cache: EmbeddingCache, split: str) -> Groups:
    """The group of every row of a split, such as its speaker.

    Args:
        source: a kept column of the cache, or a file with a name on every line.
        cache: with the split.
        split: name of the split.

    Raises:
        NotFoundError: there is no such column or file.
        ConfigError: there is not one name for each row.
    """
    if source in cache.columns:
        names = tuple(cache[split].column(source))
        groups = Groups(names=names, source=source, kind="column")
    else:
        groups = _read_group_file(source, cache)

    num_rows = len(cache[split])
    num_names = len(groups.names)
    empty_lines = [line for line, name in enumerate(groups.names, 1) if is_blank(name)]
    if num_names == num_rows and not empty_lines:
        warning = lookalike_groups(groups.names, groups.source)
        if warning:
            warnings.warn(warning, GaamWarning, stacklevel=2)
        return groups
    problem = f"{num_names} names"
    if empty_lines:
        unit = "line" if groups.kind == "file" else "row"
        problem = f"{unit} {empty_lines[0]} is empty"
    raise ConfigError(
        f"the {groups.kind} '{groups.source}' does not fit the split '{split}'",
        expected=f"a name for each of its {num_rows} rows, in the data set's order",
        found=problem,
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
            hint=did_you_mean(name, cache.columns)
            or "gaam extract --keep-column NAME; "
            "--set states-from=CACHE copies the states",
        ) from error
    return Groups(names=tuple(lines), source=str(path.absolute()), kind="file")
