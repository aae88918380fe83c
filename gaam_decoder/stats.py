"""Statistics of accuracies and predictions: pure functions of arrays.

S seeds, N test rows, C classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]


def accuracy(predicted_N: NDArray[np.int64], label_N: NDArray[np.int64]) -> float:
    """Share of the rows whose predicted class is right."""
    return float(np.mean(predicted_N == label_N))


def macro_f1(predicted_N: NDArray[np.int64], label_N: NDArray[np.int64], num_classes: int) -> float:
    """Unweighted mean of F1 over the classes that occur in labels or predictions."""
    scores = []
    for label in range(num_classes):
        hits = np.sum((predicted_N == label) & (label_N == label))
        either = np.sum(predicted_N == label) + np.sum(label_N == label)
        if either:
            scores.append(2 * hits / either)
    return float(np.mean(scores))


def majority_accuracy(train_label_N: NDArray[np.int64], test_label_N: NDArray[np.int64]) -> float:
    """Test accuracy of always answering the most frequent training class."""
    return float(np.mean(test_label_N == np.bincount(train_label_N).argmax()))


def standard_deviation(value_S: Floats) -> float | None:
    """Sample standard deviation (S - 1); None for fewer than two values."""
    return float(np.std(value_S, ddof=1)) if len(value_S) > 1 else None


def t_interval(value_S: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Student's t confidence interval of the mean; None for fewer than two values.

    ``mean +- t(S - 1, (1 + level) / 2) * sd / sqrt(S)``. It speaks of the seeds alone: the test
    rows are taken as given.
    """
    sd = standard_deviation(value_S)
    if sd is None:
        return None
    mean = float(np.mean(value_S))
    half = float(stdtrit(len(value_S) - 1, (1 + level) / 2)) * sd / len(value_S) ** 0.5
    return mean - half, mean + half
