"""Average precision of classes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.scores.base import (
    Answers,
    Floats,
    Score,
    SeedScore,
    mean_over_folds,
)

NO_CLAIM = (
    "the precision at a row depends on all rows above it, so that no test over rows is "
    "known to hold"
)


class AveragePrecision(Score):
    """Mean over the classes with test rows of the average precision against the rest.

    ``sum_n (R_n - R_n-1) P_n`` over the thresholds n, P_n and R_n the precision and the
    recall of the rows whose odds of the class are at least the threshold. The value of
    several folds is their mean, weighted by their rows.

    Source: Manning, Raghavan and Schuetze 2008, "Introduction to information
        retrieval", section 8.4.
    """

    title = "average precision"
    no_claim_reason = NO_CLAIM

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """The score of one seed; None if a fold has no row of any class.

        ``by_row`` is None: average precision is no mean of numbers of single rows.
        """

        def value_of(rows: slice) -> float | None:
            one_hot_NC = np.eye(answers.num_classes, dtype=bool)[answers.labels[rows]]
            return mean_precision(answers.log_odds_NC[rows], one_hot_NC)

        value = mean_over_folds(answers, value_of)
        return None if value is None else SeedScore(value=value, by_row=None)


def mean_precision(
    odds_NK: NDArray[np.floating[Any]], label_NK: NDArray[np.bool_]
) -> float | None:
    """Mean average precision of the columns with a true label; None without any."""
    precisions = [
        _average_precision(odds_N, label_N)
        for odds_N, label_N in zip(odds_NK.T, label_NK.T, strict=True)
        if label_N.any()
    ]
    return float(np.mean(precisions)) if precisions else None


def _average_precision(
    odds_N: NDArray[np.floating[Any]], label_N: NDArray[np.bool_]
) -> float:
    """Average precision of one column; T thresholds, one for every distinct odds."""
    order_N = np.argsort(-odds_N, kind="stable")
    sorted_odds_N = odds_N[order_N]
    # the last of the rows with equal odds, which share a threshold
    is_threshold_N = np.append(sorted_odds_N[1:] != sorted_odds_N[:-1], True)
    num_hits_N: Floats = np.cumsum(label_N[order_N], dtype=np.float64)

    # rows and hits with at least the odds of each threshold
    num_rows_T = np.flatnonzero(is_threshold_N) + 1
    num_hits_T = num_hits_N[is_threshold_N]
    new_hits_T = np.diff(num_hits_T, prepend=0.0)
    precision_sum = np.sum(new_hits_T * num_hits_T / num_rows_T)
    return float(precision_sum / num_hits_T[-1])
