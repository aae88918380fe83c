from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder.training.rows.protocol import Score, holdout


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
