"""Coefficient of determination.

N test rows, K numbers of a row.
"""

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    by_influence,
)


class R2(Score):
    """Share of the variance of a number that is explained, averaged over the numbers.

    ``1 - A / B``: ``A = mean (y - f)^2`` and ``B = mean (y - mean y)^2`` over the test
    rows, y the number, f the output. It has no lower bound: 0 is the mean of the test
    rows, less is worse. Of a number that is the same in all test rows it is 1 where the
    outputs are exact, else 0, as in scikit-learn.

    It allows a verdict: it is a smooth function of means. A row changes it by
    ``(b A / B - a) / B``, a and b what the row adds to A and B (Efron 1982,
    infinitesimal jackknife).
    """

    tasks = ("regression",)
    title = "R2"
    percent = False
    lowest = float("-inf")

    def of(self, answers: Answers) -> SeedScore:
        """The value plus the derivative of the mean in the weight of every row."""
        target_NK = answers.labels.astype(np.float64)
        square_NK = np.square(target_NK - answers.logits)
        variance_NK = np.square(target_NK - target_NK.mean(0))
        is_flat_K = _is_flat(answers)
        safe_K = np.where(is_flat_K, 1.0, variance_NK.mean(0))
        ratio_K = square_NK.mean(0) / safe_K
        is_wrong_K = (square_NK > 0).any(0)
        value = float((1 - np.where(is_flat_K, is_wrong_K, ratio_K)).mean())

        change_NK = (ratio_K * variance_NK - square_NK) / safe_K
        change_N = np.where(is_flat_K, 0.0, change_NK).mean(1)
        # an error has no bound: a row as bad as the worst may be missing
        largest = np.abs(change_N).max(keepdims=True)
        return by_influence(answers, value, change_N, largest)

    def why_no_claim(self, answers: Answers) -> str:
        """A number without variance gets some by one row more."""
        if _is_flat(answers).any():
            return "a number is the same in all test rows"
        return ""


def _is_flat(answers: Answers) -> NDArray[np.bool_]:
    """Whether a number is the same in all rows: rounding gives its mean an error."""
    is_flat_K: NDArray[np.bool_] = (answers.labels == answers.labels[:1]).all(0)
    return is_flat_K
