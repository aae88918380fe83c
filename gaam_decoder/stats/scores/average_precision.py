"""Average precision of classes."""

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.scores.base import (
    Answers,
    Floats,
    Score,
    SeedScore,
    over_folds,
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
    no_claim = NO_CLAIM

    def of(self, answers: Answers) -> SeedScore | None:
        """Rank the rows by their odds of every class, without contributions of rows."""

        def value_of(rows: slice) -> float | None:
            one_hot_NC = np.eye(answers.num_classes, dtype=bool)[answers.labels[rows]]
            return mean_precision(answers.log_odds_NC[rows], one_hot_NC)

        value = over_folds(answers, value_of)
        return None if value is None else SeedScore(value=value, by_row=None)


def mean_precision(
    odds_NK: NDArray[np.floating], label_NK: NDArray[np.bool_]
) -> float | None:
    """Mean average precision of the columns with a true label; None without any."""
    precisions = [
        _average_precision(odds_N, label_N)
        for odds_N, label_N in zip(odds_NK.T, label_NK.T, strict=True)
        if label_N.any()
    ]
    return float(np.mean(precisions)) if precisions else None


def _average_precision(
    odds_N: NDArray[np.floating], label_N: NDArray[np.bool_]
) -> float:
    """Average precision of one column; equal odds share a threshold."""
    order_N = np.argsort(-odds_N, kind="stable")
    sorted_N = odds_N[order_N]
    is_last_N = np.append(sorted_N[1:] != sorted_N[:-1], True)
    hits_N: Floats = np.cumsum(label_N[order_N], dtype=np.float64)
    rows_T = np.flatnonzero(is_last_N) + 1
    hits_T = hits_N[is_last_N]
    more_T = np.diff(hits_T, prepend=0.0)
    return float(np.sum(more_T * hits_T / rows_T) / hits_T[-1])
