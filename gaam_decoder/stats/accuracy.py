"""Accuracy, confusion matrix and majority vote of predicted classes.

S seeds, N test rows, C classes.
"""

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.seeds import require_finite
from gaam_decoder.tasks import CLASSIFICATION

Labels = NDArray[np.int64]


def accuracy(predicted_N: Labels, label_N: Labels) -> float:
    """Share of the rows with the right predicted class."""
    return float(CLASSIFICATION.accuracy(CLASSIFICATION.hits(predicted_N, label_N)))


def confusion(
    predicted_N: Labels, label_N: Labels, num_classes: int
) -> NDArray[np.int64]:
    """Number of rows by class (first axis) and predicted class (second), (C, C)."""
    counts = np.bincount(label_N * num_classes + predicted_N, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64)


def majority_votes(logits_SNC: NDArray[np.float32], predicted_SN: Labels) -> Labels:
    """The class that most seeds predict, for every row, (N,).

    Among classes with equally many votes the largest mean probability wins.

    Args:
        logits_SNC: logits of every seed, which decide ties.
        predicted_SN: class of the largest logit.

    Raises:
        ValueError: NaN or infinity in a row with a tie.
    """
    num_seeds, num_rows, num_classes = logits_SNC.shape

    # count the votes of all rows at once, every row in its own range of bins
    bin_SN = np.arange(num_rows) * num_classes + predicted_SN
    votes_NC = np.bincount(bin_SN.ravel(), minlength=num_rows * num_classes)
    votes_NC = votes_NC.reshape(num_rows, num_classes)
    voted_N: Labels = votes_NC.argmax(1)
    most_votes_N = votes_NC.max(1)

    # break the ties of T rows by the mean probability of the tied classes
    tied_rows = np.flatnonzero((votes_NC == most_votes_N[:, None]).sum(1) > 1)
    if len(tied_rows):
        logits_STC = require_finite(logits_SNC[:, tied_rows].astype(np.float64))
        # softmax; the largest logit is subtracted, so that exp does not overflow
        exp_STC = np.exp(logits_STC - logits_STC.max(-1, keepdims=True))
        p_STC = exp_STC / exp_STC.sum(-1, keepdims=True)
        mean_p_TC = p_STC.sum(0) / num_seeds
        # a class with fewer votes cannot win
        mean_p_TC[votes_NC[tied_rows] < most_votes_N[tied_rows, None]] = -1
        voted_N[tied_rows] = mean_p_TC.argmax(1)
    return voted_N
