"""Which rows a budget is: nested, each class in its share, a function of labels, seed and size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaam_cache.cache import open_cache
from gaam_cache.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Fold, Recipe
from gaam_decoder.specs import Spec
from gaam_decoder.training.items import plan_items, recipes
from gaam_decoder.training.rows.budget import Drawn, apportioned, draw
from gaam_decoder.training.rows.protocol import Rows

FRACTIONS = (0.01, 0.1, 0.5)
DECIDE = {"train_rows", "shots", "split_seed", "select", "val_fraction"}
"""Settings that decide which rows learn and choose, the last two only which of them choose."""


BASE = recipes(TrainConfig(attn=("none",), pool="mean"), "float32")[0]


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
        yield generator.permutation(np.repeat(np.arange(len(sizes)) * 2, sizes.astype(int)))


def drawn_of(labels: Rows, **options: Any) -> dict[int, Drawn]:
    """Every budget that there is, by its size."""
    sizes = range(len(np.unique(labels)), len(labels) + 1)
    return {size: draw(labels, recipe(train_rows=size, **options)) for size in sizes}


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_smaller_budgets_lie_in_larger_ones_and_so_do_their_parts(fraction: float) -> None:
    for labels in label_sets():
        for options in ({"select": "val", "val_fraction": fraction}, {"select": "last"}):
            before = Drawn(np.array([], np.int64), np.array([], np.int64))
            for size, found in drawn_of(labels, **options).items():
                both = np.concatenate(found)
                assert len(both) == len(np.unique(both)) == size
                for smaller, larger in zip(before, found, strict=True):
                    assert set(smaller.tolist()) <= set(larger.tolist())
                    assert (np.diff(larger) > 0).all()
                before = found


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_what_is_held_out_is_the_share_of_every_class_in_the_budget(fraction: float) -> None:
    """As of a whole split: at least one of a class that has two or more, and never all."""
    for labels in label_sets():
        for found in drawn_of(labels, select="val", val_fraction=fraction).values():
            both = labels[np.concatenate(found)]
            for label in np.unique(labels):
                there = int((both == label).sum())
                held = min(there - 1, max(1, round(fraction * there)))
                assert (labels[found.held_N] == label).sum() == held


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


def test_largest_remainders_would_not_lie_in_one_another() -> None:
    """Why they are not what is done: of one row more, the third class would have one fewer."""

    def largest_remainders(there: tuple[int, ...], size: int) -> list[int]:
        shares = [Fraction(size * of, sum(there)) for of in there]
        counts = [floor(share) for share in shares]
        rest = sorted(range(len(there)), key=lambda place: counts[place] - shares[place])
        return [c + (place in rest[: size - sum(counts)]) for place, c in enumerate(counts)]

    there = (60, 60, 20)
    assert largest_remainders(there, 10) == [4, 4, 2]
    assert largest_remainders(there, 11) == [5, 5, 1]
    assert apportioned(there, 10)[2] <= apportioned(there, 11)[2]


@pytest.mark.parametrize("select", ["val", "last", "test"])
def test_shots_are_exactly_as_many_of_every_class(select: str) -> None:
    for labels in label_sets():
        before: set[int] = set()
        for shots in range(1, int(np.unique(labels, return_counts=True)[1].min()) + 1):
            found = draw(labels, recipe(shots=shots, select=select))
            both = np.concatenate(found)
            assert (np.unique(labels[both], return_counts=True)[1] == shots).all()
            assert bool(len(found.held_N)) == (select == "val" and shots > 1)
            assert before <= set(both.tolist())
            before = set(both.tolist())


def test_shots_and_rows_are_of_one_order() -> None:
    """Of equal classes they are the same rows."""
    for seed in range(5):
        labels = np.random.default_rng(seed).permutation(np.arange(60) % 3)
        for shots in (1, 2, 7, 20):
            options = {"split_seed": seed}
            one = draw(labels, recipe(shots=shots, **options))
            other = draw(labels, recipe(train_rows=3 * shots, **options))
            np.testing.assert_array_equal(one.learn_N, other.learn_N)
            np.testing.assert_array_equal(one.held_N, other.held_N)


def test_nothing_but_split_seed_and_size_decides_the_rows() -> None:
    """Every other setting of a recipe has another value, one after the other."""
    labels = np.arange(50) % 3
    others: dict[str, Any] = {
        "attention": Spec("gaam"), "head": Spec("conv"), "loss": Spec("focal"), "epochs": 7,
        "batch_size": 3, "lr": 1.0, "weight_decay": 1.0, "schedule": "plateau",
        "clip_grad_norm": 1.0, "pool": "last", "layers": (1,), "train_split": "other",
        "test_split": "none", "allow_train_as_test": True, "dtype": "float16", "fold": Fold(1, 2),
        "groups": None, "loss_scale": "dynamic", "clip_order": "clip-first", "ties": "first",
        "eval_dtype": "float32", "shuffle_labels": True, "shuffle": "window:9", "shard_rows": 4,
        "class_weights": "balanced",
    }  # fmt: skip
    assert others.keys() | DECIDE == {one.name for one in fields(Recipe)}
    first = recipe(train_rows=20)
    expected = draw(labels, first)
    for name, value in others.items():
        found = draw(labels, replace(first, **{name: value}))
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, other)
    budget = np.sort(np.concatenate(expected))
    for select, fraction in (("last", 0.1), ("test", 0.1), ("val", 0.4)):
        found = draw(labels, replace(first, select=select, val_fraction=fraction))
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), budget)
    other_seed = np.sort(np.concatenate(draw(labels, replace(first, split_seed=1))))
    assert (other_seed != budget).any()


def test_the_rows_are_those_of_the_documented_order() -> None:
    """Against the rule written out: the first of a permutation of every class."""
    for seed, labels in enumerate(label_sets()):
        for size, (learn_N, _) in drawn_of(labels, select="last", split_seed=seed).items():
            counts = apportioned(tuple(np.unique(labels, return_counts=True)[1].tolist()), size)
            expected: list[int] = []
            for label, count in zip(np.unique(labels).tolist(), counts, strict=True):
                generator = np.random.default_rng(stream_seed(seed, "rows", label))
                rows = [n for n in range(len(labels)) if labels[n] == label]
                expected += generator.permutation(rows)[:count].tolist()
            assert sorted(expected) == learn_N.tolist()


def test_every_row_is_drawn_equally_often() -> None:
    """Of 400 split seeds a quarter of the rows each: 100, and a standard deviation of 9."""
    labels = np.arange(40) % 2
    drawn = [draw(labels, recipe(train_rows=10, split_seed=s, select="last")) for s in range(400)]
    counts = np.bincount(np.concatenate([learn_N for learn_N, _ in drawn]), minlength=40)
    assert counts.sum() == 4000
    assert (abs(counts - 100) < 4 * 9).all()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"train_rows": "61"}, r"at most 60, the rows of 'train'(.|\n)*--train-rows 61"),
    ({"train_rows": "1"}, r"2 or more: one of every class"),
    ({"train_rows": "2", "select": "val"}, r""),
    ({"train_rows": "9999/class"}, r"at most \d+/class, the rows of 'train'(.|\n)*9999/class"),
    ({"train_rows": "31", "folds": 2}, r"at most 30, the rows of 'train' without fold 1/2"),
    ({"train_rows": "all,29/class", "folds": 3}, r"without fold 1/3"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_a_budget_that_is_not_there_is_refused_with_the_number_that_is(
    options: dict[str, Any], message: str, tiny_cache: Path
) -> None:
    config = TrainConfig(attn=("none",), cache=tiny_cache, seeds=(0,), **options)
    cache, cpu = open_cache(tiny_cache), torch.device("cpu")
    if not message:
        with pytest.raises(ConfigError, match=r"no rows can be held out(.|\n)*--select last"):
            plan_items(config, cache, cpu)
        assert plan_items(replace(config, select="last"), cache, cpu)
        return
    with pytest.raises(ConfigError, match=message):
        plan_items(config, cache, cpu)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_rows": "0"}, "from 1 on"),
        ({"train_rows": ()}, "at least one --train-rows"),
        ({"train_rows": "5/class,5/class"}, "--train-rows 5/class is given twice"),
        ({"train_rows": "1k,1_000"}, "--train-rows 1000 is given twice"),
        ({"train_rows": "1/class,5/class"}, r"--select last"),
        ({"train_rows": "10", "folds": 2, "groups": "session"}, "rows are drawn one by one"),
        ({"select": "last", "split_seed": 3}, "split-seed plays no part"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**options)


def test_a_split_seed_plays_a_part_wherever_rows_are_drawn() -> None:
    for options in ({"train_rows": 10}, {"train_rows": "1/class,all"}):
        for select in ("last", "test"):
            assert TrainConfig(select=select, split_seed=3, **options).draws  # type: ignore[arg-type]
