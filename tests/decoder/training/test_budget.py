"""Which rows a budget is: nested, each class in its share, a function of labels, seed and size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from gaam_decoder import TrainConfig
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.experiments import recipes
from gaam_decoder.training.partitions import Rows, draw

FRACTIONS = (0.01, 0.1, 0.5)


BASE = recipes(TrainConfig(lr=3e-4, attn=("none",), pool="mean"), "float32")[0]


def recipe(**options: Any) -> Recipe:
    return replace(BASE, **options)


def label_sets() -> Iterator[Rows]:
    """Equal classes and skewed ones, one alone, many of one row; sorted, in turn and at random."""
    generator = np.random.default_rng(0)
    yield np.arange(20) % 4
    yield np.sort(np.arange(20) % 4)
    yield np.zeros(9, np.int64)
    yield np.repeat([3, 1, 7], [30, 1, 9])
    for _ in range(5):
        sizes = np.ceil(generator.pareto(1.0, generator.integers(2, 7)) * 3).clip(1, 25)
        yield generator.permutation(
            np.repeat(np.arange(len(sizes)) * 2, sizes.astype(int))
        )


def drawn_of(labels: Rows, **options: Any) -> dict[int, Any]:
    """Every budget that there is, by its size."""
    sizes = range(len(np.unique(labels)), len(labels) + 1)
    return {size: draw(labels, recipe(train_rows=size, **options)) for size in sizes}


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_smaller_budgets_lie_in_larger_ones_and_so_do_their_parts(
    fraction: float,
) -> None:
    for labels in label_sets():
        for options in (
            {"select": "val", "val_fraction": fraction},
            {"select": "last"},
        ):
            before = (np.array([], np.int64), np.array([], np.int64))
            for size, found in drawn_of(labels, **options).items():
                both = np.concatenate(found)
                assert len(both) == len(np.unique(both)) == size
                for smaller, larger in zip(before, found, strict=True):
                    assert set(smaller.tolist()) <= set(larger.tolist())
                    assert (np.diff(larger) > 0).all()
                before = found


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_what_is_held_out_is_the_share_of_every_class_in_the_budget(
    fraction: float,
) -> None:
    """As of a whole split: at least one of a class that has two or more, and never all."""
    for labels in label_sets():
        for found in drawn_of(labels, select="val", val_fraction=fraction).values():
            both = labels[np.concatenate(found)]
            for label in np.unique(labels):
                there = int((both == label).sum())
                held = min(there - 1, max(1, round(fraction * there)))
                assert (labels[found[1]] == label).sum() == held


def test_every_class_has_its_share_rounded_down_or_up_or_one_row() -> None:
    """In whole numbers: never more than rounded up; less than rounded down only for rows that
    classes have whose share is below one; none once the share of the smallest is one."""
    for labels in label_sets():
        classes, there_C = np.unique(labels, return_counts=True)
        for size, (learn_N, _) in drawn_of(labels, select="last").items():
            count_C = [int((labels[learn_N] == label).sum()) for label in classes]
            share_C = [Fraction(size * int(there), len(labels)) for there in there_C]
            pairs = list(zip(count_C, share_C, strict=True))
            assert all(1 <= count <= max(1, ceil(share)) for count, share in pairs)
            lacking = sum(max(0, floor(share) - count) for count, share in pairs)
            assert lacking <= sum(share < 1 for share in share_C)
            if min(share_C) >= 1:
                assert not lacking
