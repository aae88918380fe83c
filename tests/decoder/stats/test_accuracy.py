"""Predictions against labels."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics

from gaam_decoder import stats

NUM_CLASSES = 4
CLASS = st.integers(0, NUM_CLASSES - 1)


@given(st.lists(st.tuples(CLASS, CLASS), min_size=1, max_size=40))
def test_accuracy_and_confusion_equal_scikit_learn(rows: list[tuple[int, int]]) -> None:
    predicted_N, label_N = np.array(rows).T
    expected = metrics.confusion_matrix(label_N, predicted_N, labels=range(NUM_CLASSES))
    confusion = stats.confusion(predicted_N, label_N, NUM_CLASSES)
    np.testing.assert_array_equal(confusion, expected)
    accuracy = stats.accuracy(predicted_N, label_N)
    assert accuracy == metrics.accuracy_score(label_N, predicted_N)


def majority_vote(logits_SC: NDArray[np.float32]) -> int:
    """The class that most seeds predict; of several the one with most probability."""
    votes = collections.Counter(logits_SC.argmax(-1).tolist())
    most = max(votes.values())
    probabilities_SC = scipy.special.softmax(logits_SC.astype(np.float64), axis=-1)
    mean_C = probabilities_SC.mean(0)
    winners = [label for label, count in votes.items() if count == most]
    return int(max(winners, key=lambda label: mean_C[label]))


@pytest.mark.parametrize(
    ("num_seeds", "num_classes"), [(1, 2), (2, 3), (4, 2), (5, 4), (6, 5)]
)
def test_majority_votes_count_and_break_ties_by_probability(
    num_seeds: int, num_classes: int
) -> None:
    generator = np.random.default_rng(num_seeds)
    logits_SNC = generator.normal(size=(num_seeds, 80, num_classes)).astype(np.float32)
    expected = [majority_vote(logits_SNC[:, row]) for row in range(80)]
    votes = stats.majority_votes(logits_SNC, logits_SNC.argmax(-1))
    assert votes.tolist() == expected
