"""Coefficient of determination.

N test rows, K numbers of a row.
"""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    by_influence,
)
from gaam_decoder.tasks import task_of
from gaam_decoder.tasks.regression import is_flat


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
        task = task_of("regression")
        value = float(task.selection(answers.logits, answers.labels))
        change_N = task.contributions(answers.logits, answers.labels) - value
        # an error has no bound: a row as bad as the worst may be missing
        largest = np.abs(change_N).max(keepdims=True)
        return by_influence(answers, value, change_N, largest)

    def why_no_claim(self, answers: Answers) -> str:
        """A number without variance gets some by one row more."""
        if is_flat(answers.labels).any():
            return "a number is the same in all test rows"
        return ""
