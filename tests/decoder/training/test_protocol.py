from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder.training.protocol import holdout, stratified_folds


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
