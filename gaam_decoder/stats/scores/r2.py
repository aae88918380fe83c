"""Coefficient of determination.

N test rows, K numbers of a row.
"""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Floats,
    Score,
    SeedScore,
    by_influence,
)


class R2(Score):
    """Share of the variance of a number that is explained, averaged over the numbers.

    ``1 - A / B``: ``A = mean (y - f)^2`` and ``B = mean (y - mean y)^2`` over the test
    rows, y the number, f the output. A number that is the same in all test rows is left
    out. It has no lower bound: 0 is the mean of the test rows, less is worse.

    It allows a verdict: it is a smooth function of means. A row changes it by
    ``(b A / B - a) / B``, a and b what the row adds to A and B (Efron 1982,
    infinitesimal jackknife).
    """

    tasks = ("regression",)
    title = "R2"
    percent = False
    lowest = float("-inf")

    def of(self, answers: Answers) -> SeedScore | None:
        """The value plus the derivative of the mean in the weight of every row."""
        square_NK, variance_NK = _squares(answers)
        variance_K = variance_NK.mean(0)
        varies_K = variance_K > 0
        if not varies_K.any():
            return None
        variance_K = variance_K[varies_K]
        ratio_K = square_NK[:, varies_K].mean(0) / variance_K
        from_both_NK = ratio_K * variance_NK[:, varies_K] - square_NK[:, varies_K]
        change_N = (from_both_NK / variance_K).mean(1)
        # an error has no bound: a row as bad as the worst may be missing
        largest = np.abs(change_N).max(keepdims=True)
        return by_influence(answers, float((1 - ratio_K).mean()), change_N, largest)

    def why_no_claim(self, answers: Answers) -> str:
        """A number without variance gets some by one row more."""
        if (np.ptp(answers.labels, axis=0) == 0).any():
            return "a number is the same in all test rows"
        return ""


def _squares(answers: Answers) -> tuple[Floats, Floats]:
    """Squared distance of every number from the output and from the mean, (N, K)."""
    target_NK = answers.labels.astype(np.float64)
    mean_K = target_NK.mean(0)
    # rounding gives a constant a variance
    constant_K = np.ptp(target_NK, axis=0) == 0
    variance_NK = np.where(constant_K, 0.0, np.square(target_NK - mean_K))
    return np.square(target_NK - answers.logits), variance_NK
