"""Rank correlation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.scores.base import (
    GRAIN_OF_LOGITS,
    Answers,
    Floats,
    Score,
    SeedScore,
    mean_over_folds,
)

Numbers = NDArray[np.floating[Any]]


class Spearman(Score):
    """Correlation of the ranks of outputs and numbers, averaged over the numbers.

    Equal values share their mean rank. A number that is the same in all test rows is
    left out; there is no value where the outputs for another number are all the same.
    The value of several folds is their mean, weighted by their rows.

    Numerics: outputs that differ by a millionth of their interquartile range are equal:
        roundings of float32 break no ties, such as those of means of neighbours.

    Source: Spearman 1904, "The proof and measurement of association between two
        things".
    """

    tasks = ("regression",)
    title = "Spearman correlation"
    percent = False
    lowest = -1.0
    no_claim_reason = (
        "a row changes the ranks of all others, so that no test over rows is known to "
        "hold"
    )

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """The correlation, without contributions of rows."""

        def value_of(rows: slice) -> float | None:
            return _mean_correlation(answers.logits[rows], answers.labels[rows])

        value = mean_over_folds(answers, value_of)
        return None if value is None else SeedScore(value=value, by_row=None)


def _mean_correlation(output_NK: Numbers, target_NK: Numbers) -> float | None:
    """Mean of the rank correlations of the K numbers that vary.

    None if no number varies, or if all outputs for one that varies are equal.
    """
    correlations = []
    for output_N, target_N in zip(output_NK.T, target_NK.T, strict=True):
        if np.ptp(target_N) == 0:
            continue
        level_N = _number_levels(output_N)
        if np.ptp(level_N) == 0:
            return None
        correlation_22 = np.corrcoef(_ranks(level_N), _ranks(target_N))
        correlations.append(correlation_22[0, 1])
    return float(np.mean(correlations)) if correlations else None


def _number_levels(output_N: Numbers) -> Floats:
    """The levels of outputs, numbered from the lowest.

    Two outputs, next to each other when sorted, share a level if they differ by no more
    than the grain times the interquartile range: a few huge outputs do not widen it.
    """
    value_N = output_N.astype(np.float64)
    grain = GRAIN_OF_LOGITS * np.ptp(np.quantile(value_N, [0.25, 0.75]))
    order_N = np.argsort(value_N, kind="stable")
    is_above_N = np.diff(value_N[order_N], prepend=value_N.min()) > grain
    level_N = np.empty(len(value_N))
    level_N[order_N] = np.cumsum(is_above_N)
    return level_N


def _ranks(value_N: Numbers) -> Floats:
    """Ranks from 1 on; equal values share their mean rank."""
    sorted_N = np.sort(value_N)
    num_below_N = np.searchsorted(sorted_N, value_N, "left")
    num_up_to_N = np.searchsorted(sorted_N, value_N, "right")
    rank_N: Floats = (num_below_N + num_up_to_N + 1) / 2
    return rank_N
