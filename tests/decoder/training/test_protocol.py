from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder.training.protocol import grouped_folds, holdout, stratified_folds
from gaam_decoder.training.selection import Score


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


def test_holdout_depends_on_the_split_seed_alone() -> None:
    labels = np.arange(100) % 4
    np.testing.assert_array_equal(holdout(labels, 0.1, 3)[1], holdout(labels, 0.1, 3)[1])
    assert set(holdout(labels, 0.1, 3)[1]) != set(holdout(labels, 0.1, 4)[1])


def test_the_better_epoch_has_higher_accuracy_then_lower_loss() -> None:
    assert Score(0.9, 1.0).beats(None)
    assert Score(0.9, 1.0).beats(Score(0.8, 0.1))
    assert Score(0.9, 0.5).beats(Score(0.9, 0.6))
    assert not Score(0.9, 0.6).beats(Score(0.9, 0.6))
    assert not Score(0.8, 0.1).beats(Score(0.9, 1.0))


@pytest.mark.parametrize("count", [2, 5])
def test_stratified_folds_partition_the_rows_and_keep_the_classes(count: int) -> None:
    labels = np.random.default_rng(0).integers(0, 3, 101)
    folds = stratified_folds(labels, count, split_seed=4)
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(101))
    for label in range(3):
        counts = [int((labels[fold] == label).sum()) for fold in folds]
        assert max(counts) - min(counts) <= 1
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


def test_grouped_folds_part_no_group() -> None:
    groups = [f"speaker {n}" for n in np.random.default_rng(0).integers(0, 9, 200)]
    folds = grouped_folds(groups, 4, split_seed=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(200))
    seen = [{groups[row] for row in fold} for fold in folds]
    assert sum(map(len, seen)) == len(set(groups))
    assert max(map(len, folds)) < 2 * min(map(len, folds))
    alone = grouped_folds(groups, len(set(groups)), split_seed=0)
    assert [len({groups[row] for row in fold}) for fold in alone] == [1] * len(set(groups))
