from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats

VALUES = st.lists(st.floats(0, 1), min_size=2, max_size=40).map(np.array)


@given(values=VALUES, level=st.sampled_from([0.8, 0.95, 0.99]))
def test_t_interval_equals_scipy(values: np.ndarray, level: float) -> None:
    sem = scipy.stats.sem(values)
    ours = stats.t_interval(values, level)
    if sem > 0:
        expected = scipy.stats.t.interval(level, len(values) - 1, values.mean(), sem)
        np.testing.assert_allclose(ours, expected, atol=1e-12)
    else:
        assert ours == (values.mean(), values.mean())


def test_one_value_has_no_spread() -> None:
    assert stats.t_interval(np.array([0.5])) is None
    assert stats.standard_deviation(np.array([0.5])) is None


@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_macro_f1_equals_precision_and_recall(pairs: list[tuple[int, int]]) -> None:
    predicted, label = map(np.array, zip(*pairs, strict=True))
    scores = []
    for c in range(4):
        hits = sum(p == y == c for p, y in pairs)
        precision = hits / max(1, int(np.sum(predicted == c)))
        recall = hits / max(1, int(np.sum(label == c)))
        if np.any(predicted == c) or np.any(label == c):
            total = precision + recall
            scores.append(2 * precision * recall / total if total else 0.0)
    np.testing.assert_allclose(stats.macro_f1(predicted, label, 4), np.mean(scores))
    np.testing.assert_allclose(
        stats.accuracy(predicted, label), np.mean([p == y for p, y in pairs])
    )


def test_majority_is_learned_from_train() -> None:
    train, test = np.array([1, 1, 0]), np.array([0, 0, 1, 2])
    assert stats.majority_accuracy(train, test) == pytest.approx(0.25)
