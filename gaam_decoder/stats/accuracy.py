"""Scores of predictions.

S seeds, N test rows, C classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.seeds import checked

Labels = NDArray[np.int64]


def _check_rows(predicted_N: Labels, label_N: Labels) -> None:
    if predicted_N.shape != label_N.shape or not len(label_N):
        raise ValueError("as many predictions as labels, and one at least")


def accuracy(predicted_N: Labels, label_N: Labels) -> float:
    """Share of the rows whose predicted class is right.

    Raises:
        ValueError: no rows, or not as many predictions.
    """
    _check_rows(predicted_N, label_N)
    return float(np.mean(predicted_N == label_N))


def confusion(predicted_N: Labels, label_N: Labels, num_classes: int) -> NDArray[np.int64]:
    """Number of rows of every class (first axis) by predicted class (second axis), (C, C).

    Raises:
        ValueError: not as many predictions as labels, or a class that is none of the C.
    """
    for class_N in (predicted_N, label_N):
        if predicted_N.shape != label_N.shape or ((class_N < 0) | (class_N >= num_classes)).any():
            raise ValueError(f"a label and a prediction of 0 to {num_classes - 1} for every row")
    counts = np.bincount(label_N * num_classes + predicted_N, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64)


def macro_f1(predicted_N: Labels, label_N: Labels, num_classes: int) -> float:
    """Unweighted mean of F1 over the classes that occur in labels or predictions.

    Raises:
        ValueError: no rows, or not as many predictions.
    """
    _check_rows(predicted_N, label_N)
    count_CC = confusion(predicted_N, label_N, num_classes)
    either_C = count_CC.sum(0) + count_CC.sum(1)
    seen_C = either_C > 0
    return float(np.mean(2 * np.diagonal(count_CC)[seen_C] / either_C[seen_C]))


def majority_accuracy(train_label_N: Labels, test_label_N: Labels) -> float:
    """Test accuracy of always answering the most frequent training class.

    Raises:
        ValueError: no rows to learn from, or none to test on.
    """
    if not len(train_label_N) or not len(test_label_N):
        raise ValueError("there are no rows")
    return float(np.mean(test_label_N == np.bincount(train_label_N).argmax()))


def majority_votes(logits_SNC: NDArray[np.float32], predicted_SN: Labels) -> Labels:
    """Class that most seeds predict, for every row, (N,).

    Where classes have equally many votes, the one of them with the larger mean probability wins.

    Args:
        logits_SNC: decide between equals.
        predicted_SN: where each is largest.

    Raises:
        ValueError: no seeds; NaN or infinity where logits decide.
    """
    num_seeds, num_rows, num_classes = logits_SNC.shape
    if num_seeds == 0:
        raise ValueError("there is nobody to vote")
    place_SN = np.arange(num_rows) * num_classes + predicted_SN
    votes_NC = np.bincount(place_SN.ravel(), minlength=num_rows * num_classes)
    votes_NC = votes_NC.reshape(num_rows, num_classes)
    voted_N = votes_NC.argmax(1)
    most_N = votes_NC.max(1)
    tied_N = np.flatnonzero((votes_NC == most_N[:, None]).sum(1) > 1)
    if len(tied_N):
        logits = checked(logits_SNC[:, tied_N].astype(np.float64))
        power = np.exp(logits - logits.max(-1, keepdims=True))
        mean_NC = (power / power.sum(-1, keepdims=True)).sum(0) / num_seeds
        mean_NC[votes_NC[tied_N] < most_N[tied_N, None]] = -1
        voted_N[tied_N] = mean_NC.argmax(1)
    return voted_N
