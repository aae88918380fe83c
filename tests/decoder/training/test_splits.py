"""Validation rows and folds: every row once, every class in its share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import gaam_cache
import gaam_decoder
from gaam_decoder.tasks import task_of
from gaam_decoder.training.partitions import (
    draw_budget,
    grouped_holdout,
    holdout,
    stratified_folds,
)
from tests.decoder.configs import train_config
from tests.decoder.training.seed_batches import decoder_recipe

Labels = NDArray[np.int64]


@given(
    label_N=st.lists(st.integers(0, 4), min_size=2, max_size=300).map(np.array),
    fraction=st.floats(0.01, 0.5),
    seed=st.integers(0, 99),
)
def test_holdout_is_stratified_disjoint_and_complete(
    label_N: Labels, fraction: float, seed: int
) -> None:
    train_rows, validation_rows = holdout(label_N, fraction, seed)
    assert sorted([*train_rows, *validation_rows]) == list(range(len(label_N)))
    for label in np.unique(label_N):
        count = int(np.sum(label_N == label))
        num_validation = int(np.sum(label_N[validation_rows] == label))
        assert num_validation == min(count - 1, max(1, round(fraction * count)))


NUMBERS: dict[str, Callable[[int], NDArray[np.float64]]] = {
    "all different": lambda count: np.random.default_rng(1).normal(size=count),
    "many equal": lambda count: np.maximum(0.0, np.arange(count) - 0.9 * count),
    "all equal": lambda count: np.ones(count),
}


@pytest.mark.parametrize("fraction", [0.01, 0.05, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("count", [2, 8, 20, 101, 150, 1000])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_of_numbers_the_share_of_all_rows_is_held_out_evenly(
    numbers: str, count: int, fraction: float
) -> None:
    number_N = NUMBERS[numbers](count)
    training_N, validation_N = holdout(number_N, fraction, split_seed=3)
    assert sorted([*training_N, *validation_N]) == list(range(count))
    num_held_out = min(count - 1, max(1, round(fraction * count)))
    assert len(validation_N) == num_held_out
    # of every equal part of the ranking one row is held out
    place_N = np.argsort(np.argsort(number_N, kind="stable"), kind="stable")
    ends = np.arange(1, num_held_out + 1) * count // num_held_out
    block_V = np.searchsorted(ends, np.sort(place_N[validation_N]), side="right")
    assert block_V.tolist() == list(range(num_held_out))


def test_every_row_of_numbers_may_be_held_out() -> None:
    held_out_N = np.zeros(100, np.int64)
    for seed in range(400):
        held_out_N[holdout(np.arange(100.0), 0.05, seed).validation_N] += 1
    # 400 seeds hold out 5 rows each: 20 times each row, on average
    assert held_out_N.min() >= 5
    assert held_out_N.max() <= 40


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.25])
def test_groups_of_numbers_hold_out_the_share_of_all_rows(fraction: float) -> None:
    names = [str(row // 2) for row in range(200)]
    number_N = np.random.default_rng(2).normal(size=200)
    held_out_N = grouped_holdout(number_N, names, fraction, 0).validation_N
    assert len(held_out_N) == pytest.approx(200 * fraction, abs=2)


# Whoever changes these rows changes runs that are trained already, without a new key.
DIGESTS_OF_DIVISIONS = {
    "holdout": {"classification": "f1622621b00d", "multi-label": "f42da2621cd1"},
    "grouped holdout": {
        "classification": "599684d134d3",
        "multi-label": "178de50d5af0",
    },
    "folds": {"classification": "9c6bb6c29838", "multi-label": "f1e2363de418"},
    "budget": {"classification": "fc9905b8ee58", "multi-label": "2cf9756b612a"},
    "budget of every class": {
        "classification": "ea18fc301b55",
        "multi-label": "ad61d8b1e19f",
    },
}


def divisions(labels: Any) -> dict[str, Any]:
    recipe = decoder_recipe("none", "linear", select="val", val_fraction=0.1)
    names = [str(row % 17) for row in range(len(labels))]
    return {
        "holdout": holdout(labels, 0.15, 1),
        "grouped holdout": grouped_holdout(labels, names, 0.15, 1),
        "folds": stratified_folds(labels, 3, 1),
        "budget": draw_budget(labels, replace(recipe, train_rows=60)),
        "budget of every class": draw_budget(labels, replace(recipe, shots=9)),
    }


@pytest.mark.parametrize("task", ["classification", "multi-label"])
@pytest.mark.parametrize("name", DIGESTS_OF_DIVISIONS)
def test_rows_of_classes_and_label_sets_are_divided_as_ever(
    name: str, task: str
) -> None:
    generator = np.random.default_rng(0)
    labels = generator.choice(4, 120, p=[0.4, 0.3, 0.2, 0.1])
    if task == "multi-label":
        labels = (generator.random((120, 3)) < [0.3, 0.4, 0.5]).astype(np.uint8)
    parts = divisions(task_of(task).stratify_by(labels))[name]
    rows = [np.asarray(part).tolist() for part in parts]
    digest = hashlib.sha256(str(rows).encode()).hexdigest()[:12]
    assert digest == DIGESTS_OF_DIVISIONS[name][task]


@pytest.mark.parametrize("count", [2, 5])
def test_stratified_folds_partition_the_rows_and_keep_the_classes(count: int) -> None:
    label_N = np.random.default_rng(0).integers(0, 3, 101)
    folds = stratified_folds(label_N, count, split_seed=4)
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(101))
    for label in range(3):
        counts = [int((label_N[fold] == label).sum()) for fold in folds]
        assert max(counts) - min(counts) <= 1
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


TRAIN_LABELS = np.array([0, 1] * 4)


@pytest.mark.parametrize(
    ("folds", "majorities"),
    [
        # of as many rows of each class it is the first one
        pytest.param(None, [0], id="a test split"),
        # one fold tests two rows of the first class
        pytest.param(3, [0, 0, 1], id="folds"),
    ],
)
def test_the_majority_is_that_of_the_training_rows(
    folds: int | None, majorities: list[int], tmp_path: Path
) -> None:
    states = np.random.default_rng(0).normal(size=(8, 2, 4)).astype(np.float32)
    splits = {
        "train": (states, TRAIN_LABELS),
        "test": (states[:4], np.array([0, 1, 1, 1])),
    }
    gaam_cache.write(tmp_path / "cache", splits)
    config = train_config(
        tmp_path / "cache",
        tmp_path / "runs",
        attn=("none",),
        seeds=(0,),
        epochs=1,
        lr=0.01,
        select="last",
        folds=folds,
        probe=True,
    )
    found_majorities = []
    for run in gaam_decoder.train(config):
        learned = TRAIN_LABELS
        if folds is not None:
            assert run.test_rows is not None
            learned = np.delete(TRAIN_LABELS, run.test_rows)
        majority = int(np.bincount(learned).argmax())
        assert run.majority_accuracy == np.mean(run.labels == majority)
        found_majorities.append(majority)
    assert sorted(found_majorities) == majorities
