from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gaam_cache
import gaam_decoder
from gaam_decoder.training.partitions import holdout, stratified_folds


@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=300).map(np.array),
    fraction=st.floats(0.01, 0.5),
    seed=st.integers(0, 99),
)
def test_holdout_is_stratified_disjoint_and_complete(
    labels: np.ndarray, fraction: float, seed: int
) -> None:
    train, held = holdout(labels, fraction, seed)
    assert sorted([*train, *held]) == list(range(len(labels)))
    for label in np.unique(labels):
        count = int(np.sum(labels == label))
        held_count = int(np.sum(labels[held] == label))
        assert held_count == min(count - 1, max(1, round(fraction * count)))


@pytest.mark.parametrize("count", [2, 5])
def test_stratified_folds_partition_the_rows_and_keep_the_classes(count: int) -> None:
    labels = np.random.default_rng(0).integers(0, 3, 101)
    folds = stratified_folds(labels, count, split_seed=4)
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(101))
    for label in range(3):
        counts = [int((labels[fold] == label).sum()) for fold in folds]
        assert max(counts) - min(counts) <= 1
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


def test_the_majority_is_that_of_the_rows_that_learn(tmp_path: Path) -> None:
    """Of four rows of each class it is the first, but for the fold that tests two of these."""
    states, label = (
        np.random.default_rng(0).normal(size=(8, 2, 4)),
        np.array([0, 1] * 4),
    )
    splits = {"train": (states.astype(np.float32), label)}
    splits["test"] = splits["train"][0][:4], np.array([0, 1, 1, 1])
    gaam_cache.write(tmp_path / "cache", splits)
    found = []
    for folds in (None, 3):
        config = gaam_decoder.TrainConfig(
            attn=("none",), cache=tmp_path / "cache", runs=tmp_path / "runs", seeds=(0,),
            epochs=1, lr=0.01, select="last", folds=folds,
        )  # fmt: skip
        for run in gaam_decoder.train(config):
            learned = label if folds is None else np.delete(label, run.test_rows)
            class_ = np.bincount(learned).argmax()
            assert run.majority_accuracy == np.mean(run.labels == class_)
            found.append((folds, int(class_)))
    assert sorted(found, key=str) == [(3, 0), (3, 0), (3, 1), (None, 0)]
