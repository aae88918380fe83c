"""Predictions against labels."""

from __future__ import annotations

import collections

import numpy as np
import scipy.special
from sklearn import metrics

from gaam_decoder import stats


def test_accuracy_and_confusion_equal_scikit_learn() -> None:
    for seed in range(40):
        generator = np.random.default_rng(seed)
        predicted, label = generator.integers(0, 1 + seed % 4, (2, 1 + seed))
        confusion = metrics.confusion_matrix(label, predicted, labels=range(4))
        assert stats.confusion(predicted, label, 4).tolist() == confusion.tolist()
        assert stats.accuracy(predicted, label) == metrics.accuracy_score(
            label, predicted
        )


def test_majority_votes_count_and_break_ties_by_probability() -> None:
    for num_seeds, num_classes in ((1, 2), (2, 3), (4, 2), (5, 4), (6, 5)):
        generator = np.random.default_rng(num_seeds)
        logits = generator.normal(size=(num_seeds, 80, num_classes)).astype(np.float32)
        expected = []
        for row in range(80):
            votes = collections.Counter(
                int(logits[s, row].argmax()) for s in range(num_seeds)
            )
            best = [c for c in votes if votes[c] == max(votes.values())]
            mean = scipy.special.softmax(
                logits[:, row].astype(np.float64), axis=-1
            ).mean(0)
            expected.append(max(best, key=lambda c: mean[c]))
        assert stats.majority_votes(logits, logits.argmax(-1)).tolist() == expected
