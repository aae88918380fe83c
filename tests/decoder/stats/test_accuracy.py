from __future__ import annotations

import collections

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats


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


@given(data=st.data(), num_seeds=st.integers(1, 7), num_classes=st.integers(2, 5))
def test_majority_votes_count_and_break_ties_by_probability(
    data: st.DataObject, num_seeds: int, num_classes: int
) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    logits = generator.normal(size=(num_seeds, 12, num_classes)).astype(np.float32)
    expected = []
    for row in range(12):
        votes = collections.Counter(int(logits[s, row].argmax()) for s in range(num_seeds))
        best = [c for c in votes if votes[c] == max(votes.values())]
        mean = scipy.special.softmax(logits[:, row].astype(np.float64), axis=-1).mean(0)
        expected.append(max(best, key=lambda c: mean[c]))
    assert stats.majority_votes(logits, logits.argmax(-1)).tolist() == expected


def test_confusion_has_true_classes_in_rows() -> None:
    count = stats.confusion(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), 3)
    assert count.tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
