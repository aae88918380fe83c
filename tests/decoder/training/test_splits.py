"""Validation rows and folds: every row once, every class in its share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import gaam_cache
import gaam_decoder
from gaam_decoder.training.partitions import holdout, stratified_folds
from tests.decoder.configs import train_config

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
