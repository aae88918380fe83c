"""A budget of training rows: nested, and every class has its share."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from gaam_cache.common.errors import ConfigError
from gaam_decoder.recipe import Recipe
from gaam_decoder.tasks import task_of
from gaam_decoder.training.partitions import Rows, draw_budget
from tests.decoder.training.seed_batches import decoder_recipe

FRACTIONS = (0.01, 0.1, 0.5)
RANDOM_SETS = 5


def label_sets() -> dict[str, Rows]:
    """Equal and skewed classes, a class alone, a class of one row, in any order."""
    label_sets = {
        "in turn": np.arange(20) % 4,
        "sorted": np.sort(np.arange(20) % 4),
        "one class": np.zeros(9, np.int64),
        "a class of one row": np.repeat([3, 1, 7], [30, 1, 9]),
    }
    generator = np.random.default_rng(0)
    for number in range(RANDOM_SETS):
        num_classes = generator.integers(2, 7)
        sizes = np.ceil(generator.pareto(1.0, num_classes) * 3).clip(1, 25).astype(int)
        label_N = np.repeat(np.arange(len(sizes)) * 2, sizes)
        label_sets[f"random {number}"] = generator.permutation(label_N)
    return label_sets


LABEL_SETS = (
    "in turn",
    "sorted",
    "one class",
    "a class of one row",
    *(f"random {number}" for number in range(RANDOM_SETS)),
)


@pytest.fixture(params=LABEL_SETS)
def label_N(request: pytest.FixtureRequest) -> Rows:
    return label_sets()[request.param]


def draw_budgets(label_N: Rows, **settings: Any) -> dict[int, tuple[Rows, Rows]]:
    """Rows that learn and rows that choose, of every size from a row for each class."""
    recipe: Recipe = decoder_recipe("none", "linear", **settings)
    sizes = range(len(np.unique(label_N)), len(label_N) + 1)
    return {
        size: draw_budget(label_N, replace(recipe, train_rows=size)) for size in sizes
    }


SELECTIONS = [
    *(
        pytest.param({"select": "val", "val_fraction": fraction}, id=f"val {fraction}")
        for fraction in FRACTIONS
    ),
    pytest.param({"select": "last"}, id="last"),
]


@pytest.mark.parametrize("settings", SELECTIONS)
def test_smaller_budgets_lie_in_larger_ones_and_so_do_their_parts(
    settings: dict[str, Any], label_N: Rows
) -> None:
    nothing = np.array([], np.int64)
    smaller_budget = (nothing, nothing)
    for size, budget in draw_budgets(label_N, **settings).items():
        all_rows = np.concatenate(budget)
        assert len(all_rows) == len(np.unique(all_rows)) == size
        for smaller, larger in zip(smaller_budget, budget, strict=True):
            assert set(smaller.tolist()) <= set(larger.tolist())
            assert (np.diff(larger) > 0).all()
        smaller_budget = budget


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_validation_rows_are_the_share_of_every_class_in_the_budget(
    fraction: float, label_N: Rows
) -> None:
    """As of a whole split: at least one of a class of two or more, and never all."""
    budgets = draw_budgets(label_N, select="val", val_fraction=fraction)
    for train_N, validation_N in budgets.values():
        budget_labels = label_N[np.concatenate([train_N, validation_N])]
        for label in np.unique(label_N):
            count = int((budget_labels == label).sum())
            expected = min(count - 1, max(1, round(fraction * count)))
            assert (label_N[validation_N] == label).sum() == expected


def test_every_class_has_its_share_rounded_down_or_up_or_one_row(label_N: Rows) -> None:
    """In whole numbers: never more than rounded up.

    Less than rounded down only for rows of classes whose share is below one; so nowhere
    once the share of the smallest class is one.
    """
    classes, total_C = np.unique(label_N, return_counts=True)
    for size, (train_N, _) in draw_budgets(label_N, select="last").items():
        lacking = 0
        small_shares = 0
        for label, total in zip(classes, total_C, strict=True):
            count = int((label_N[train_N] == label).sum())
            share = Fraction(size * int(total), len(label_N))
            assert 1 <= count <= max(1, ceil(share))
            lacking += max(0, floor(share) - count)
            small_shares += share < 1
        assert lacking <= small_shares


NUMBER_SETS = {
    "all different": np.random.default_rng(4).normal(size=57),
    "many equal": np.maximum(0.0, np.arange(57.0) - 50),
    "few": np.arange(7.0),
}


@pytest.mark.parametrize("settings", SELECTIONS)
@pytest.mark.parametrize("name", NUMBER_SETS)
def test_budgets_of_numbers_have_every_size_and_hold_out_the_share_of_all_rows(
    name: str, settings: dict[str, Any]
) -> None:
    number_N = NUMBER_SETS[name]
    recipe: Recipe = decoder_recipe("none", "linear", **settings)
    smaller_budget = draw_budget(number_N, replace(recipe, train_rows=1))
    for size in range(2, len(number_N) + 1):
        budget = draw_budget(number_N, replace(recipe, train_rows=size))
        all_rows = np.concatenate(budget)
        assert len(all_rows) == len(np.unique(all_rows)) == size
        num_held_out = 0
        if recipe.select == "val":
            num_held_out = min(size - 1, max(1, round(recipe.val_fraction * size)))
        assert len(budget.validation_N) == num_held_out
        for smaller, larger in zip(smaller_budget, budget, strict=True):
            assert set(smaller.tolist()) <= set(larger.tolist())
            assert (np.diff(larger) > 0).all()
        smaller_budget = budget


@pytest.mark.parametrize("num_rows", [20, 50, 200])
def test_both_parts_of_a_budget_are_spread_over_the_numbers(num_rows: int) -> None:
    settings: dict[str, Any] = {"select": "val", "val_fraction": 0.2}
    for split_seed in range(10):
        recipe = decoder_recipe(
            "none", "linear", train_rows=num_rows, split_seed=split_seed, **settings
        )
        for part_N in draw_budget(np.arange(1000.0), recipe):
            num_small = int((part_N < 500).sum())
            assert abs(num_small - len(part_N) / 2) <= 1
            # ranges of a tenth take turns
            count_10 = np.bincount(part_N // 100, minlength=10)
            assert count_10.max() - count_10.min() <= 1


@pytest.mark.parametrize(
    ("settings", "divides"),
    [
        ({"select": "val"}, True),
        ({"select": "last", "train_rows": 20}, True),
        ({"select": "last"}, False),
    ],
    ids=["validation", "budget", "all rows"],
)
def test_runs_of_numbers_that_were_divided_by_the_earlier_rule_have_other_keys(
    settings: dict[str, Any], *, divides: bool
) -> None:
    recipe: Recipe = decoder_recipe("none", "linear", **settings)
    for name in ("classification", "multi-label", "regression"):
        key = recipe.key("states", task_of(name).division_rule)
        is_other = name == "regression" and divides
        assert (key != recipe.key("states")) == is_other


def test_a_budget_of_more_numbers_than_rows_is_refused() -> None:
    recipe = decoder_recipe("none", "linear", train_rows=8)
    with pytest.raises(ConfigError) as caught:
        draw_budget(np.arange(7.0), recipe)
    assert caught.value.details["expected"] == "from 1 to 7, all"
